//! Streams that break: resumed where that is possible, told where it is not, repeated only where
//! that does no harm.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::server::{Reply, Request, Server};
use crate::support::{Backing, Host, Session, Value, json};

use super::{call, calls, opened, reason};

/// The tools of a server: one that only looks, one that can be repeated, one that cannot, and one
/// that says nothing of it.
fn tools(request: &Request) -> Option<Reply> {
    let list = json!({"tools": [
        {"name": "look", "inputSchema": {}, "annotations": {"readOnlyHint": true}},
        {"name": "set", "inputSchema": {}, "annotations": {"idempotentHint": true}},
        {"name": "add", "inputSchema": {}, "annotations": {"readOnlyHint": false, "idempotentHint": false}},
        {"name": "plain", "inputSchema": {}},
    ]});
    (request.method() == "tools/list").then(|| Reply::result(request, &list))
}

/// How an answer breaks off, so that the gateway cannot know the outcome of the call.
#[derive(Clone, Copy, Debug)]
enum Break {
    HangUp,
    EmptyStream,
    HalfAnswer,
    BadGateway,
}

impl Break {
    const ALL: [Self; 4] = [Self::HangUp, Self::EmptyStream, Self::HalfAnswer, Self::BadGateway];

    fn reply(self) -> Reply {
        match self {
            Self::HangUp => Reply::default(),
            Self::EmptyStream => Reply::stream(),
            Self::HalfAnswer => Reply::chunked().chunk("data: {\"jsonrpc\":"),
            Self::BadGateway => Reply::new(502, "", "gone"),
        }
    }
}

/// A server whose first `failures` answers break. Gives the answer of the call, and how often the
/// server got it.
async fn broken(way: Break, failures: usize, method: &str, tool: &str) -> (Value, usize) {
    let left = AtomicUsize::new(failures);
    let wanted = method.to_owned();
    let server = Server::with_sessions(move |request| {
        if request.method() == wanted {
            let fails =
                left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
            return Some(if fails { way.reply() } else { Reply::result(request, &json!({"done": true})) });
        }
        tools(request)
    })
    .await;
    let (_host, session) = opened(&server).await;
    let params = json!({"name": tool, "uri": "test:a", "arguments": {}});
    let answer = session.request(1, method, params).send().await.answer();
    (answer, server.count(|request| request.method() == method))
}

#[tokio::test]
async fn what_does_no_harm_is_tried_once_more() {
    for way in Break::ALL {
        for (method, tool) in [
            ("tools/call", "look"),
            ("tools/call", "set"),
            ("resources/read", ""),
            ("prompts/get", "p"),
            ("resources/list", ""),
            ("ping", ""),
        ] {
            let (answer, count) = broken(way, 1, method, tool).await;
            assert_eq!(
                (&answer["result"], count),
                (&json!({"done": true}), 2),
                "{way:?} {method} {tool}: {answer}"
            );
        }
    }
}

#[tokio::test]
async fn and_only_once() {
    for way in Break::ALL {
        for (method, tool) in [("tools/call", "look"), ("resources/read", "")] {
            let (answer, count) = broken(way, usize::MAX, method, tool).await;
            let expect = ("outcome_unknown".to_owned(), true);
            assert_eq!((reason(&answer), count), (expect, 2), "{way:?} {method} {tool}: {answer}");
        }
    }
}

#[tokio::test]
async fn what_may_do_harm_is_not_repeated() {
    for way in Break::ALL {
        for (method, tool) in
            [("tools/call", "add"), ("tools/call", "plain"), ("tools/call", "unheard of"), ("made/up", "")]
        {
            let (answer, count) = broken(way, usize::MAX, method, tool).await;
            assert_eq!(
                (reason(&answer), count),
                (("outcome_unknown".to_owned(), false), 1),
                "{way:?} {method} {tool}: {answer}"
            );
        }
    }
}

/// The gateway cannot know whether the call is idempotent, because the server does not list its
/// tools: the gateway reports an error to the client and starts the next call.
#[tokio::test]
async fn a_server_that_does_not_name_its_tools_holds_up_no_call() {
    let server = Server::with_sessions(|request| match request.method() {
        "tools/list" => Some(Reply::stream().hang()),
        "tools/call" if request.calls("breaks") => Some(Reply::default()),
        "tools/call" => Some(Reply::result(request, &json!({}))),
        _ => None,
    })
    .await;
    let host = Host::before(Backing::Memory, [server.url()], |builder| {
        builder.upstream(|config| {
            config.timeouts.control = Duration::from_millis(500);
            config.calls.concurrency = std::num::NonZeroUsize::new(1).into();
        })
    })
    .await;
    let session = Session::open(&host).await;
    assert_eq!(reason(&call(&session, 1, "breaks").await), ("outcome_unknown".to_owned(), false));
    assert_eq!(call(&session, 2, "works").await["result"], json!({}));
    let lists = server.count(|request| request.method() == "tools/list");
    assert_eq!((calls(&server, "breaks"), lists), (1, 1));
}

/// What the server said of a tool counts until it says that its tools have changed, on whatever
/// stream.
#[tokio::test]
async fn a_tool_that_has_changed_is_asked_about_again() {
    let lists = AtomicUsize::new(0);
    let server = Server::with_sessions(move |request| match request.method() {
        "tools/list" => {
            let safe = lists.fetch_add(1, Ordering::SeqCst) == 0;
            let list =
                json!({"tools": [{"name": "t", "inputSchema": {}, "annotations": {"readOnlyHint": safe}}]});
            Some(Reply::result(request, &list))
        }
        "tools/call" if request.calls("change") => {
            let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
            Some(Reply::stream().event(&changed).answer(request, &json!({})))
        }
        "tools/call" => Some(Reply::default()),
        _ => None,
    })
    .await;
    let (_host, session) = opened(&server).await;
    session.request(1, "tools/list", json!({})).send().await.answer();
    call(&session, 2, "change").await;
    assert_eq!(reason(&call(&session, 3, "t").await), ("outcome_unknown".to_owned(), false));
    assert_eq!(calls(&server, "t"), 1);
}

fn event(id: &str, message: &Value) -> String {
    format!("id: {id}\ndata: {message}\n\n")
}

/// The stream breaks after each event; the rest is fetched from where it stopped, after as long as
/// the server wants.
#[tokio::test]
async fn a_broken_answer_is_fetched_from_where_it_stopped() {
    let progress = |no: u32| json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": no}});
    let at = std::sync::Arc::new(std::sync::Mutex::new(Value::Null));
    let server = Server::with_sessions(move |request| {
        match (request.verb.as_str(), request.header("last-event-id")) {
            ("POST", _) if request.calls("t") => {
                *at.lock().unwrap() = request.body["id"].clone();
                Some(Reply::chunked().chunk(&format!("retry: 80\n{}", event("a", &progress(1)))))
            }
            ("GET", Some("a")) => {
                Some(Reply::chunked().chunk(&event("b", &progress(2))).chunk("id: b2\ndata:\n\n"))
            }
            // A moment's weakness.
            ("GET", Some("b2")) if request.verb == "GET" => {
                let id = at.lock().unwrap().clone();
                Some(
                    Reply::chunked()
                        .chunk(&event("c", &json!({"jsonrpc": "2.0", "id": id, "result": {"whole": true}})))
                        .end(),
                )
            }
            _ => None,
        }
    })
    .await;
    let (_host, session) = opened(&server).await;
    let begun = tokio::time::Instant::now();
    let messages = session.tool(1, "t", json!({})).send().await.messages();
    let took = begun.elapsed();
    assert_eq!(
        messages,
        [progress(1), progress(2), json!({"jsonrpc": "2.0", "id": 1, "result": {"whole": true}})]
    );
    assert!(took >= Duration::from_millis(160), "it came back too soon: {took:?}");
    assert_eq!(calls(&server, "t"), 1, "it was not called again");
    let resumed: Vec<_> = server.log().into_iter().filter(|r| r.header("last-event-id").is_some()).collect();
    assert_eq!(resumed.len(), 2);
    assert!(resumed.iter().all(|request| request.header("mcp-session-id") == Some("s1")));
}

/// Refused resumptions and servers that are away for good end in one explicit error, without a
/// second call.
#[tokio::test]
async fn what_cannot_be_resumed_has_an_unknown_outcome() {
    for status in [400, 404, 405, 500, 503] {
        let server = Server::with_sessions(move |request| match request.verb.as_str() {
            "POST" if request.calls("add") => Some(Reply::chunked().chunk("id: 7\nretry: 1\ndata:\n\n")),
            "GET" if request.header("last-event-id").is_some() => Some(Reply::status(status)),
            _ => tools(request),
        })
        .await;
        let (_host, session) = opened(&server).await;
        let answer = call(&session, 1, "add").await;
        assert_eq!(reason(&answer), ("outcome_unknown".to_owned(), false), "{status}: {answer}");
        assert_eq!(calls(&server, "add"), 1, "{status}");
    }
}

/// A call that is cancelled while it waits for the rest of its answer ends, and exactly it is
/// cancelled at the server.
#[tokio::test]
async fn cancelling_reaches_exactly_that_call() {
    let server =
        Server::with_sessions(|request| (request.method() == "tools/call").then(|| Reply::stream().hang()))
            .await;
    let (_host, session) = opened(&server).await;
    let mut streams = Vec::new();
    for (id, tool) in [(json!(7), "a"), (json!("7"), "b"), (json!(3), "c")] {
        let mut stream = session.tool(id, tool, json!({})).stream().await;
        assert!(stream.next().await.unwrap().is_priming());
        streams.push(stream);
        server.until(tool, |log| log.iter().any(|request| request.calls(tool))).await;
    }
    // Neither of these is in flight: the server has calls of those ids, and they are others.
    for id in [json!(2), json!(4), json!("3")] {
        assert_eq!(session.cancel(id).await.status, 202);
    }
    assert_eq!(session.cancel("7").await.status, 202);
    assert_eq!(streams[1].messages().await, Vec::<Value>::new());
    let is_cancelled = |request: &Request| request.method() == "notifications/cancelled";
    server.until("the cancellation", |log| log.iter().any(is_cancelled)).await;
    // Whatever was sent before has arrived before this.
    assert_eq!(session.notify("notifications/after", json!({})).await.status, 202);
    server.until("what came after", |log| log.iter().any(|r| r.method() == "notifications/after")).await;
    let log = server.log();
    let of_b = &log.iter().find(|request| request.calls("b")).unwrap().body["id"];
    let told: Vec<_> = log.iter().filter(|request| is_cancelled(request)).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(&told[0].body["params"]["requestId"], of_b);
    assert_eq!(told[0].header("mcp-session-id"), Some("s1"));
    assert!(streams[0].is_quiet().await && streams[2].is_quiet().await);
}
