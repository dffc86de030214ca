//! Requests of the server to the client: any number at once, each with one outcome.

mod answers;
mod deadlines;
pub(crate) mod endings;
mod flow;
mod restarts;
mod strict;

use crate::support::{Reply, Session, Stream, Value, json};

pub(crate) fn question() -> Value {
    json!({"method": "elicitation/create", "params": {
        "mode": "form", "message": "Which?", "requestedSchema": {"type": "object", "properties": {}},
    }})
}

pub(crate) fn accepted(text: &str) -> Value {
    json!({"action": "accept", "content": {"text": text}})
}

/// The notification that the server sends when it no longer waits for the client's answer.
pub(crate) fn withdrawal(ask: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": ask}})
}

/// The id of the ask that comes next on a stream.
pub(crate) async fn asked(stream: &mut Stream) -> Value {
    let (id, message) = question_of(&stream.message().await);
    assert_eq!(message, "Which?");
    id
}

/// The id of an ask and what it wants to know.
pub(crate) fn question_of(ask: &Value) -> (Value, String) {
    assert_eq!(ask["method"], "elicitation/create", "{ask}");
    (ask["id"].clone(), ask["params"]["message"].as_str().expect("a question").to_owned())
}

/// A call that asks so many times and tells of each: what it tells overtakes what has to wait for
/// its turn, so when this returns, everything was asked. Gives the asks that had their turn at
/// once.
async fn asking(session: &Session, id: u64, n: u64) -> (Stream, Vec<Value>) {
    let mut stream = session.tool(id, "ask_and_tell", json!({"n": n})).stream().await;
    let (mut asked, mut told) = (Vec::new(), 0);
    while told < n {
        let message = stream.message().await;
        if message["method"] == "notifications/progress" {
            told += 1;
        } else {
            asked.push(question_of(&message).0);
        }
    }
    (stream, asked)
}

/// An answer that comes too late, is repeated or was never asked for: it is told so and changes
/// nothing.
#[track_caller]
pub(crate) fn assert_unasked(reply: &Reply) {
    assert_eq!(reply.refusal(), (400, -32600), "{}", reply.text());
    let text = reply.json()["error"]["message"].as_str().expect("a message").to_owned();
    assert_eq!(
        text,
        "No request of the server with that id waits for an answer. It was answered or withdrawn before, or never \
         asked in this session."
    );
}

/// Answers a request for which the server no longer waits.
pub(crate) async fn answer_too_late(session: &Session, ask: &Value) {
    assert_unasked(&session.answer(ask, accepted("too late")).await);
}
