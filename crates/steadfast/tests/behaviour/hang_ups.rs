//! S4: clients that are gone before the server has said a word. Whatever they began ends, and
//! nothing is held for them for ever.

use std::time::Duration;

use steadfast::DuplicateIds;

use crate::support::session::said;
use crate::support::{Backing, Host, Request, Session, Value, json, within};

crate::on_every_store!(
    a_call_whose_client_is_gone_at_once_ends,
    a_listener_that_is_gone_at_once_holds_no_stream,
    an_answer_whose_client_is_gone_at_once_is_taken_or_not,
    a_session_is_not_kept_by_clients_that_are_gone,
);

const AGES: Duration = Duration::from_secs(100 * 24 * 3600);

/// Sends a request until the refusal of a duplicate is over.
async fn until_free(request: Request) -> Value {
    let trying = async {
        loop {
            let reply = request.send().await;
            if reply.status != 400 {
                return reply.answer();
            }
        }
    };
    within("the end of a call whose client has gone", trying).await
}

async fn a_call_whose_client_is_gone_at_once_ends(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    for id in 0..40 {
        session.tool(id, "steps", json!({"steps": ["mark:started"]})).send_and_hang_up().await;
    }
    for id in 0..40 {
        let again = session.tool(id, "echo", json!({"text": "again"}));
        assert_eq!(said(&until_free(again).await), "again");
    }
    assert!(host.gates.count("started") <= 40, "each was started once or not at all");
}

async fn a_listener_that_is_gone_at_once_holds_no_stream(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    for _ in 0..40 {
        session.listen().send_and_hang_up().await;
    }
    // There are places for sixteen listeners.
    let free = async { while session.listen().try_send_head().await != 200 {} };
    within("a place to listen", free).await;
}

/// Either the answer is taken, and then it reaches the handler, or it is not, and then it can be
/// sent again.
async fn an_answer_whose_client_is_gone_at_once_is_taken_or_not(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    for id in 0..20 {
        let question = json!({"method": "roots/list"});
        let mut stream = session.tool(id, "ask", question).stream().await;
        let ask = stream.message().await["id"].clone();
        let answer = json!({"jsonrpc": "2.0", "id": ask, "result": {"roots": []}});
        session.post(&answer).send_and_hang_up().await;
        let again = session.post(&answer).send().await;
        assert!(matches!(again.status, 202 | 400), "{}", again.status);
        assert_eq!(said(&stream.message().await), r#"{"roots":[]}"#);
    }
}

async fn a_session_is_not_kept_by_clients_that_are_gone(backing: Backing) {
    let isolate = |builder: crate::support::Builder| builder.duplicate_ids(DuplicateIds::Isolate);
    let host = Host::start(backing, isolate).await;
    let session = Session::open(&host).await;
    for _ in 0..20 {
        session.tool(1, "echo", json!({})).send_and_hang_up().await;
        session.listen().send_and_hang_up().await;
    }
    // Each connection is noticed as gone in its own time; then there is nothing left to wait for.
    let ended = async {
        while host.server().restore(session.session_id()).await.is_ok() {
            host.sweep_after(AGES).await;
        }
    };
    within("the end of a deserted session", ended).await;
}
