//! What belongs to no call: standalone streams, and what goes where.

use std::collections::BTreeSet;

use steadfast::SessionEventKind::Detached;

use crate::support::{Backing, Frame, Host, Session, Stream, Value, json};

crate::on_every_store!(
    a_message_without_a_listener_waits,
    what_a_listener_got_is_not_sent_to_the_next,
    listeners_do_not_throw_each_other_out,
    each_message_goes_to_exactly_one_stream,
    a_listener_that_comes_back_gets_the_rest,
    answers_never_go_to_a_listener,
    only_the_revision_that_knows_it_is_primed,
    event_ids_are_unique_in_a_session,
    streams_say_that_they_must_not_be_buffered,
);

async fn tell(session: &Session, uri: &str) {
    session.call(uri, "notify_later", json!({"uri": uri})).await;
}

fn uris(messages: &[Value]) -> Vec<&str> {
    messages.iter().filter_map(|message| message["params"]["uri"].as_str()).collect()
}

async fn a_message_without_a_listener_waits(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    tell(&session, "test:a").await;
    tell(&session, "test:b").await;
    let mut stream = session.listen().stream().await;
    for uri in ["test:a", "test:b"] {
        assert_eq!(stream.message().await["params"]["uri"], uri);
    }
}

async fn what_a_listener_got_is_not_sent_to_the_next(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut first = session.listen().stream().await;
    tell(&session, "test:a").await;
    let got = first.event().await;
    first.cut();
    host.heard.once(&session, Detached).await;
    tell(&session, "test:b").await;
    let mut second = session.listen().stream().await;
    assert_eq!(second.message().await["params"]["uri"], "test:b");
    // A client that resumes from the event id gets the message.
    let mut third = session.resume(&got.id.unwrap()).stream().await;
    assert_eq!(third.message().await["params"]["uri"], "test:b");
    assert_eq!(second.rest().await, [], "resuming a stream ends its older connection");
}

/// The stream that a connection reads, by the id of its priming event.
async fn stream_of(stream: &mut Stream) -> String {
    let id = stream.next().await.and_then(|frame| frame.id).expect("a priming event");
    id.split('-').next().expect("the number of a stream").to_owned()
}

async fn listeners_do_not_throw_each_other_out(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut listeners = Vec::new();
    for _ in 0..3 {
        listeners.push(session.listen().stream().await);
    }
    let mut streams = BTreeSet::new();
    for listener in &mut listeners {
        streams.insert(stream_of(listener).await);
    }
    assert_eq!(streams.len(), 3, "each has a stream of its own");
    tell(&session, "test:a").await;
    assert_eq!(listeners[2].message().await["params"]["uri"], "test:a", "the newest gets it");
    assert_eq!(session.delete().send().await.status, 204);
    for (i, listener) in listeners.iter_mut().enumerate() {
        assert_eq!(listener.messages().await, Vec::<Value>::new(), "listener {i}");
    }
}

async fn each_message_goes_to_exactly_one_stream(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut older = session.listen().stream().await;
    let mut newer = session.listen().stream().await;
    let steps = json!({"steps": ["progress", "log:3", "gate:a", "progress"]});
    let mut post = session.tool(1, "steps", steps).stream().await;
    for uri in ["test:a", "test:b", "test:c"] {
        tell(&session, uri).await;
    }
    host.gates.open("a");
    let methods: Vec<_> = post.messages().await.iter().map(|message| message["method"].clone()).collect();
    let expect = ["notifications/progress", "notifications/message", "notifications/progress"];
    assert_eq!(methods[..3], expect.map(Value::from));
    assert_eq!(methods[3], Value::Null, "the answer is the last");
    assert_eq!(methods.len(), 4);
    for uri in ["test:a", "test:b", "test:c"] {
        assert_eq!(newer.message().await["params"]["uri"], uri);
    }
    assert_eq!(session.delete().send().await.status, 204);
    assert_eq!(newer.messages().await, Vec::<Value>::new());
    assert_eq!(older.messages().await, Vec::<Value>::new());
}

async fn a_listener_that_comes_back_gets_the_rest(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut stream = session.listen().stream().await;
    let mut expect = Vec::new();
    let mut seen = Vec::new();
    for round in 1..=5 {
        let (a, b) = (format!("test:{round}/a"), format!("test:{round}/b"));
        tell(&session, &a).await;
        let event = stream.event().await;
        stream.cut();
        host.heard.times(&session, Detached, round).await;
        tell(&session, &b).await;
        seen.push(event.message().unwrap());
        stream = session.resume(&event.id.unwrap()).stream().await;
        seen.push(stream.message().await);
        expect.extend([a, b]);
    }
    assert_eq!(uris(&seen), expect);
}

async fn answers_never_go_to_a_listener(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut post = session.tool(1, "gate", json!({"name": "a", "text": "mine"})).stream().await;
    let priming = post.next().await.and_then(|frame| frame.id).unwrap();
    post.cut();
    host.heard.once(&session, Detached).await;
    let mut listener = session.listen().stream().await;
    host.gates.open("a");
    // The call is over once its stream is.
    assert_eq!(session.resume(&priming).stream().await.messages().await.len(), 1);
    tell(&session, "test:after").await;
    assert_eq!(listener.message().await["params"]["uri"], "test:after");
    assert_eq!(session.delete().send().await.status, 204);
    assert_eq!(listener.messages().await, Vec::<Value>::new());
}

async fn only_the_revision_that_knows_it_is_primed(backing: Backing) {
    let host = Host::plain(backing).await;
    for (revision, primed) in [("2025-03-26", false), ("2025-06-18", false), ("2025-11-25", true)] {
        let session = Session::at(&host, revision).await;
        let frames = session.tool(1, "progress", json!({"n": 1})).send().await.frames();
        assert_eq!(
            frames.iter().filter(|frame| frame.is_priming()).count(),
            usize::from(primed),
            "{revision}"
        );
        assert_eq!(frames[0].is_priming(), primed, "{revision}");
        assert_eq!(frames.iter().filter_map(Frame::message).count(), 2, "{revision}");
        let first = session.listen().stream().await.next().await.unwrap();
        assert_eq!(first.is_priming(), primed, "{revision}");
        // Nothing is left of this one, so the client is not asked to come again.
        let resumed = session.resume(frames.last().unwrap().id.as_deref().unwrap()).send().await.frames();
        assert_eq!(resumed.iter().filter(|frame| frame.id.is_some()).count(), 0, "{revision}");
    }
}

/// A gateway that was restarted cannot know what the server said meanwhile, and has the client look
/// at everything.
fn tells_of_a_gap(frame: &Frame) -> bool {
    frame.data.as_deref().is_some_and(|data| data.contains("list_changed"))
}

async fn next_but_for_gaps(stream: &mut Stream) -> Frame {
    loop {
        let event = stream.event().await;
        if !tells_of_a_gap(&event) {
            return event;
        }
    }
}

async fn event_ids_are_unique_in_a_session(backing: Backing) {
    let mut host = Host::plain(backing).await;
    let mut session = Session::open(&host).await;
    let mut ids = Vec::new();
    for round in 0..4u64 {
        // A restart does not begin anew.
        if backing.keeps() && round == 2 {
            host.restart().await;
            session = session.via(&host);
        }
        let mut stream = session.listen().stream().await;
        ids.extend(stream.next().await.and_then(|frame| frame.id).filter(|_| round == 0));
        tell(&session, &format!("test:{round}")).await;
        ids.extend(next_but_for_gaps(&mut stream).await.id);
        stream.cut();
        host.heard.times(&session, Detached, round as usize + 1).await;
        for call in 0..3 {
            let reply = session.tool(call, "progress", json!({"n": 2})).send().await;
            ids.extend(
                reply
                    .frames()
                    .into_iter()
                    .filter(|frame| !tells_of_a_gap(frame))
                    .filter_map(|frame| frame.id),
            );
        }
    }
    let unique: BTreeSet<_> = ids.iter().collect();
    assert_eq!(unique.len(), ids.len());
    assert_eq!(ids.len(), 1 + 4 + 4 * 3 * 4);
}

async fn streams_say_that_they_must_not_be_buffered(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    for stream in [session.listen().stream().await, session.tool(1, "echo", json!({})).stream().await] {
        let header =
            |name: &str| stream.headers.iter().find(|(known, _)| known == name).map(|(_, v)| v.clone());
        assert_eq!(header("x-accel-buffering").as_deref(), Some("no"));
        assert!(header("cache-control").unwrap().contains("no-cache"));
        assert_eq!(header("mcp-session-id"), Some(session.id.clone()));
    }
}
