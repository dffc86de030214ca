//! S4: a connection cut anywhere. The client that comes back gets exactly the rest, once, with the
//! same ids and bytes.

use std::time::Duration;

use steadfast::SessionEventKind::Detached;

use crate::support::session::said;
use crate::support::sse::{parse_frames, resumed};
use crate::support::{Backing, Frame, Host, Session, Value, json};

crate::on_every_store!(
    cut_at_every_byte_after_the_answer_was_produced,
    cut_at_every_event_while_the_call_runs_and_resumed_before_it_goes_on,
    cut_at_every_event_while_the_call_runs_and_resumed_after_it_is_done,
    a_finished_stream_can_be_resumed_again_and_again,
    a_finished_stream_is_gone_after_its_retention,
    the_newest_connection_wins,
    a_stream_resumed_over_and_over_while_it_is_written,
    an_event_id_leads_to_its_own_stream_only,
    a_batch_is_resumed_as_one_stream,
    a_resumed_stream_repeats_the_id_that_it_resumes_from,
    a_stream_of_an_older_revision_is_resumed_with_nothing_in_front,
);

/// What a client has after a run: whole frames, without comments, with the number of the stream
/// taken out.
fn story(bytes: &[u8]) -> String {
    let frames = parse_frames(bytes);
    tell(&frames)
}

fn tell(frames: &[Frame]) -> String {
    let mut story = String::new();
    for frame in frames.iter().filter(|frame| frame.comment.is_none()) {
        let raw = String::from_utf8(frame.raw.clone()).expect("text");
        match &frame.id {
            Some(id) => {
                let (stream, rest) = id.split_once('-').expect("a stream and more");
                story.push_str(&raw.replacen(&format!("id: {stream}-{rest}"), &format!("id: S-{rest}"), 1));
            }
            None => story.push_str(&raw),
        }
    }
    story
}

fn last_id(bytes: &[u8]) -> Option<String> {
    parse_frames(bytes).into_iter().filter_map(|frame| frame.id).next_back()
}

/// The id of the priming event of the stream that comes after the stream of `id`.
fn next_stream(id: &str) -> String {
    let mut parts = id.split('-');
    let (stream, _seq, tag) = (parts.next().unwrap(), parts.next(), parts.next().unwrap());
    format!("{}-0-{tag}", stream.parse::<u64>().unwrap() + 1)
}

fn steps(steps: &[&str]) -> Value {
    json!({"steps": steps, "text": "line one\nline two, ünïcode"})
}

async fn cut_at_every_byte_after_the_answer_was_produced(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let call = || session.tool(1, "steps", steps(&["progress", "log:10", "progress"]));
    let whole = call().send().await;
    let (reference, length) = (story(&whole.body), whole.body.len());
    assert_eq!(whole.frames().len(), 5);
    let priming = tell(&whole.frames()[..1]);
    let mut before = last_id(&whole.body).unwrap();
    for at in 0..=length + 2 {
        // The call ends before the connection does: its whole stream is read, and then the client
        // forgets a part.
        let mut stream = call().stream().await;
        stream.rest().await;
        assert_eq!(story(stream.raw()), reference);
        let after = last_id(stream.raw()).unwrap();
        let seen = stream.cut_at(at);
        // Without the priming event a client cannot know the id. We do.
        let from = last_id(&seen).unwrap_or_else(|| next_stream(&before));
        let rest = session.resume(&from).send().await.frames();
        let seen = if parse_frames(&seen).is_empty() { priming.clone() } else { story(&seen) };
        assert_eq!(format!("{seen}{}", tell(&resumed(&rest, &from))), reference, "cut at byte {at}");
        before = after;
    }
}

/// Cuts a call at each event before a gate; `resumed_first` says on which side of the gate it is
/// resumed.
async fn cut_at_every_event(backing: Backing, resumed_first: bool) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let plan = |gate: &str| steps(&["progress", "progress", &format!("gate:{gate}"), "log:10", "progress"]);
    host.gates.open("open");
    let reference = story(&session.tool(1, "steps", plan("open")).send().await.body);
    for at in 1..=3 {
        for cut in ["at the end of an event", "inside of the next"] {
            let name = format!("{at} {cut}");
            let mut stream = session.tool(1, "steps", plan(&name)).stream().await;
            let mut seen = Vec::new();
            for _ in 0..at {
                seen.push(stream.next().await.expect("a frame before the gate"));
            }
            if cut == "inside of the next" && at < 3 {
                // More may have arrived already than was looked at.
                let given: usize = seen.iter().map(|frame| frame.raw.len()).sum();
                stream.read_to(given + 1).await;
            }
            stream.cut();
            let from = seen.last().and_then(|frame| frame.id.clone()).expect("an id");
            let rest = if resumed_first {
                let mut stream = session.resume(&from).stream().await;
                host.gates.reached(&name, 1).await;
                host.gates.open(&name);
                stream.rest().await
            } else {
                let cuts = (at - 1) * 2 + if cut == "inside of the next" { 2 } else { 1 };
                host.heard.times(&session, Detached, cuts).await;
                host.gates.open(&name);
                session.resume(&from).stream().await.rest().await
            };
            assert_eq!(format!("{}{}", tell(&seen), tell(&resumed(&rest, &from))), reference, "cut {name}");
        }
    }
}

async fn cut_at_every_event_while_the_call_runs_and_resumed_before_it_goes_on(backing: Backing) {
    cut_at_every_event(backing, true).await;
}

async fn cut_at_every_event_while_the_call_runs_and_resumed_after_it_is_done(backing: Backing) {
    cut_at_every_event(backing, false).await;
}

async fn a_finished_stream_can_be_resumed_again_and_again(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let whole = session.tool(1, "progress", json!({"n": 4})).send().await.frames();
    assert_eq!(whole.len(), 6);
    for _ in 0..3 {
        for (i, frame) in whole.iter().enumerate() {
            let id = frame.id.as_deref().expect("every event has an id");
            let rest = session.resume(id).send().await;
            assert_eq!(rest.status, 200);
            assert_eq!(tell(&resumed(&rest.frames(), id)), tell(&whole[i + 1..]), "after {id}");
        }
    }
}

async fn a_finished_stream_is_gone_after_its_retention(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let ids: Vec<_> = session
        .tool(1, "progress", json!({"n": 1}))
        .send()
        .await
        .frames()
        .into_iter()
        .map(|f| f.id)
        .collect();
    let retention = steadfast::Timing::default().retention;
    host.sweep_after(retention - Duration::from_millis(1)).await;
    for id in ids.iter().flatten() {
        assert_eq!(session.resume(id).send().await.status, 200);
    }
    // Several are forgotten together, at the latest after a quarter more.
    host.sweep_after(retention / 4 + Duration::from_millis(1)).await;
    for id in ids.iter().flatten() {
        assert_eq!(session.resume(id).send().await.refusal(), (400, -32600));
    }
}

async fn the_newest_connection_wins(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut first = session.tool(1, "steps", steps(&["progress", "gate:a", "progress"])).stream().await;
    let priming = first.next().await.and_then(|frame| frame.id).expect("a priming event");
    let progress = first.event().await;
    let mut second = session.resume(&priming).stream().await;
    assert_eq!(second.event().await.raw, progress.raw);
    assert_eq!(first.rest().await, [], "the older connection ends, properly and with nothing more");
    let mut third = session.resume(progress.id.as_deref().expect("an id")).stream().await;
    assert_eq!(second.rest().await, []);
    host.gates.open("a");
    let messages = third.messages().await;
    assert_eq!(messages.len(), 2);
    assert_eq!(messages[1]["id"], 1);
}

/// A client that never stays for more than one event misses none and gets none twice.
async fn a_stream_resumed_over_and_over_while_it_is_written(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "progress", json!({"n": 60})).stream().await;
    let mut at = stream.next().await.and_then(|frame| frame.id).expect("a priming event");
    let mut seen = Vec::new();
    loop {
        let event = stream.event().await;
        at = event.id.clone().unwrap_or(at);
        let message = event.message().expect("a message");
        if message["method"] != "notifications/progress" {
            assert_eq!(said(&message), "60 steps");
            break;
        }
        seen.push(message["params"]["progress"].as_f64().expect("a number"));
        // Not cut: the new connection has to push it aside.
        stream = session.resume(&at).stream().await;
    }
    assert_eq!(seen, (1..=60).map(f64::from).collect::<Vec<_>>());
}

async fn an_event_id_leads_to_its_own_stream_only(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut primings = Vec::new();
    for name in ["a", "b"] {
        let arguments = json!({"steps": ["progress", format!("gate:{name}"), "progress"], "text": name});
        let mut stream = session.tool(name, "steps", arguments).stream().await;
        primings.push((name, stream.next().await.and_then(|frame| frame.id).expect("a priming event")));
        stream.cut();
    }
    host.gates.open("b");
    host.gates.open("a");
    for (name, priming) in primings {
        let messages = session.resume(&priming).stream().await.messages().await;
        assert_eq!(messages.len(), 3);
        assert_eq!(messages[0]["params"]["progressToken"], name);
        assert_eq!(messages[1]["params"]["progressToken"], name);
        assert_eq!((&messages[2]["id"], said(&messages[2])), (&json!(name), name.to_owned()));
    }
    // An id of another session is the id of no event here.
    let other = Session::open(&host).await;
    let foreign = last_id(&other.tool(1, "echo", json!({})).send().await.body).unwrap();
    assert_eq!(session.resume(&foreign).send().await.refusal(), (400, -32600));
}

async fn a_batch_is_resumed_as_one_stream(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::at(&host, "2025-03-26").await;
    let gate =
        |name: &str| crate::support::session::tool_call(name, "gate", json!({"name": name, "text": name}));
    let mut stream = session.post(&json!([gate("a"), gate("b"), gate("c")])).stream().await;
    host.gates.open("b");
    let first = stream.event().await;
    assert_eq!(said(&first.message().unwrap()), "b");
    stream.cut();
    host.gates.open("c");
    host.gates.open("a");
    let rest = session.resume(first.id.as_deref().unwrap()).stream().await.messages().await;
    let mut rest: Vec<_> = rest.iter().map(said).collect();
    rest.sort();
    assert_eq!(rest, ["a", "c"]);
}

/// The priming event of a resumed stream.
fn prime(id: &str) -> String {
    format!("id: {id}\nretry: 1000\ndata: \n\n")
}

/// A client that forgets its position with its connection (typescript-sdk #2499) is told it by the
/// next one, even if that breaks before anything happens.
async fn a_resumed_stream_repeats_the_id_that_it_resumes_from(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    // A stream that is over: the rest, byte by byte. Behind the answer there is nothing: an id
    // would ask the client to come again.
    let whole = session.tool(1, "progress", json!({"n": 2})).send().await.frames();
    for (i, frame) in whole.iter().enumerate() {
        let id = frame.id.as_deref().unwrap();
        let rest = whole[i + 1..].iter().map(|frame| String::from_utf8_lossy(&frame.raw));
        let rest = rest.collect::<String>();
        let expect = if rest.is_empty() { rest } else { prime(id) + &rest };
        let resumed = session.resume(id).send().await;
        assert_eq!((resumed.status, resumed.text()), (200, expect), "after {id}");
    }
    // Streams that go on, of a call and of no call: cut again and again with nothing in between.
    let call = session.tool(2, "gate", json!({"name": "a", "text": "late"})).stream().await;
    let listener = session.listen().stream().await;
    let mut resumed = Vec::new();
    for mut stream in [call, listener] {
        let mut id = stream.next().await.and_then(|frame| frame.id).expect("a priming event");
        for _ in 0..3 {
            stream.cut();
            stream = session.resume(&id).stream().await;
            let first = stream.next().await.expect("a priming event");
            assert_eq!(String::from_utf8_lossy(&first.raw), prime(&id));
            assert!(stream.is_quiet().await, "and nothing else");
            id = first.id.expect("an id");
        }
        resumed.push(stream);
    }
    host.gates.open("a");
    assert_eq!(resumed[0].messages().await.iter().map(said).collect::<Vec<_>>(), ["late"]);
    assert_eq!(session.call(3, "notify_later", json!({"uri": "test:late"})).await["error"], Value::Null);
    assert_eq!(resumed[1].message().await["params"]["uri"], "test:late");
}

/// Clients of these revisions may take an event without data for a broken message.
async fn a_stream_of_an_older_revision_is_resumed_with_nothing_in_front(backing: Backing) {
    let host = Host::plain(backing).await;
    for revision in ["2025-03-26", "2025-06-18"] {
        let session = Session::at(&host, revision).await;
        let whole = session.tool(1, "progress", json!({"n": 2})).send().await.frames();
        for (i, frame) in whole.iter().enumerate() {
            // A response that has to wait for its first event begins with a comment.
            let Some(id) = &frame.id else { continue };
            let rest = session.resume(id).send().await;
            assert_eq!((rest.status, tell(&rest.frames())), (200, tell(&whole[i + 1..])), "{revision}");
        }
    }
}
