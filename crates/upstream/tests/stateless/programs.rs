//! In front of a program of the stateless revision.

use std::path::Path;
use std::sync::Arc;

use steadfast_client::{Backoff, Uri};
use steadfast_upstream::stdio::ProcessPool;
use steadfast_upstream::{Config, Program, Server, Sharing};

use super::front::Front;
use crate::support::json;

async fn front(mode: &str) -> (ProcessPool, Front) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stdio/server.py");
    let arguments = vec![script.display().to_string(), mode.to_owned()];
    let program = Program { command: "python3".to_owned(), arguments, ..Program::default() };
    let mut config = Config::stdio(program);
    let Server::Stdio(stdio) = &mut config.server else { panic!("no program") };
    stdio.sharing = Sharing::Shared;
    let programs = ProcessPool::new(stdio.clone(), Backoff::default(), 1);
    let front =
        Front::over(Arc::new(programs.transport("all")), Uri::from_static("http://program/"), &config).await;
    (programs, front)
}

#[tokio::test]
async fn clients_with_equal_ids_share_a_program() {
    let (_programs, front) = front("modern").await;
    let call = |text: &str| {
        front.post("tools/call", json!({"name": "progress", "arguments": {"ms": 30, "text": text}, "_meta": {"progressToken": "t"}}))
    };
    let answers = tokio::join!(call("one"), call("two"));
    for ((status, _, body), text) in [(answers.0, "one"), (answers.1, "two")] {
        assert_eq!(status, 200);
        assert_eq!(body.matches(r#""progressToken": "t""#).count(), 2, "{body}");
        assert!(body.contains(&format!(r#""text": "{text}""#)), "{body}");
        assert!(body.contains(r#""id":"mine""#), "{body}");
    }
}

#[tokio::test]
async fn a_program_with_sessions_is_told_apart() {
    let (_programs, front) = front("good").await;
    let (status, _, body) = front.post_with("server/discover", json!({}), &[("user-agent", "tests")]).await;
    let offered = r#""supportedVersions":["2025-03-26","2025-06-18","2025-11-25"]"#;
    assert!(status == 200 && body.contains(offered), "{status} {body}");
}

#[tokio::test]
async fn a_program_that_does_not_start_says_why() {
    let (_programs, front) = front("exit").await;
    let (_, _, body) = front.post("tools/call", json!({"name": "echo"})).await;
    assert!(body.contains("its last line on stderr: no configuration was found"), "{body}");
}
