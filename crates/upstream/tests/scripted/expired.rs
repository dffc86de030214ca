//! Credentials of a client that the server takes no more, in the middle of a session. What a client
//! sees of it at best is in `outside/credentials.rs`.

use std::time::Duration;

use steadfast_upstream::Credential;

use crate::support::server::{Reply, Request, Server};
use crate::support::{Backing, Host, Session, Value, json};

use super::calls;

const CHALLENGE: &str = r#"Bearer error="invalid_token""#;

/// Longer than any test runs: no test waits for a timeout of this length.
const AN_HOUR: Duration = Duration::from_secs(3600);

fn refusal() -> Reply {
    Reply::new(401, &format!("www-authenticate: {CHALLENGE}\r\n"), "expired")
}

fn was_prodded(log: &[Request]) -> bool {
    log.iter().any(|request| request.verb == "PROD")
}

/// A server that answers calls of `fine`, and refuses others once the test has prodded it.
async fn server(script: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static) -> Server {
    Server::with_sessions(move |request| {
        script(request).or_else(|| match request.method() {
            "tools/call" if request.calls("fine") => Some(Reply::result(request, &json!({}))),
            "tools/call" => Some(Reply::default().until(was_prodded).then(refusal())),
            _ => None,
        })
    })
    .await
}

async fn opened(server: &Server, auth_wait: Duration) -> (Host, Session) {
    let host = Host::before(Backing::Memory, [server.url()], move |builder| {
        builder.auth_wait(auth_wait).upstream(|config| config.credential = Credential::Forwarded)
    })
    .await;
    let session = Session::open(&host).await;
    (host, session)
}

/// The server is there, and its session as well: it has been opened once.
async fn check_that_nothing_is_healed(server: &Server, host: &Host, session: &Session) {
    assert_eq!(session.tool(99, "fine", json!({})).send().await.answer()["result"], json!({}));
    assert_eq!(server.count(|request| request.method() == "initialize"), 1);
    assert!(host.upstream().replicas().iter().all(|replica| replica.is_up));
    assert_eq!(host.upstream().failovers(), 0);
}

fn check_error(answer: &Value) {
    let data =
        json!({"reason": "credentials_refused", "status": 401, "retryable": false, "challenge": CHALLENGE});
    assert_eq!(answer["error"]["data"], data, "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("credentials") && message.contains("`initialize`"), "{message}");
}

/// The gateway has sent the response head, so the JSON-RPC error carries the whole explanation. A
/// client that resumes the stream gets the same error.
#[tokio::test]
async fn a_refusal_that_comes_late_says_what_to_do() {
    let server = server(|_| None).await;
    let (host, session) = opened(&server, Duration::from_millis(1)).await;
    let mut stream = session.tool(1, "late", json!({})).stream().await;
    let priming = stream.next().await.unwrap();
    assert!(priming.is_priming());
    let other = session.tool(2, "late", json!({})).stream().await;
    stream.cut();
    server.until("both calls", |log| log.iter().filter(|request| request.calls("late")).count() == 2).await;
    server.prod();
    check_error(&{ other }.message().await);
    check_error(&session.resume(&priming.id.unwrap()).stream().await.message().await);
    assert_eq!(calls(&server, "late"), 2);
    check_that_nothing_is_healed(&server, &host, &session).await;
}

/// A server that begins its answer has accepted the client's credentials, so the gateway stops
/// holding back the response head.
#[tokio::test]
async fn the_head_of_the_servers_stream_lets_ours_go() {
    let server = server(|request| {
        request.calls("long").then(|| Reply::stream().until(was_prodded).answer(request, &json!({"n": 1})))
    })
    .await;
    let (_host, session) = opened(&server, AN_HOUR).await;
    let mut stream = session.tool(1, "long", json!({})).stream().await;
    assert!(stream.next().await.unwrap().is_priming());
    server.prod();
    assert_eq!(stream.message().await["result"], json!({"n": 1}));
}

/// Some servers answer what they refuse; it is a refusal all the same.
#[tokio::test]
async fn a_refusal_that_is_an_answer_as_well_is_a_refusal() {
    let server = server(|request| {
        let error =
            json!({"jsonrpc": "2.0", "id": request.body["id"], "error": {"code": -1, "message": "who?"}});
        let challenge = format!("www-authenticate: {CHALLENGE}\r\n");
        request.calls("answered").then(|| Reply::json_with(401, &challenge, &error))
    })
    .await;
    let (_host, session) = opened(&server, AN_HOUR).await;
    let reply = session.tool(1, "answered", json!({})).send().await;
    assert_eq!((reply.status, reply.header("www-authenticate")), (401, Some(CHALLENGE)));
    assert_eq!(reply.json()["id"], 1);
    check_error(&reply.json());
}

/// The gateway accepts notifications and DELETE requests from the client and sends each to the
/// server once. It repeats a refused GET only as often as its backoff allows.
#[tokio::test]
async fn everything_else_may_be_refused_and_no_request_hangs() {
    let server = server(|request| {
        let is_note =
            request.method().starts_with("notifications/") && request.method() != "notifications/initialized";
        (is_note || request.verb == "GET" || request.verb == "DELETE").then(refusal)
    })
    .await;
    let (host, session) = opened(&server, AN_HOUR).await;
    assert_eq!(session.notify("notifications/roots/list_changed", json!({})).await.status, 202);
    let is_note = |request: &Request| request.method() == "notifications/roots/list_changed";
    server.until("the notification", |log| log.iter().any(is_note)).await;
    // As often as the host's backoff says, and then not before the client shows something else.
    let gets = |log: &[Request]| log.iter().filter(|request| request.verb == "GET").count();
    server.until("the GETs", |log| gets(log) >= 4).await;
    check_that_nothing_is_healed(&server, &host, &session).await;
    let heard = gets(&server.log());
    assert_eq!(session.delete().send().await.status, 204);
    server.until("the DELETE", |log| log.iter().any(|request| request.verb == "DELETE")).await;
    assert_eq!(server.count(is_note), 1);
    assert_eq!(gets(&server.log()), heard, "it was asked for its stream again");
    assert_eq!(server.count(|request| request.verb == "DELETE"), 1);
}

/// A server that refuses the client's answer to its own request would wait for that answer until a
/// deadline of the client or of the server.
#[tokio::test]
async fn a_call_whose_question_cannot_be_answered_is_over() {
    let server = server(|request| {
        let server_request = json!({"jsonrpc": "2.0", "id": 7, "method": "elicitation/create", "params": {}});
        if request.calls("asks") {
            return Some(Reply::stream().event(&server_request).hang());
        }
        request.is_answer().then(refusal)
    })
    .await;
    let (host, session) = opened(&server, AN_HOUR).await;
    let mut stream = session.tool(1, "asks", json!({})).stream().await;
    let asked = stream.message().await;
    assert_eq!(session.answer(&asked["id"], json!({"action": "accept"})).await.status, 202);
    check_error(&stream.message().await);
    assert_eq!(stream.rest().await.len(), 0);
    assert_eq!(server.count(Request::is_answer), 1);
    check_that_nothing_is_healed(&server, &host, &session).await;
}
