//! A server that wants credentials is heard by those who have them to give.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use http::HeaderValue;
use steadfast_upstream::{Config, Credential};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use super::front::{CALL, Front, INITIALIZE, STATELESS, STATELESS_HEADERS, answer, play, request};

const CHALLENGE: &str =
    r#"Bearer resource_metadata="https://s.example/.well-known/x", error="invalid_token""#;

/// What the server does with requests whose credentials are not `Bearer good`, and with calls.
#[derive(Clone, Default)]
struct Guard {
    /// What it says to bad credentials.
    headers: String,
    body: String,
    status: u16,
    /// What it says to calls, whatever their credentials.
    calls: Arc<AtomicU16>,
}

async fn serve(guard: Guard) -> http::Uri {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let guard = guard.clone();
            tokio::spawn(async move {
                while let Some((head, body)) = request(&mut stream).await {
                    let denied = guard.calls.load(Ordering::SeqCst);
                    let text = if !head.contains("authorization: bearer good\r\n") {
                        answer(guard.status, &guard.headers, &guard.body)
                    } else if denied != 0 && body.contains("tools/call") {
                        answer(denied, &guard.headers, &guard.body)
                    } else {
                        play(&head, &body)
                    };
                    stream.write_all(text.as_bytes()).await.unwrap();
                }
            });
        }
    });
    format!("http://{address}/mcp").parse().unwrap()
}

fn guard(status: u16, headers: &str, body: &str) -> Guard {
    let (headers, body) = (headers.to_owned(), body.to_owned());
    Guard { status, headers, body, ..Guard::default() }
}

async fn front(guard: Guard, credential: Credential) -> Front {
    Front::start(Config { credential, ..Config::http(vec![serve(guard).await]) }).await
}

fn header<'a>(reply: &'a str, name: &str) -> Option<&'a str> {
    let head = reply.split("\r\n\r\n").next()?;
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

#[tokio::test]
async fn a_client_learns_what_the_server_wants() {
    let challenged = format!("www-authenticate: {CHALLENGE}\r\n");
    let twice = format!("{challenged}www-authenticate: Basic realm=\"s\"\r\n");
    let both = format!("{CHALLENGE}, Basic realm=\"s\"");
    let long = format!("www-authenticate: Bearer x=\"{}\"\r\n", "x".repeat(5000));
    let json = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"log in"}}"#;
    for (status, headers, body, expect) in [
        (401, challenged.as_str(), "who are you?", Some(CHALLENGE)),
        (401, &challenged, json, Some(CHALLENGE)),
        (401, &twice, "", Some(both.as_str())),
        // A 401 has a challenge, always.
        (401, "", "", Some("Bearer")),
        (401, &long, "", Some("Bearer")),
        (403, &challenged, "", Some(CHALLENGE)),
        (403, "", "", None),
    ] {
        let front = front(guard(status, headers, body), Credential::Forwarded).await;
        for credentials in ["", "authorization: Bearer bad\r\n"] {
            let reply = front.post(credentials, INITIALIZE).await;
            assert!(reply.starts_with(&format!("HTTP/1.1 {status} ")), "{reply}");
            assert_eq!(header(&reply, "www-authenticate"), expect, "{reply}");
            assert_eq!(header(&reply, "mcp-session-id"), None, "{reply}");
            let data =
                format!(r#""data":{{"reason":"credentials_refused","retryable":false,"status":{status}}}"#);
            assert!(reply.contains(&data) && reply.contains(r#""id":"open""#), "{reply}");
        }
        let reply = front.post("authorization: Bearer good\r\n", INITIALIZE).await;
        assert!(reply.starts_with("HTTP/1.1 200 ") && header(&reply, "mcp-session-id").is_some(), "{reply}");
    }
}

/// Without a session every request is asked for them, and every refusal is the client's to see.
#[tokio::test]
async fn a_client_without_a_session_learns_it_with_every_request() {
    let challenged = format!("www-authenticate: {CHALLENGE}\r\n");
    let json = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"log in"}}"#;
    for (status, headers, body, expect) in [
        (401, challenged.as_str(), "who are you?", Some(CHALLENGE)),
        (401, &challenged, json, Some(CHALLENGE)),
        (401, "", "", Some("Bearer")),
        (403, &challenged, "", Some(CHALLENGE)),
        (403, "", "", None),
    ] {
        let front = front(guard(status, headers, body), Credential::Forwarded).await;
        for credentials in ["", "authorization: Bearer bad\r\n"] {
            let reply = front.post(&format!("{credentials}{STATELESS_HEADERS}"), STATELESS).await;
            assert!(reply.starts_with(&format!("HTTP/1.1 {status} ")), "{reply}");
            assert_eq!(header(&reply, "www-authenticate"), expect, "{reply}");
            let data =
                format!(r#""data":{{"reason":"credentials_refused","retryable":false,"status":{status}}}"#);
            assert!(reply.contains(&data) && reply.contains(r#""id":"one""#), "{reply}");
        }
        let good = format!("authorization: Bearer good\r\n{STATELESS_HEADERS}");
        let reply = front.post(&good, STATELESS).await;
        assert!(reply.starts_with("HTTP/1.1 200 ") && reply.contains(r#""result""#), "{reply}");
    }
}

/// A client cannot do anything about credentials that are not its own, and must not be sent to log
/// in for them.
#[tokio::test]
async fn our_own_credentials_are_our_own_business() {
    let challenged = format!("www-authenticate: {CHALLENGE}\r\n");
    let own = Credential::Own(HeaderValue::from_static("Bearer ours"));
    for credential in [own, Credential::None] {
        for status in [401, 403] {
            let front = front(guard(status, &challenged, ""), credential.clone()).await;
            // What the client shows stays here.
            let reply = front.post("authorization: Bearer good\r\n", INITIALIZE).await;
            assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
            assert_eq!(header(&reply, "www-authenticate"), None, "{reply}");
            assert!(
                reply.contains(r#""error":{"code":-32603"#) && reply.contains(r#""id":"open""#),
                "{reply}"
            );
            let good = format!("authorization: Bearer good\r\n{STATELESS_HEADERS}");
            let reply = front.post(&good, STATELESS).await;
            assert!(reply.starts_with("HTTP/1.1 200 ") && reply.contains("credentials_refused"), "{reply}");
            assert_eq!(header(&reply, "www-authenticate"), None, "{reply}");
        }
    }
}

/// A client fetches other credentials when it sees a status and a challenge, in the middle of a
/// session as well.
#[tokio::test]
async fn a_call_that_is_denied_is_refused_as_such() {
    let json = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"expired"}}"#;
    for said in ["expired", json] {
        let guard = guard(401, &format!("www-authenticate: {CHALLENGE}\r\n"), said);
        let calls = Arc::clone(&guard.calls);
        let front = front(guard, Credential::Forwarded).await;
        let session = open(&front).await;
        assert!(front.post(&session, CALL).await.contains(r#""result":{"content":[]}"#));
        // The same id again and again: each call is over when its client hears of it.
        for status in [401, 403] {
            calls.store(status, Ordering::SeqCst);
            let reply = front.post(&session, CALL).await;
            assert!(reply.starts_with(&format!("HTTP/1.1 {status} ")), "{reply}");
            assert_eq!(header(&reply, "www-authenticate"), Some(CHALLENGE), "{reply}");
            let error: serde_json::Value =
                serde_json::from_str(reply.split("\r\n\r\n").nth(1).unwrap()).unwrap();
            assert_eq!((&error["id"], &error["error"]["code"]), (&2.into(), &(-32603).into()), "{error}");
            let data = serde_json::json!({
                "reason": "credentials_refused", "status": status, "retryable": false, "challenge": CHALLENGE
            });
            assert_eq!(error["error"]["data"], data);
            let message = error["error"]["message"].as_str().unwrap();
            // What is not JSON-RPC is not told: it may be the page of a proxy.
            let is_told = message.ends_with("It says: expired");
            assert!(message.contains("`initialize`") && is_told == (said == json), "{message}");
        }
        calls.store(0, Ordering::SeqCst);
        assert!(front.post(&session, CALL).await.contains(r#""result":{"content":[]}"#));
    }
}

/// What the server does not let this client do, whatever it shows, is the outcome of the call.
#[tokio::test]
async fn a_call_that_is_forbidden_without_a_challenge_is_answered() {
    let guard = guard(401, "", "not you");
    let calls = Arc::clone(&guard.calls);
    let front = front(guard, Credential::Forwarded).await;
    let session = open(&front).await;
    calls.store(403, Ordering::SeqCst);
    let reply = front.post(&session, CALL).await;
    let data = r#""data":{"reason":"credentials_refused","retryable":false,"status":403}"#;
    assert!(reply.starts_with("HTTP/1.1 200 ") && reply.contains(data), "{reply}");
    calls.store(401, Ordering::SeqCst);
    let reply = front.post(&session, CALL).await;
    assert!(reply.starts_with("HTTP/1.1 401 "), "{reply}");
    assert_eq!(header(&reply, "www-authenticate"), Some("Bearer"), "a 401 has a challenge, always");
}

/// The headers of a request in a session of its own.
async fn open(front: &Front) -> String {
    let good = "authorization: Bearer good\r\n";
    let reply = front.post(good, INITIALIZE).await;
    let id = header(&reply, "mcp-session-id").unwrap();
    format!("{good}mcp-session-id: {id}\r\nmcp-protocol-version: 2025-11-25\r\n")
}
