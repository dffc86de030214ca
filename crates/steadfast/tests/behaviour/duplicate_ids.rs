//! S1: two requests with one id in flight. The second is refused and the first is untouched; or, by
//! policy, both are served apart.

use steadfast::DuplicateIds;

use crate::support::session::{said, tool_call};
use crate::support::{Backing, Host, Reply, Session, Value, json};

crate::on_every_store!(
    the_second_is_refused_and_the_first_is_untouched,
    a_call_whose_connection_broke_is_still_in_flight,
    of_many_at_once_exactly_one_is_taken,
    a_number_and_a_text_are_different_ids,
    an_id_is_free_again_after_its_answer,
    an_id_is_free_again_after_its_cancellation,
    a_batch_with_a_duplicate_starts_nothing,
    isolated_duplicates_are_served_apart,
    a_cancellation_that_fits_two_calls_cancels_none,
    isolated_duplicates_are_refused_inside_one_batch,
);

fn assert_refused(reply: &Reply, id: &Value) {
    assert_eq!(reply.status, 400);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let message =
        format!("A request with id {id} is in flight already. Use another id, or wait for its answer.");
    let expect = json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32600, "message": message}});
    assert_eq!(reply.json(), expect);
}

fn gate(name: &str) -> Value {
    json!({"name": name, "text": name})
}

async fn the_second_is_refused_and_the_first_is_untouched(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut first = session.tool(1, "gate", gate("a")).stream().await;
    host.gates.reached("a", 1).await;
    for _ in 0..3 {
        assert_refused(&session.tool(1, "gate", gate("b")).send().await, &json!(1));
    }
    host.gates.open("a");
    let answers = first.messages().await;
    assert_eq!(answers.len(), 1);
    assert_eq!((&answers[0]["id"], said(&answers[0])), (&json!(1), "a".to_owned()));
    assert_eq!(host.gates.count("b"), 0, "what was refused was not started");
}

async fn a_call_whose_connection_broke_is_still_in_flight(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut first = session.tool(1, "gate", gate("a")).stream().await;
    let priming = first.next().await.and_then(|frame| frame.id).expect("a priming event");
    first.cut();
    host.heard.once(&session, steadfast::SessionEventKind::Detached).await;
    assert_refused(&session.tool(1, "echo", json!({})).send().await, &json!(1));
    host.gates.open("a");
    let messages = session.resume(&priming).stream().await.messages().await;
    assert_eq!(messages.iter().map(said).collect::<Vec<_>>(), ["a"]);
}

async fn of_many_at_once_exactly_one_is_taken(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let posts: Vec<_> = (0..32)
        .map(|no| {
            let request = session.tool("same", "gate", json!({"name": "a", "text": no.to_string()}));
            tokio::spawn(async move { request.send().await })
        })
        .collect();
    let (mut taken, mut refused) = (Vec::new(), 0);
    host.gates.reached("a", 1).await;
    // The one that was taken waits at the gate until all others are done; it does not matter which
    // it is.
    let (done, mut results) = tokio::sync::mpsc::unbounded_channel();
    for post in posts {
        let done = done.clone();
        tokio::spawn(async move { done.send(post.await.expect("a reply")) });
    }
    for _ in 0..31 {
        let reply = results.recv().await.expect("a reply");
        assert_refused(&reply, &json!("same"));
        refused += 1;
    }
    host.gates.open("a");
    taken.push(results.recv().await.expect("a reply").answer());
    assert_eq!((taken.len(), refused, host.gates.count("a")), (1, 31, 1));
}

async fn a_number_and_a_text_are_different_ids(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut number = session.tool(1, "gate", gate("number")).stream().await;
    let mut text = session.tool("1", "gate", gate("text")).stream().await;
    host.gates.reached("number", 1).await;
    host.gates.reached("text", 1).await;
    assert_refused(&session.tool("1", "echo", json!({})).send().await, &json!("1"));
    host.gates.open("text");
    host.gates.open("number");
    for (stream, id, expect) in [(&mut number, json!(1), "number"), (&mut text, json!("1"), "text")] {
        let answers = stream.messages().await;
        assert_eq!(answers.len(), 1);
        assert_eq!((&answers[0]["id"], said(&answers[0])), (&id, expect.to_owned()));
    }
}

async fn an_id_is_free_again_after_its_answer(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    for round in 0..20 {
        let text = round.to_string();
        assert_eq!(session.say(1, "echo", json!({"text": text})).await, text);
    }
}

async fn an_id_is_free_again_after_its_cancellation(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut first = session.tool(1, "never", json!({})).stream().await;
    host.gates.reached("never", 1).await;
    assert_eq!(session.cancel(1).await.status, 202);
    assert_eq!(session.say(1, "echo", json!({"text": "again"})).await, "again");
    assert_eq!(first.messages().await, Vec::<Value>::new());
}

async fn a_batch_with_a_duplicate_starts_nothing(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::at(&host, "2025-03-26").await;
    let mark = |id: u64| tool_call(id, "steps", json!({"steps": ["mark:started"]}));
    let twice = session.post(&json!([mark(1), mark(2), mark(1)])).send().await;
    assert_eq!(twice.refusal(), (400, -32600));
    let mut first = session.tool(3, "gate", gate("a")).stream().await;
    host.gates.reached("a", 1).await;
    let in_flight = session.post(&json!([mark(4), mark(3)])).send().await;
    assert_eq!(in_flight.refusal(), (400, -32600));
    assert_eq!(host.gates.count("started"), 0);
    // Nothing of them is left behind: every id but that of the call in flight is free.
    let reply = session.post(&json!([mark(1), mark(2), mark(4)])).send().await;
    assert_eq!(reply.answers().len(), 3);
    host.gates.open("a");
    assert_eq!(first.messages().await.iter().map(said).collect::<Vec<_>>(), ["a"]);
}

async fn isolated_duplicates_are_served_apart(backing: Backing) {
    let host = Host::start(backing, |builder| builder.duplicate_ids(DuplicateIds::Isolate)).await;
    let session = Session::open(&host).await;
    let mut streams = Vec::new();
    for name in ["a", "b", "c"] {
        let steps = json!({"steps": ["progress", format!("gate:{name}"), "progress"], "text": name});
        streams.push((name, session.tool(1, "steps", steps).stream().await));
        host.gates.reached(name, 1).await;
    }
    for name in ["b", "c", "a"] {
        host.gates.open(name);
    }
    for (name, stream) in &mut streams {
        let messages = stream.messages().await;
        assert_eq!(messages.len(), 3, "{messages:?}");
        assert_eq!((&messages[2]["id"], said(&messages[2])), (&json!(1), (*name).to_owned()));
    }
}

async fn a_cancellation_that_fits_two_calls_cancels_none(backing: Backing) {
    let host = Host::start(backing, |builder| builder.duplicate_ids(DuplicateIds::Isolate)).await;
    let session = Session::open(&host).await;
    let mut a = session.tool(1, "gate", gate("a")).stream().await;
    let mut b = session.tool(1, "gate", gate("b")).stream().await;
    host.gates.reached("a", 1).await;
    host.gates.reached("b", 1).await;
    assert_eq!(session.cancel(1).await.status, 202);
    host.gates.open("a");
    assert_eq!(a.messages().await.iter().map(said).collect::<Vec<_>>(), ["a"]);
    // Now it fits one.
    assert_eq!(session.cancel(1).await.status, 202);
    host.gates.open("b");
    assert_eq!(b.messages().await, Vec::<Value>::new());
}

async fn isolated_duplicates_are_refused_inside_one_batch(backing: Backing) {
    let host = Host::start(backing, |builder| builder.duplicate_ids(DuplicateIds::Isolate)).await;
    let session = Session::at(&host, "2025-03-26").await;
    let mark = || tool_call(1, "steps", json!({"steps": ["mark:started"]}));
    assert_eq!(session.post(&json!([mark(), mark()])).send().await.refusal(), (400, -32600));
    assert_eq!(host.gates.count("started"), 0);
}
