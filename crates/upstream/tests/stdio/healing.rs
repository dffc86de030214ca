//! A program that has ended is started again, within bounds.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use http_body_util::BodyExt as _;
use steadfast_client::{Backoff, Error, Event};
use steadfast_upstream::stdio::ProcessPool;
use steadfast_upstream::{Program, Sharing, Stdio};

use super::support::*;

#[tokio::test]
async fn the_call_after_a_crash_finds_a_new_process() {
    let programs = programs(stdio("good"));
    let (ear, mut hear) = ear("{}");
    let client = connect(programs.transport("alone"), config(), ear).await.unwrap();
    let first = value(call(&client, "echo", json!({})).await);
    unknown(call(&client, "crash", json!({})).await);
    let second = value(call(&client, "echo", json!({})).await);
    assert_ne!(first["pid"], second["pid"]);
    assert_eq!(hear.recv().await, Some(Heard::Event(Event::SessionRenewed)));
    assert_eq!(client.session_id().as_deref(), Some("b007-2-1"));
    let seen = value(call(&client, "seen", json!({})).await);
    assert_eq!(seen["seen"][0], "initialize");
    assert_eq!(seen["seen"][1]["method"], "notifications/initialized");
}

#[tokio::test]
async fn the_standalone_stream_comes_back_after_a_crash() {
    let programs = programs(stdio("good"));
    let (client, mut hear) = listening(programs.transport("alone")).await;
    unknown(call(&client, "crash", json!({})).await);
    assert_eq!(within("news", hear.recv()).await, Some(Heard::Event(Event::SessionRenewed)));
    assert_eq!(within("news", hear.recv()).await, Some(Heard::Event(Event::StandaloneOpen)));
}

#[tokio::test]
async fn calls_that_notice_together_share_one_new_process() {
    let alone = alone("good").await;
    unknown(call(&alone.client, "crash", json!({})).await);
    let calls: Vec<_> = (0..8).map(|_| begin(&alone.client, "echo", json!({}))).collect();
    let mut pids = Vec::new();
    for call in calls {
        pids.push(value(within("an answer", call.answer()).await)["pid"].as_u64().unwrap());
    }
    pids.dedup();
    assert_eq!(pids.len(), 1);
}

/// The delay applies to all clients: a client that was refused a session may try again at once,
/// also under another identity.
#[tokio::test]
async fn a_program_that_keeps_ending_is_not_started_for_a_while() {
    for sharing in [Sharing::PerSession, Sharing::Shared] {
        let folder = tempfile::tempdir().unwrap();
        let starts = folder.path().join("starts");
        let backoff = Backoff {
            first: Duration::from_secs(60),
            longest: Duration::from_secs(60),
            ..Backoff::default()
        };
        let mut stdio = Stdio { sharing, ..stdio("exit") };
        stdio.program.environment.insert("STARTS".to_owned(), starts.display().to_string());
        let programs = ProcessPool::new(stdio, backoff, 1);
        let ended =
            "the program ended with exit status: 3; its last line on stderr: no configuration was found";
        let later =
            format!("the program ended 2 times in a row, the last time: {ended}; it is started again later");
        let (first, second) = (programs.transport("first"), programs.transport("second"));
        for (child, status, wait, why) in [
            (&first, 500, None, ended),
            (&first, 429, Some("60"), later.as_str()),
            (&second, 429, Some("60"), later.as_str()),
        ] {
            let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}});
            let response = send(child, "POST", None, initialize).await;
            let waits = response.headers().get("retry-after").map(|wait| wait.to_str().unwrap());
            assert_eq!((response.status().as_u16(), waits), (status, wait), "{sharing:?}");
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let told: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(told["error"]["message"], why, "{sharing:?}");
        }
        assert_eq!(std::fs::read_to_string(starts).unwrap(), "xx", "once, and once more");
    }
}

#[tokio::test]
async fn ids_of_other_processes_are_unknown() {
    let programs = programs(stdio("good"));
    let child = programs.transport("alone");
    let client = connect(child.clone(), config(), ()).await.unwrap();
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo"}});
    let note = json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"});
    for (session, call, told) in [
        ("b007-1-1", 200, 202),
        ("b007-1-2", 404, 404),
        ("b007-2-1", 404, 404),
        ("b008-1-1", 404, 404),
        ("nonsense", 404, 404),
    ] {
        assert_eq!(send(&child, "POST", Some(session), ping.clone()).await.status(), call, "{session}");
        assert_eq!(send(&child, "POST", Some(session), note.clone()).await.status(), told, "{session}");
        assert_eq!(send(&child, "GET", Some(session), Value::Null).await.status(), call, "{session}");
    }
    assert_eq!(send(&child, "GET", None, Value::Null).await.status(), 405);
    assert_eq!(send(&child, "DELETE", Some("b007-1-2"), Value::Null).await.status(), 404);
    assert_eq!(send(&child, "DELETE", Some("b007-1-1"), Value::Null).await.status(), 200);
    assert_eq!(send(&child, "POST", Some("b007-1-1"), ping).await.status(), 404);
    drop(client);
}

#[tokio::test]
async fn there_are_no_more_processes_than_allowed() {
    let programs = programs(Stdio { processes: 1, ..stdio("good") });
    let first = connect(programs.transport("first"), config(), ()).await.unwrap();
    let pid = value(call(&first, "echo", json!({})).await)["pid"].as_u64().unwrap();
    let hanging = begin(&first, "hang", json!({}));
    value(call(&first, "echo", json!({})).await);
    match connect(programs.transport("second"), config(), ()).await {
        Err(Error::Refused { status: 503, error: Some(error), .. }) => {
            assert!(error.message.contains("1 programs run already, and all are in use"), "{error:?}");
        }
        other => panic!("not refused: {other:?}"),
    }
    drop((hanging, first));
    gone(pid).await;
    within("a place", async {
        while connect(programs.transport("third"), config(), ()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// Returns the process that serves a client.
async fn pid_of(client: &steadfast_client::Client) -> u64 {
    value(call(client, "echo", json!({})).await)["pid"].as_u64().unwrap()
}

#[tokio::test]
async fn the_process_that_was_idle_for_longest_ends_when_a_session_needs_its_place() {
    let programs = programs(Stdio { processes: 2, ..stdio("good") });
    let (first, mut hear) = listening(programs.transport("first")).await;
    let second = connect(programs.transport("second"), config(), ()).await.unwrap();
    let (old_second, old_first) = (pid_of(&second).await, pid_of(&first).await);
    // The second one was not used for longer.
    let third = connect(programs.transport("third"), config(), ()).await.unwrap();
    gone(old_second).await;
    let third_pid = pid_of(&third).await;
    assert_eq!(pid_of(&first).await, old_first);
    // Its session gets another process, in place of the third one.
    let new_second = pid_of(&second).await;
    gone(third_pid).await;
    // Now the first one. Its client listens, which does not start a process.
    pid_of(&third).await;
    gone(old_first).await;
    assert!(is_running(new_second));
    assert_ne!(pid_of(&first).await, old_first);
    loop {
        match within("the stream", hear.recv()).await {
            Some(Heard::Event(Event::StandaloneOpen)) => break,
            Some(_) => {}
            None => panic!("the stream of a new process is not opened"),
        }
    }
}

#[tokio::test]
async fn a_process_without_state_ends_after_its_idle_timeout() {
    let idle_timeout = Some(Duration::from_millis(50));
    let programs = programs(Stdio { idle_timeout, ..stdio("good") });
    let (client, _hear) = listening(programs.transport("alone")).await;
    let pid = pid_of(&client).await;
    gone(pid).await;
    assert_ne!(pid_of(&client).await, pid);
}

#[tokio::test]
async fn a_crash_frees_its_place_for_the_next() {
    let programs = programs(Stdio { processes: 1, ..stdio("good") });
    let client = connect(programs.transport("alone"), config(), ()).await.unwrap();
    unknown(call(&client, "crash", json!({})).await);
    value(call(&client, "echo", json!({})).await);
}

#[tokio::test]
async fn a_program_that_starts_slowly_is_waited_for_by_the_next() {
    for sharing in [Sharing::PerSession, Sharing::Shared] {
        let programs = programs(Stdio { sharing, ..stdio("slow-start") });
        let child = programs.transport("alone");
        let mut hasty = config();
        hasty.timeouts.control = Duration::from_millis(100);
        let error = connect(child.clone(), hasty, ()).await.expect_err("it takes longer");
        assert!(matches!(error, Error::Timeout(_)), "{error:?}");
        let client = connect(child, config(), ()).await.unwrap();
        assert_eq!(client.session_id().as_deref(), Some("b007-1-1"), "it is the same process");
        let seen = value(call(&client, "seen", json!({})).await);
        assert_eq!(seen["seen"][0], "initialize");
        assert_eq!(seen["seen"][1]["method"], "notifications/initialized");
    }
}

/// The program hangs while it starts. The gateway can distinguish that from a slow start only by a
/// timeout.
#[tokio::test]
async fn a_program_that_never_answers_initialize_is_ended_and_started_again() {
    for sharing in [Sharing::PerSession, Sharing::Shared] {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("mark");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stdio/mute_once.sh");
        let program = Program {
            command: "sh".to_owned(),
            arguments: vec![script.display().to_string()],
            environment: BTreeMap::from([("MARK".to_owned(), mark.display().to_string())]),
            ..Program::default()
        };
        let (initialize_timeout, exit_timeout) = (Duration::from_secs(3), Duration::from_millis(50));
        let stdio = Stdio { sharing, initialize_timeout, exit_timeout, ..Stdio::new(program) };
        let programs = programs(stdio);
        let child = programs.transport("alone");
        let mut hasty = config();
        hasty.timeouts.control = Duration::from_millis(100);
        let error = connect(child.clone(), hasty, ()).await.expect_err("it does not answer");
        assert!(matches!(error, Error::Timeout(_)), "{error:?}");
        let written = async {
            loop {
                match std::fs::read_to_string(mark.join("pid")).map(|text| text.trim().parse()) {
                    Ok(Ok(pid)) => return pid,
                    _ => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        };
        let pid = within("the program to start", written).await;
        assert!(is_running(pid), "it may only be slow");
        match connect(child.clone(), config(), ()).await {
            Err(Error::Refused { status: 500, error: Some(error), .. }) => {
                let why = "the program was ended: it did not answer initialize within 3s";
                assert!(error.message.contains(why), "{error:?}");
            }
            other => panic!("not refused: {other:?}"),
        }
        assert!(!is_running(pid));
        let client = connect(child, config(), ()).await.unwrap();
        assert_eq!(client.session_id().as_deref(), Some("b007-2-1"), "another process");
    }
}

#[tokio::test]
async fn a_session_of_its_own_is_opened_in_a_process_of_its_own() {
    let programs = programs(stdio("stubborn"));
    let child = programs.transport("alone");
    let first = connect(child.clone(), config(), ()).await.unwrap();
    let pid = value(call(&first, "echo", json!({})).await)["pid"].as_u64().unwrap();
    let second = connect(child, config(), ()).await.unwrap();
    assert!(!is_running(pid), "two at a time might be in each other's way");
    assert_eq!(second.session_id().as_deref(), Some("b007-2-1"));
}
