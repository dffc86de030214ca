//! Credentials and session ids are written nowhere: not to logs, whatever their level, and not by `Debug`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::io::Write;
use std::sync::{Arc, Mutex};

use http::HeaderValue;
use steadfast_upstream::{Credential, Server as Kind};
use support::server::{Reply, Server};
use support::session::initialize;
use support::{Backing, Host, Http, Relay, Session, json};
use tracing_subscriber::filter::LevelFilter;

/// Everything that was logged.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

const SECRETS: [&str; 4] = ["client-secret", "own-secret", "operator-secret", "upstream-session-secret"];

/// Opens a session, loses it, heals it, meets every kind of error, and ends it.
async fn live(credential: Credential) -> String {
    let server = Server::with_sessions(|request| match (request.verb.as_str(), request.method()) {
        ("POST", "initialize") => {
            let result = json!({"protocolVersion": "2025-11-25", "capabilities": {"logging": {}}, "serverInfo": {"name": "s", "version": "1"}});
            let body = json!({"jsonrpc": "2.0", "id": request.body["id"], "result": result});
            Some(Reply::json_with(200, "mcp-session-id: upstream-session-secret\r\n", &body))
        }
        ("POST", "tools/call") if request.calls("lost") => Some(Reply::status(404)),
        ("POST", "tools/call") if request.calls("broken") => Some(Reply::default()),
        ("POST", "tools/call") => Some(Reply::status(401)),
        ("GET", _) => Some(Reply::status(500)),
        ("DELETE", _) => Some(Reply::status(403)),
        _ => None,
    })
    .await;
    let relay = Relay::before(&server.url()).await;
    let host = Host::before(Backing::Memory, [relay.url()], move |builder| {
        builder.upstream(|config| {
            config.credential = credential.clone();
            config.patience = std::time::Duration::from_millis(100);
            let Kind::Http { headers, .. } = &mut config.server else { panic!("it is HTTP") };
            headers.insert("x-key", HeaderValue::from_static("operator-secret"));
        })
    })
    .await;
    let with = |request: support::Request| request.header("Authorization", "Bearer client-secret");
    let reply = with(Http::to(&host).post(&initialize("2025-11-25"))).send().await;
    let id = reply.header("mcp-session-id").expect("a session").to_owned();
    let session = Session { http: Http::to(&host), id, revision: "2025-11-25".to_owned() };
    let mut said = String::new();
    for (id, tool) in ["lost", "broken", "denied"].into_iter().enumerate() {
        said += &with(session.tool(id, tool, json!({}))).send().await.text();
    }
    relay.kill().await;
    said += &with(session.tool(9, "away", json!({}))).send().await.text();
    relay.revive();
    said += &format!("{:?} {:?}", host.upstream(), host.upstream().config());
    with(session.delete()).send().await;
    server.until("the DELETE", |log| log.iter().any(|request| request.verb == "DELETE")).await;
    said
}

#[tokio::test]
async fn nothing_secret_is_written() {
    let logged = Logged::default();
    let writer = logged.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let own = HeaderValue::from_static("Bearer own-secret");
    let mut said = String::new();
    for credential in [Credential::Forwarded, Credential::Own(own), Credential::None] {
        said += &live(credential).await;
    }
    let logs = String::from_utf8(logged.0.lock().unwrap().clone()).unwrap();
    assert!(logs.contains("the server had lost a session"), "logs are heard: {logs}");
    for secret in SECRETS {
        assert!(!logs.contains(secret), "{secret} in {logs}");
        assert!(!said.contains(secret), "{secret} in {said}");
    }
}
