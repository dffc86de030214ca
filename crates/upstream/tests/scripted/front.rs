//! What the gateway settles by itself: bad requests do not reach the server, good ones do in order.

use steadfast::Limits;

use crate::support::server::{Reply, Request, Server};
use crate::support::{Backing, Host, Http, Session, Value, json};

use super::opened;

async fn server() -> Server {
    Server::with_sessions(|r| (r.method() == "tools/call").then(|| Reply::result(r, &json!({})))).await
}

#[tokio::test]
async fn bad_requests_do_not_reach_the_server() {
    let server = server().await;
    let (host, session) = opened(&server).await;
    let foreign = Session::open(&host).await;
    let event = foreign.tool(1, "t", json!({})).send().await.frames()[0].id.clone().unwrap();
    server.until("both streams", |log| log.iter().filter(|r| r.verb == "GET").count() == 2).await;
    let before = server.log().len();
    let post = |text: &str| session.with_headers(session.http.post_bytes(text));
    let call =
        |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t"}}}}"#);
    let good = post(&call("1"));
    let cases = [
        ("an id of null", post(&call("null")), 400),
        ("an id with a fraction", post(&call("1.5")), 400),
        ("no JSON", post("{"), 400),
        ("a batch in a revision without", post("[]"), 400),
        ("no session", good.clone().without("Mcp-Session-Id"), 400),
        ("an unknown session", good.clone().header("Mcp-Session-Id", &"x".repeat(43)), 404),
        ("a version that is none", good.clone().header("MCP-Protocol-Version", "soon"), 400),
        ("a foreign page", good.clone().header("Origin", "http://evil.example"), 403),
        ("a page that hides", good.clone().header("Origin", "null"), 403),
        ("a foreign host", good.clone().header("Host", "evil.example"), 403),
        ("no accepted type", good.clone().header("Accept", "text/html"), 406),
        ("another type", good.clone().header("Content-Type", "text/plain"), 415),
        ("an event of another session", session.resume(&event), 400),
        ("an answer to nothing", post(r#"{"jsonrpc":"2.0","id":"ask-9","result":{}}"#), 400),
        ("another verb", session.with_headers(session.http.request("PUT")), 405),
    ];
    for (what, request, status) in cases {
        assert_eq!(request.send().await.status, status, "{what}");
    }
    assert_eq!(server.log().len(), before, "{:?}", &server.log()[before..]);
    assert_eq!(good.send().await.answer()["result"], json!({}));
    assert_eq!(good.clone().header("Origin", "http://localhost:3000").send().await.status, 200);
}

/// A batch of 2025-03-26 is taken apart: its calls are made side by side, its notifications passed
/// on.
#[tokio::test]
async fn batches_are_taken_apart() {
    let server = server().await;
    let host = super::gateway(&server).await;
    let session = Session::at(&host, "2025-03-26").await;
    let call =
        |id: Value| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "t"}});
    let tick = json!({"jsonrpc": "2.0", "method": "notifications/tick"});
    let reply = session.post(&json!([call(json!(1)), tick, call(json!("1"))])).send().await;
    let mut ids: Vec<_> = reply.answers().iter().map(|answer| answer["id"].to_string()).collect();
    ids.sort();
    assert_eq!(ids, ["\"1\"", "1"]);
    assert_eq!(session.post(&json!([tick, tick])).send().await.status, 202);
    let ticks = |log: &[Request]| log.iter().filter(|r| r.method() == "notifications/tick").count() == 3;
    server.until("the notifications", ticks).await;
    assert!(server.log().iter().all(|request| !request.body.is_array()));
}

#[tokio::test]
async fn notifications_are_passed_on_in_order_as_they_are() {
    let server = server().await;
    let (_host, session) = opened(&server).await;
    let params = |no: usize| format!(r#"{{"no":{no},"x":1.50,"u":"\u00e9"}}"#);
    for no in 0..50 {
        let params = params(no);
        let body = format!(r#"{{"jsonrpc":"2.0","method":"notifications/own","params":{params}}}"#);
        assert_eq!(session.with_headers(session.http.post_bytes(body)).send().await.status, 202);
    }
    let own = |log: &[Request]| log.iter().filter(|r| r.method() == "notifications/own").count();
    server.until("all of them", |log| own(log) == 50).await;
    let log = server.log();
    let sent = log.iter().filter(|request| request.method() == "notifications/own");
    for (no, request) in sent.enumerate() {
        assert!(request.text.ends_with(&format!(r#""params":{}}}"#, params(no))), "{}", request.text);
        assert_eq!((request.header("mcp-session-id"), request.body.get("id")), (Some("s1"), None));
    }
}

/// A client that does not read costs no more than its stream may hold, does not stop the call, and
/// is told what it missed.
#[tokio::test]
async fn a_client_that_does_not_read_is_told_what_it_missed() {
    const LINES: usize = 2000;
    let server = Server::with_sessions(|request| {
        request.calls("t").then(|| {
            let line = |no: usize| json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": [no, "x".repeat(1000)]}});
            let go = |log: &[Request]| log.iter().any(|request| request.verb == "PROD");
            (0..LINES).fold(Reply::stream().until(go), |reply, no| reply.event(&line(no))).answer(request, &json!({"done": true}))
        })
    })
    .await;
    let host = Host::before(Backing::Memory, [server.url()], |builder| {
        builder.limits(Limits { stream_bytes: 100_000, ..Limits::default() })
    })
    .await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "t", json!({})).stream().await;
    let priming = stream.next().await.and_then(|frame| frame.id).unwrap();
    stream.cut();
    host.heard.once(&session, steadfast::SessionEventKind::Detached).await;
    server.prod();
    // The call ends although no client reads its stream: then its id is free.
    let ended = async { while session.request(1, "made/up", json!({})).send().await.status == 400 {} };
    crate::support::within("the end of the call", ended).await;
    let heard = session.resume(&priming).stream().await.messages().await;
    assert_eq!(heard.last().unwrap()["result"], json!({"done": true}));
    let lines: Vec<_> = heard.iter().filter_map(|message| message["params"]["data"][0].as_u64()).collect();
    let missing: u64 = heard.iter().filter_map(|message| message["params"]["data"]["dropped"].as_u64()).sum();
    assert!(missing > 0 && lines.is_sorted(), "in order");
    assert_eq!(lines.len() as u64 + missing, LINES as u64);
}

/// One URL serves clients with and without sessions; a request of the stateless revision is not
/// taken for one in a session.
#[tokio::test]
async fn sessions_are_no_matter_of_the_stateless_revision() {
    let server = server().await;
    let (host, session) = opened(&server).await;
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"_meta": meta}});
    let request = Http::to(&host)
        .post(&body)
        .header("MCP-Protocol-Version", "2026-07-28")
        .header("Mcp-Method", "initialize");
    let reply = session.with_headers(request).header("MCP-Protocol-Version", "2026-07-28").send().await;
    assert_eq!((reply.refusal(), reply.header("mcp-session-id")), ((404, -32601), None));
    assert_eq!(super::call(&session, 2, "t").await["result"], json!({}));
}
