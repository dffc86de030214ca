//! Readers that do not keep up. They stall no other client, and the server announces what it drops
//! for want of room.

use steadfast::Limits;
use steadfast::SessionEventKind::Detached;

use crate::support::session::said;
use crate::support::{Backing, Host, Session, Value, json};

crate::on_every_store!(
    an_unread_stream_stalls_no_client,
    overflow_drops_log_messages_and_says_so,
    overflow_drops_nothing_but_progress_and_log_messages,
    a_full_session_refuses_new_calls_and_keeps_the_old,
);

/// Logs, one per line: those that arrived, those that are said to be missing, and the rest.
#[derive(Debug, Default)]
struct Tally {
    logs: Vec<u64>,
    missing: u64,
    others: Vec<Value>,
}

fn tally(messages: Vec<Value>) -> Tally {
    let mut tally = Tally::default();
    for message in messages {
        let params = &message["params"];
        if params["logger"] == "steadfast" {
            assert_eq!(
                (&params["level"], &params["data"]["reason"]),
                (&json!("warning"), &json!("overflow"))
            );
            tally.missing += params["data"]["dropped"].as_u64().expect("a number");
        } else if message["method"] == "notifications/message" {
            let line = params["data"].as_str().and_then(|data| data.split(':').next()).expect("a line");
            tally.logs.push(line.parse().expect("a number"));
        } else {
            tally.others.push(message);
        }
    }
    tally
}

async fn an_unread_stream_stalls_no_client(backing: Backing) {
    const LINES: u64 = 3000;
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    // More than the sockets can take, and more than the stream may hold.
    let unread = session.tool("slow", "log", json!({"n": LINES, "bytes": 4000})).leave().await;
    let listener = session.listen().leave().await;
    for id in 0..50 {
        let text = id.to_string();
        assert_eq!(session.say(id, "echo", json!({"text": text})).await, text);
    }
    // The call does not wait for its reader.
    host.gates.reached("logged", 1).await;
    let Tally { logs, missing, others } = tally(unread.read().await.messages().await);
    assert_eq!(logs.len() as u64 + missing, LINES);
    assert!(logs.is_sorted(), "in order");
    assert_eq!(others.iter().map(said).collect::<Vec<_>>(), [format!("{LINES} lines")]);
    drop(listener);
}

fn small_streams(builder: crate::support::Builder) -> crate::support::Builder {
    builder.limits(Limits { stream_bytes: 20_000, ..Limits::default() })
}

async fn overflow_drops_log_messages_and_says_so(backing: Backing) {
    let host = Host::start(backing, small_streams).await;
    let session = Session::open(&host).await;
    let mut steps = vec!["gate:a".to_owned()];
    steps.extend((0..100).map(|_| "log:1000".to_owned()));
    steps.push("mark:all said".to_owned());
    let mut stream = session.tool(1, "steps", json!({"steps": steps})).stream().await;
    let priming = stream.next().await.and_then(|frame| frame.id).unwrap();
    stream.cut();
    host.heard.once(&session, Detached).await;
    host.gates.open("a");
    host.gates.reached("all said", 1).await;
    // The server tells the client each time it comes back.
    for _ in 0..2 {
        let frames = session.resume(&priming).stream().await.rest().await;
        let Tally { logs, missing, others } = tally(frames.iter().filter_map(|f| f.message()).collect());
        assert_eq!(others.iter().map(said).collect::<Vec<_>>(), ["done"]);
        assert_eq!(logs.len() as u64 + missing, 100);
        assert!((10..20).contains(&logs.len()), "as many as fit: {}", logs.len());
        assert_eq!(logs, (101 - logs.len() as u64..=100).collect::<Vec<_>>(), "the newest are kept");
    }
}

async fn overflow_drops_nothing_but_progress_and_log_messages(backing: Backing) {
    let host = Host::start(backing, small_streams).await;
    let session = Session::open(&host).await;
    // No client listens. Messages that belong to no call wait. When there is no room, the server
    // refuses them and drops none.
    let mut told = Vec::new();
    let padding = "x".repeat(1000);
    for no in 0..40 {
        let uri = format!("test:{no}/{padding}");
        let answer = session.call(no, "notify_later", json!({"uri": uri})).await;
        if answer["error"].is_null() {
            told.push(uri);
        }
    }
    assert!((10..20).contains(&told.len()), "{}", told.len());
    let mut listener = session.listen().stream().await;
    for uri in &told {
        assert_eq!(listener.message().await["params"]["uri"], *uri);
    }
    // An answer is never dropped, however big.
    let text = session.say("big", "big", json!({"bytes": 100_000})).await;
    assert_eq!(text.len(), 100_000);
}

async fn a_full_session_refuses_new_calls_and_keeps_the_old(backing: Backing) {
    let configure = |builder: crate::support::Builder| {
        builder.limits(Limits { session_bytes: 50_000, calls: 3, ..Limits::default() })
    };
    let host = Host::start(backing, configure).await;
    let session = Session::open(&host).await;
    let mut streams = Vec::new();
    for id in 0..3 {
        streams.push(session.tool(id, "gate", json!({"name": "a", "text": "kept"})).stream().await);
    }
    let refused = session.tool(3, "echo", json!({})).send().await;
    assert_eq!((refused.refusal(), refused.header("retry-after")), ((429, -32600), Some("1")));
    host.gates.open("a");
    for stream in &mut streams {
        assert_eq!(stream.messages().await.iter().map(said).collect::<Vec<_>>(), ["kept"]);
    }
    // Answers that no client has read fill the session.
    let mut stream =
        session.tool("big", "steps", json!({"steps": ["gate:b"], "text": "y".repeat(60_000)})).stream().await;
    let priming = stream.next().await.and_then(|frame| frame.id).unwrap();
    stream.cut();
    host.heard.once(&session, Detached).await;
    host.gates.open("b");
    let full = async { while session.tool("x", "echo", json!({})).send().await.status != 429 {} };
    crate::support::within("a full session", full).await;
    let messages = session.resume(&priming).stream().await.messages().await;
    assert_eq!(said(&messages[0]).len(), 60_000);
}
