//! Every bound, reached with small numbers: the refusal names it, and has changed nothing.

use std::time::Duration;

use serde_json::{Value, json};
use steadfast::{Builder, Limits};
use steadfast_http::listen;

use crate::on_every_store;
use crate::support::{Backing, Host, Http, Reply, Session, Stream, TestHandler, session, within};

async fn host(
    backing: Backing,
    configure: impl Fn(Builder<TestHandler>) -> Builder<TestHandler> + Send + Sync + 'static,
) -> Host {
    Host::start(backing, configure).await
}

async fn limited(backing: Backing, limits: Limits) -> Host {
    Host::start(backing, move |builder| builder.limits(limits.clone())).await
}

/// A refusal that tells which limit it was and when to come back.
fn assert_refused(reply: &Reply, status: u16, code: i64, limit: &str) {
    assert_eq!(reply.refusal(), (status, code), "{}", reply.text());
    let message = reply.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains(limit), "{message}");
    let waiting_helps = matches!(status, 429 | 503);
    assert_eq!(reply.header("retry-after"), waiting_helps.then_some("1"), "{message}");
    assert!(!reply.text().contains("\"id\":null"), "{}", reply.text());
}

/// The number of the stream that the next call gets.
async fn next_stream(session: &Session) -> u64 {
    let reply = session.tool("probe", "echo", json!({"text": "x"})).send().await;
    let frames = reply.frames();
    let id = frames.last().and_then(|frame| frame.id.as_deref()).expect("an event id");
    id.split('-').next().and_then(|stream| stream.parse().ok()).expect("a stream's number")
}

async fn usage(host: &Host) -> steadfast::store::Usage {
    host.server().service().engine().store().usage().await.expect("the store works")
}

async fn sessions_of(host: &Host) -> u64 {
    usage(host).await.sessions
}

/// A call that waits at the gate.
async fn busy(session: &Session, id: &str) -> Stream {
    session.tool(id, "gate", json!({"name": "gate"})).stream().await
}

async fn open_as(host: &Host, name: &str) -> Reply {
    let open = Http::to(host).post(&session::initialize(session::REVISION));
    open.header("Authorization", &format!("Bearer {name}")).send().await
}

async fn sessions(backing: Backing) {
    let host = limited(backing, Limits { sessions: 2, ..Limits::default() }).await;
    let (first, second) = (Session::open(&host).await, Session::open(&host).await);
    let _in_use = (busy(&first, "busy").await, busy(&second, "busy").await);
    let refused = Http::to(&host).post(&session::initialize(session::REVISION)).send().await;
    assert_refused(&refused, 503, -32603, "sessions");
    assert_eq!(refused.json()["id"], 0);
    assert_eq!(refused.header("mcp-session-id"), None);
    assert_eq!(sessions_of(&host).await, 2);
    // One goes, one may come.
    assert_eq!(first.delete().send().await.status, 204);
    Session::open(&host).await;
    assert_eq!(sessions_of(&host).await, 2);
}

async fn sessions_per_principal(backing: Backing) {
    let limits = Limits { sessions_per_principal: 1, ..Limits::default() };
    let host =
        host(backing, move |builder| builder.limits(limits.clone()).principal(super::world::principal)).await;
    let opened = open_as(&host, "bob").await;
    let id = opened.header("mcp-session-id").expect("a session id").to_owned();
    let listen = Http::to(&host).get().header("Authorization", "Bearer bob").header("Mcp-Session-Id", &id);
    let _in_use = listen.header("MCP-Protocol-Version", session::REVISION).stream().await;
    assert_refused(&open_as(&host, "bob").await, 429, -32600, "sessions_per_principal");
    assert_eq!(sessions_of(&host).await, 1);
    assert_eq!(open_as(&host, "carol").await.status, 200);
}

async fn calls(backing: Backing) {
    let host = limited(backing, Limits { calls: 2, ..Limits::default() }).await;
    let session = Session::at(&host, "2025-03-26").await;
    let mut one = busy(&session, "one").await;
    let batch =
        json!([session::tool_call("two", "echo", json!({})), session::tool_call("three", "echo", json!({}))]);
    assert_refused(&session.post(&batch).send().await, 429, -32600, "calls");
    let mut two = busy(&session, "two").await;
    let refused = session.tool("three", "echo", json!({})).send().await;
    assert_refused(&refused, 429, -32600, "calls");
    assert_eq!(refused.json()["id"], "three");
    host.gates.open("gate");
    assert_eq!((one.messages().await.len(), two.messages().await.len()), (1, 1));
    assert_eq!(next_stream(&session).await, 3);
}

async fn streams(backing: Backing) {
    let host = limited(backing, Limits { streams: 2, ..Limits::default() }).await;
    let session = Session::open(&host).await;
    let mut open = vec![busy(&session, "one").await, busy(&session, "two").await];
    assert_refused(&session.tool("three", "echo", json!({})).send().await, 429, -32600, "streams");
    host.gates.open("gate");
    for stream in &mut open {
        assert_eq!(stream.messages().await.len(), 1);
    }
    // What has been read makes room. The store hears of it with the next command.
    assert_eq!(next_stream(&session).await, 3);
}

async fn standalone_streams(backing: Backing) {
    let host = limited(backing, Limits { standalone_streams: 2, ..Limits::default() }).await;
    let session = Session::open(&host).await;
    let mut first = session.listen().stream().await;
    let _second = session.listen().stream().await;
    assert_refused(&session.listen().send().await, 429, -32600, "standalone_streams");
    // Stream 0 is the first, stream 1 the second, and the refused one has none.
    assert_eq!(next_stream(&session).await, 2);
    assert!(first.next().await.is_some_and(|frame| frame.is_priming()));
}

async fn asks(backing: Backing) {
    let host = Host::start(backing, |builder| {
        builder.limits(Limits { server_requests: 1, ..Limits::default() }).queued_server_requests(1)
    })
    .await;
    let session = Session::open(&host).await;
    let ask = |id: &str| session.tool(id, "ask", json!({"method": "roots/list"}));
    let mut first = ask("first").stream().await;
    assert_eq!(first.message().await["id"], "ask-0");
    // One waits for its turn: what its call says later overtakes it. Another one is beyond the
    // bound.
    let mut second = session.tool("second", "ask_and_tell", json!({"n": 1})).stream().await;
    assert_eq!(second.message().await["method"], "notifications/progress");
    let third = ask("third").send().await;
    assert_eq!(third.messages().len(), 1, "nothing was asked");
    let error = third.answer()["error"]["message"].to_string();
    assert!(error.contains("`waiting_asks`"), "{error}");
    assert_eq!(session.answer(&json!("ask-0"), json!({"roots": []})).await.status, 202);
    assert!(first.message().await["result"].is_object());
    assert_eq!(second.message().await["id"], "ask-1");
}

async fn delivered_streams(backing: Backing) {
    let host = limited(backing, Limits { delivered_streams: 1, ..Limits::default() }).await;
    let session = Session::open(&host).await;
    let first = session.tool(1, "echo", json!({})).send().await.frames()[0].id.clone().expect("an event id");
    let resumed = |reply: &Reply| (reply.status, reply.text().contains("result"));
    assert_eq!(resumed(&session.resume(&first).send().await), (200, true));
    for id in 2..5 {
        session.call(id, "echo", json!({})).await;
    }
    let gone = session.resume(&first).send().await;
    assert_eq!(gone.refusal(), (400, -32600));
    assert!(gone.text().contains("not kept any more"), "{}", gone.text());
}

async fn stream_bytes(backing: Backing) {
    let host = limited(backing, Limits { stream_bytes: 2_000, ..Limits::default() }).await;
    let session = Session::open(&host).await;
    // A notification that cannot be dropped is refused, and the tool hears of it.
    let answer = session.call(1, "notify_later", json!({"uri": "x".repeat(3_000)})).await;
    assert!(answer["error"]["message"].to_string().contains("`stream_bytes`"), "{answer}");
    // The server drops log messages, tells the reader so, and keeps the answer.
    let steps = json!({"steps": ["log:900", "log:900", "log:900", "gate:full"], "text": "whole"});
    let mut stream = session.tool(2, "steps", steps).stream().await;
    let start = stream.next().await.and_then(|frame| frame.id).expect("an event id");
    host.gates.reached("full", 1).await;
    stream.cut();
    host.gates.open("full");
    let rest = session.resume(&start).send().await;
    let overflow = |message: &Value| message["params"]["data"]["reason"] == "overflow";
    assert!(rest.messages().iter().any(overflow), "{}", rest.text());
    assert_eq!(session::said(&rest.answer()), "whole");
}

async fn session_bytes(backing: Backing) {
    let host = limited(backing, Limits { session_bytes: 2_000, ..Limits::default() }).await;
    let session = Session::open(&host).await;
    let text = "x".repeat(3_000);
    let mut stream = session.tool(1, "gate", json!({"name": "gate", "text": text})).stream().await;
    let start = stream.next().await.and_then(|frame| frame.id).expect("an event id");
    stream.cut();
    host.heard.once(&session, steadfast::SessionEventKind::Detached).await;
    host.gates.open("gate");
    let stored = async {
        while usage(&host).await.bytes < 3_000 {
            tokio::task::yield_now().await;
        }
    };
    within("the unread answer", stored).await;
    assert_refused(&session.tool(2, "echo", json!({})).send().await, 429, -32600, "session_bytes");
    assert_eq!(session::said(&session.resume(&start).send().await.answer()), text);
    // Once it has been read it makes room: when the server has noticed, which may be later than its
    // client.
    let taken = async {
        while session.tool("early", "echo", json!({"text": "x"})).send().await.status == 429 {
            tokio::task::yield_now().await;
        }
    };
    within("room for another call", taken).await;
    assert_eq!(next_stream(&session).await, 3);
}

/// Makes a call in this session and leaves its answer unread. Returns the event id from which a
/// client can read the answer.
async fn unread(host: &Host, session: &Session, text: &str) -> String {
    let gate = json!({"name": session.id, "text": text});
    let mut stream = session.tool("unread", "gate", gate).stream().await;
    let start = stream.next().await.and_then(|frame| frame.id).expect("an event id");
    stream.cut();
    host.heard.once(session, steadfast::SessionEventKind::Detached).await;
    host.gates.open(&session.id);
    let stored = async {
        while usage(host).await.bytes < text.len() as u64 {
            tokio::task::yield_now().await;
        }
    };
    within("the unread answer", stored).await;
    start
}

/// What was accepted goes on: a call is answered, the client's answer to a request is taken, what
/// waits can be read.
async fn everything_else_works(host: &Host, session: &Session, mut asks: Stream) {
    let mut gated = asks.message().await;
    assert_eq!(gated["method"], "roots/list");
    assert_eq!(session.answer(&gated["id"].take(), json!({"roots": []})).await.status, 202);
    assert!(asks.message().await["result"].is_object());
    assert_eq!(session.cancel("busy").await.status, 202);
    assert_eq!(session.delete().send().await.status, 204);
    assert!(usage(host).await.sessions > 0, "the others are as they were");
}

async fn store_bytes(backing: Backing) {
    let host = limited(backing, Limits { store_bytes: 4_000, ..Limits::default() }).await;
    let (first, second) = (Session::open(&host).await, Session::open(&host).await);
    let asks = second.tool("ask", "ask", json!({"method": "roots/list"})).stream().await;
    let _busy = busy(&second, "busy").await;
    let text = "x".repeat(5_000);
    let start = unread(&host, &first, &text).await;
    let initialize = || Http::to(&host).post(&session::initialize(session::REVISION));
    if matches!(backing, Backing::Redis | Backing::Postgres) {
        // These have bounds of their own.
        assert_eq!(initialize().send().await.status, 200);
        assert_eq!(next_stream(&second).await, 3);
        return;
    }
    let refused = initialize().send().await;
    assert_refused(&refused, 503, -32603, "store_bytes");
    assert!(refused.text().contains("Try again later."), "{}", refused.text());
    assert_refused(&second.tool(2, "echo", json!({})).send().await, 503, -32603, "store_bytes");
    let note = second.notify("notifications/roots/list_changed", json!({})).await;
    assert_refused(&note, 503, -32603, "store_bytes");
    everything_else_works(&host, &second, asks).await;
    // Once the answer has been read it gives way: when the server has noticed, which may be later
    // than its client.
    assert_eq!(session::said(&first.resume(&start).send().await.answer()), text);
    let taken = async {
        while first.tool("early", "echo", json!({"text": "x"})).send().await.status == 503 {
            tokio::task::yield_now().await;
        }
    };
    within("room for another call", taken).await;
    assert_eq!(initialize().send().await.status, 200);
}

async fn principal_bytes(backing: Backing) {
    if backing != Backing::Memory {
        return;
    }
    let limits = Limits { principal_bytes: 4_000, ..Limits::default() };
    let host =
        host(backing, move |builder| builder.limits(limits.clone()).principal(super::world::principal)).await;
    let own = Session::open(&host).await;
    unread(&host, &own, &"x".repeat(5_000)).await;
    assert_refused(&own.tool(2, "echo", json!({})).send().await, 429, -32600, "principal_bytes");
    let note = own.notify("notifications/roots/list_changed", json!({})).await;
    assert_refused(&note, 429, -32600, "principal_bytes");
    let again = Http::to(&host).post(&session::initialize(session::REVISION)).send().await;
    assert_refused(&again, 429, -32600, "principal_bytes");
    assert_eq!(open_as(&host, "carol").await.status, 200);
}

async fn state(backing: Backing) {
    for limits in
        [Limits { state_entries: 0, ..Limits::default() }, Limits { state_bytes: 5, ..Limits::default() }]
    {
        let host = limited(backing, limits).await;
        let session = Session::open(&host).await;
        let answer = session.call(1, "count", json!({})).await;
        assert!(answer["error"]["message"].to_string().contains("state has reached its limit"), "{answer}");
        assert_eq!(next_stream(&session).await, 2);
    }
}

async fn heads_and_bodies(backing: Backing) {
    let host = host(backing, |builder| {
        builder
            .max_request_bytes(1_000)
            .max_header_bytes(500)
            .max_batch(2)
            .max_initialize_bytes(200)
            .body_timeout(Duration::from_millis(20))
    })
    .await;
    let session = Session::at(&host, "2025-03-26").await;
    let ping = json!({"jsonrpc": "2.0", "id": "p", "method": "ping"});
    let pad = |bytes: usize| format!("{ping}{}", " ".repeat(bytes - ping.to_string().len()));
    let post = |body: String| session.with_headers(session.http.post_bytes(body));
    assert_eq!(post(pad(1_000)).send().await.status, 200);
    assert_refused(&post(pad(1_001)).send().await, 413, -32600, "max_request_bytes");
    let long = session.post(&ping).header("X-Long", &"x".repeat(500)).send().await;
    assert_refused(&long, 431, -32600, "The headers are larger than");
    let batch = |count: usize| Value::Array(vec![json!({"jsonrpc": "2.0", "method": "a"}); count]);
    assert_eq!(session.post(&batch(2)).send().await.status, 202);
    let refused = session.post(&batch(3)).send().await;
    assert_eq!(refused.refusal(), (400, -32600));
    assert!(refused.text().contains("more than 2"), "{}", refused.text());
    let mut large = session::initialize("2025-11-25");
    large["params"]["clientInfo"]["name"] = "x".repeat(200).into();
    let refused = session.http.post(&large).send().await;
    assert_refused(&refused, 413, -32600, "parameters of `initialize` are larger than");
    assert_eq!(refused.json()["id"], 0);
    // A body of which the end does not come.
    let half = session.post(&ping).header("Content-Length", "900").send().await;
    assert_refused(&half, 408, -32600, "body_timeout");
    assert_eq!(sessions_of(&host).await, 1);
    assert_eq!(next_stream(&session).await, 2);
}

/// The accept loop's own bounds: a head that does not come, and a place that is taken.
async fn connections(backing: Backing) {
    let host = host(backing, |builder| builder).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let limits = listen::Limits {
        connections: 1,
        header_timeout: Duration::from_millis(20),
        ..listen::Limits::default()
    };
    let service = host.server().service();
    let serving = tokio::spawn(listen::serve(listener, service, limits, std::future::pending()));
    let http = Http::at(address);
    // Half a head holds the only place until its time is over; then the next is served.
    let slow = http.send_bytes(b"GET /mcp HTTP/1.1\r\nHost: local", "GET");
    let next = http.post(&session::initialize(session::REVISION));
    let (slow, next) = within("both replies", async { tokio::join!(slow, next.send()) }).await;
    assert!(slow.is_err() || slow.is_ok_and(|reply| reply.status == 408));
    assert_eq!(next.status, 200);
    serving.abort();
}

on_every_store!(
    sessions,
    sessions_per_principal,
    calls,
    streams,
    standalone_streams,
    asks,
    delivered_streams,
    stream_bytes,
    session_bytes,
    store_bytes,
    principal_bytes,
    state,
    heads_and_bodies,
    connections,
);

/// A body that no socket buffer holds, from a client that reads nothing before it has sent all.
#[tokio::test]
async fn a_very_large_body_is_refused_and_its_client_hears_why() {
    let host = Host::plain(Backing::Memory).await;
    let session = Session::open(&host).await;
    for framing in ["Content-Length", "Transfer-Encoding"] {
        let mut body = " ".repeat(12 << 20).into_bytes();
        let mut request = session.with_headers(session.http.post_bytes(Vec::new()));
        if framing == "Transfer-Encoding" {
            body = [format!("{:x}\r\n", body.len()).as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
            request = request.header(framing, "chunked");
        }
        let refused = request.body(body).leave().await;
        assert_eq!(refused.status().await, 413, "{framing}");
    }
}
