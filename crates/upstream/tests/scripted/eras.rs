//! Requests without a session before servers that have sessions: they are told so, and the server
//! is not bothered.

use crate::support::modern::Modern;
use crate::support::server::{Reply, Request, Server};
use crate::support::{Backing, Host, Value, json};

/// The code and the revisions that are offered instead. The status depends on how soon the server
/// answers: a slow answer is on a stream.
fn offered(reply: &crate::support::Reply) -> (Value, Value) {
    let answer = reply.answer();
    (answer["error"]["code"].clone(), answer["error"]["data"]["supported"].clone())
}

fn sessions() -> (Value, Value) {
    (json!(-32022), json!(["2025-03-26", "2025-06-18", "2025-11-25"]))
}

fn asked(server: &Server) -> usize {
    server.count(|request| request.method() == "server/discover")
}

/// Some servers with sessions answer whatever they are asked outside of one, with status 200.
#[tokio::test]
async fn a_server_with_sessions_gets_no_request_without() {
    let refusal = json!({"code": -32602, "message": "Invalid request parameters"});
    let unknown = json!({"code": -32601, "message": "Method not found"});
    for (name, discovered) in [
        ("unknown", Ok((200, unknown.clone()))),
        ("not found", Ok((404, unknown))),
        ("invalid", Ok((200, refusal))),
        ("something else", Err(json!({"content": []}))),
    ] {
        let server = Server::with_sessions(move |request| match request.method() {
            "server/discover" => Some(match &discovered {
                Ok((status, error)) => Reply::error(request, *status, error),
                Err(result) => Reply::result(request, result),
            }),
            "tools/call" => Some(Reply::result(request, &json!({"content": []}))),
            _ => None,
        })
        .await;
        let host = Host::before(Backing::Memory, [server.url()], |builder| builder).await;
        let modern = Modern::to(&host);
        for id in 0..3 {
            assert_eq!(offered(&modern.tool(id, "t", json!({})).send().await), sessions(), "{name}");
        }
        let discover = modern.request(3, "server/discover", json!({}));
        let discovered = discover.header("User-Agent", "tests").send().await;
        assert_eq!(
            (discovered.status, &discovered.json()["result"]["supportedVersions"]),
            (200, &sessions().1)
        );
        assert_eq!((asked(&server), super::calls(&server, "t")), (1, 0), "{name}: it is asked once");
    }
}

/// However many requests arrive first, the gateway sends one `server/discover` request, with the
/// client's credentials.
#[tokio::test]
async fn a_server_without_sessions_is_asked_once() {
    let server = Server::stateless(|request| {
        let result = json!({"resultType": "complete", "content": []});
        (request.method() == "tools/call").then(|| Reply::result(request, &result))
    })
    .await;
    let host = Host::before(Backing::Memory, [server.url()], |builder| {
        builder.upstream(|config| config.credential = steadfast_upstream::Credential::Forwarded)
    })
    .await;
    let modern = Modern::to(&host).known_as("me");
    let work: Vec<_> = (0..10)
        .map(|id| {
            let modern = modern.clone();
            tokio::spawn(async move { modern.tool(id, "t", json!({})).send().await.answer() })
        })
        .collect();
    for work in work {
        let answer = work.await.unwrap();
        assert_eq!(answer["result"]["content"], json!([]), "{answer}");
    }
    assert_eq!((asked(&server), super::calls(&server, "t")), (1, 10));
    let question = server.log().into_iter().find(|request| request.method() == "server/discover").unwrap();
    let header = |name: &str| question.header(name).map(str::to_owned);
    assert_eq!(header("authorization").as_deref(), Some("Bearer me"));
    assert_eq!(header("mcp-method").as_deref(), Some("server/discover"));
    assert_eq!(header("mcp-name"), None, "that is the tool's");
    assert_eq!(question.body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
}

/// A 401 response tells the gateway nothing about the server: the gateway forwards it to the client
/// and asks the server again on the next request.
#[tokio::test]
async fn a_server_that_refuses_the_credentials_is_asked_again() {
    let server = Server::stateless(|request: &Request| {
        let is_known = request.header("authorization") == Some("Bearer me");
        match request.method() {
            _ if !is_known => Some(Reply::new(401, "www-authenticate: Bearer realm=\"r\"\r\n", "")),
            "tools/call" => Some(Reply::result(request, &json!({"resultType": "complete", "content": []}))),
            _ => None,
        }
    })
    .await;
    let host = Host::before(Backing::Memory, [server.url()], |builder| {
        builder.upstream(|config| config.credential = steadfast_upstream::Credential::Forwarded)
    })
    .await;
    let modern = Modern::to(&host);
    assert_eq!(modern.tool(1, "t", json!({})).send().await.status, 401);
    let answer = modern.known_as("me").tool(2, "t", json!({})).send().await.answer();
    assert_eq!(answer["result"]["content"], json!([]), "{answer}");
}

#[cfg(unix)]
mod programs {
    use std::path::Path;

    use steadfast_upstream::{Config, Program};

    use super::*;

    async fn host(mode: &'static str) -> Host {
        Host::before(Backing::Memory, [], move |builder| {
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stdio/server.py");
            let arguments = vec![script.display().to_string(), mode.to_owned()];
            let program = Program { command: "python3".to_owned(), arguments, ..Program::default() };
            builder.upstream(|config| *config = Config::stdio(program))
        })
        .await
    }

    /// A program that was never initialized answers nonsense, or ends.
    #[tokio::test]
    async fn a_program_with_sessions_gets_no_request_without() {
        for mode in ["good", "touchy"] {
            let host = host(mode).await;
            let modern = Modern::to(&host);
            for id in 0..3 {
                assert_eq!(offered(&modern.tool(id, "echo", json!({})).send().await), sessions(), "{mode}");
            }
        }
    }

    #[tokio::test]
    async fn a_program_without_sessions_is_asked_once() {
        let host = host("modern").await;
        let modern = Modern::to(&host);
        for id in 0..3 {
            let answer = modern.tool(id, "seen", json!({})).send().await.answer();
            let mut expect = vec!["server/discover"];
            expect.resize(2 + id as usize, "tools/call");
            assert_eq!(answer["result"]["seen"], json!(expect), "{answer}");
        }
    }
}
