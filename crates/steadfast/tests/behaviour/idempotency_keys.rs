//! A call with an idempotency key is executed once, however often a client repeats it.

use std::time::Duration;

use super::stateless_resume::detached;
use crate::support::session::said;
use crate::support::{Backing, Host, Modern, Reply, Request, Session, Value, json, within};

crate::on_every_store!(
    a_repeated_call_is_executed_once_in_both_eras,
    a_call_that_runs_is_joined_by_its_repetition,
    a_key_of_another_request_is_refused,
    a_call_with_a_key_outlives_its_client,
    each_round_of_a_call_that_needs_input_is_executed,
    an_outcome_that_is_not_kept_is_not_known,
);

mod nodes {
    use super::*;

    crate::on_shared_stores!(a_repetition_at_another_node_and_after_a_crash);

    async fn a_repetition_at_another_node_and_after_a_crash(backing: Backing) {
        let mut one = Host::plain(backing).await;
        let two = one.beside().await;
        let plan = json!({"steps": ["mark:done"], "text": "once"});
        assert_eq!(answer(keyed(&one, KEY, 1, "steps", plan.clone())).await.1, "once");
        assert_eq!(answer(keyed(&two, KEY, 2, "steps", plan.clone())).await, (json!(2), "once".to_owned()));
        assert_eq!(one.gates.count("done"), 1);
        // A node that dies in the middle of a call leaves an outcome that is not known.
        let other = "Another-jgOXjkDVQ927k2iUpX-TJA";
        let never = json!({"steps": ["mark:begun", "gate:never"]});
        let unread = keyed(&one, other, 3, "steps", never.clone()).leave().await;
        one.gates.reached("begun", 1).await;
        one.restart().await;
        drop(unread);
        let reply = within("an outcome", keyed(&two, other, 4, "steps", never).send()).await.answer();
        assert_eq!(reply["error"]["data"]["reason"], "outcome_unknown", "{reply}");
        assert_eq!((&reply["id"], one.gates.count("begun")), (&json!(4), 1));
    }
}

const KEY: &str = "jgOXjkDVQ927k2iUpX-TJA";

fn keyed(host: &Host, key: &str, id: impl Into<Value>, tool: &str, arguments: Value) -> Request {
    Modern::to(host).tool(id, tool, arguments).header("Idempotency-Key", key)
}

async fn answer(request: Request) -> (Value, String) {
    let answer = within("an answer", request.send()).await.answer();
    (answer["id"].clone(), said(&answer))
}

fn reason(reply: &Reply) -> Value {
    reply.answer()["error"]["data"]["reason"].clone()
}

async fn a_repeated_call_is_executed_once_in_both_eras(backing: Backing) {
    let host = Host::plain(backing).await;
    let plan = json!({"steps": ["mark:done"], "text": "once"});
    assert_eq!(answer(keyed(&host, KEY, 1, "steps", plan.clone())).await, (json!(1), "once".to_owned()));
    let (one, two) = (Session::open(&host).await, Session::open(&host).await);
    for (session, id) in [(&one, 7), (&one, 8), (&two, 7)] {
        let request = session.tool(id, "steps", plan.clone()).header("Idempotency-Key", KEY);
        assert_eq!(answer(request).await.0, id);
    }
    // A client that cannot set headers.
    let client = Modern::to(&host).meta("dev.steadfast/idempotencyKey", KEY);
    assert_eq!(answer(client.tool("x", "steps", plan.clone())).await, (json!("x"), "once".to_owned()));
    assert_eq!(host.gates.count("done"), 1);
    // Without a key, and with another one, it is another call.
    assert_eq!(Modern::to(&host).say(1, "steps", plan.clone()).await, "once");
    assert_eq!(answer(keyed(&host, "Another-jgOXjkDVQ927k2iUpX", 1, "steps", plan)).await.1, "once");
    assert_eq!(host.gates.count("done"), 3);
}

async fn a_call_that_runs_is_joined_by_its_repetition(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let plan = json!({"steps": ["mark:begun", "gate:a"], "text": "once"});
    let first = session.tool(1, "steps", plan.clone()).header("Idempotency-Key", KEY).leave().await;
    host.gates.reached("begun", 1).await;
    let second = keyed(&host, KEY, 2, "steps", plan.clone()).leave().await;
    let third = keyed(&host, KEY, 3, "steps", plan).leave().await;
    host.gates.open("a");
    for (unread, id) in [(first, 1), (second, 2), (third, 3)] {
        let answer = within("an answer", unread.reply()).await.answer();
        assert_eq!((&answer["id"], said(&answer)), (&json!(id), "once".to_owned()));
    }
    assert_eq!(host.gates.count("begun"), 1);
}

async fn a_key_of_another_request_is_refused(backing: Backing) {
    let host = Host::plain(backing).await;
    assert_eq!(answer(keyed(&host, KEY, 1, "echo", json!({"text": "a", "b": 1}))).await.1, "a");
    // The order of members does not matter.
    assert_eq!(answer(keyed(&host, KEY, 1, "echo", json!({"b": 1, "text": "a"}))).await.1, "a");
    let session = Session::open(&host).await;
    for request in [
        keyed(&host, KEY, 1, "echo", json!({"text": "b"})),
        keyed(&host, KEY, 1, "big", json!({"text": "a"})),
        session.tool(1, "echo", json!({"text": "b"})).header("Idempotency-Key", KEY),
    ] {
        let reply = request.send().await;
        assert_eq!((reply.refusal(), reason(&reply)), ((409, -32600), json!("idempotency_key_reused")));
    }
    for weak in ["17", "order-000000000000000000017", "with space jgOXjkDVQ927k2iUpX"] {
        let reply = keyed(&host, weak, 1, "echo", json!({"text": "a"})).send().await;
        assert_eq!(reply.refusal(), (400, -32600), "{weak}");
    }
}

async fn a_call_with_a_key_outlives_its_client(backing: Backing) {
    // A handler that is cancelled is dropped at once.
    let host = Host::start(backing, |builder| builder.wind_down(Duration::ZERO)).await;
    let plan = json!({"steps": ["mark:begun", "gate:a", "mark:done"], "text": "once"});
    let plain = Modern::to(&host).tool(2, "until_cancelled", json!({}));
    for request in [keyed(&host, KEY, 1, "steps", plan.clone()), plain] {
        let mut stream = request.stream().await;
        let event = stream.next().await.and_then(|frame| frame.id).expect("a priming event");
        stream.cut();
        detached(&host, &event).await;
    }
    // The call without a key is cancelled, and ends. The grace begins with the sweep that finds the
    // call without a reader.
    let engine = host.server().service().engine().clone();
    let ended = async {
        while engine.exchanges() > 1 {
            host.sweep_after(Duration::from_secs(60)).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    within("the end of the other call", ended).await;
    host.gates.open("a");
    assert_eq!(answer(keyed(&host, KEY, 2, "steps", plan)).await, (json!(2), "once".to_owned()));
    assert_eq!((host.gates.count("begun"), host.gates.count("done")), (1, 1));
}

async fn each_round_of_a_call_that_needs_input_is_executed(backing: Backing) {
    let host = Host::plain(backing).await;
    let client = Modern::to(&host).able(json!({"elicitation": {}}));
    let call = async |id: u32, params: Value| {
        client.request(id, "tools/call", params).header("Idempotency-Key", KEY).send().await
    };
    let first = json!({"name": "input", "arguments": {}});
    let asked = call(1, first.clone()).await.answer()["result"].clone();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    assert_eq!(call(2, first.clone()).await.answer()["result"], asked, "the same state, not another one");
    let mut second = first;
    second["requestState"] = asked["requestState"].clone();
    second["inputResponses"] = json!({});
    let rounds = [call(3, second.clone()).await.answer(), call(4, second).await.answer()];
    assert_ne!(rounds[0]["result"], asked, "another round");
    assert_eq!(
        (&rounds[0]["result"], &rounds[0]["error"]["message"]),
        (&rounds[1]["result"], &rounds[1]["error"]["message"])
    );
}

async fn an_outcome_that_is_not_kept_is_not_known(backing: Backing) {
    let host = Host::plain(backing).await;
    let plan = json!({"steps": ["mark:done"], "text": "once"});
    assert_eq!(answer(keyed(&host, KEY, 1, "steps", plan.clone())).await.1, "once");
    host.sweep_after(2 * steadfast::Timing::default().retention).await;
    let reply = keyed(&host, KEY, 2, "steps", plan).send().await;
    assert_eq!((reason(&reply), host.gates.count("done")), (json!("outcome_unknown"), 1));
}
