//! A gateway that takes over a session from one that had moved it to another replica continues at
//! that replica, and listens to the server there.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::support::server::{Reply, Request};
use crate::support::{Backing, Host, Relay, Session, Stream, Value, json, within};

use super::call;
use super::forgetful::Forgetful;

fn prods(log: &[Request]) -> usize {
    log.iter().filter(|request| request.verb == "PROD").count()
}

/// A replica that says something on its own stream when it is prodded.
async fn replica(name: &'static str) -> Forgetful {
    let late =
        json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "late"}});
    let script = move |request: &Request| {
        (request.verb == "GET").then(|| Reply::stream().until(|log| prods(log) > 0).event(&late).hang())
    };
    Forgetful::start(name, script).await
}

/// Whether this is the last of what tells a client to look at everything.
fn says_look(message: &Value) -> bool {
    message["method"] == "notifications/resources/list_changed"
}

async fn is_told_to_look(listener: &mut Stream) {
    while !says_look(&listener.message().await) {}
}

/// Three gateways and two replicas. One gateway moves the session to the second replica and dies,
/// and the client listens at another gateway.
async fn check_that_the_successor_hears_the_server(concurrency: Option<NonZeroUsize>) {
    let (a, b) = (replica("a").await, replica("b").await);
    let at_a = Relay::before(&a.server.url()).await;
    let mut mover = Host::before(Backing::shared(), [at_a.url(), b.server.url()], move |builder| {
        builder.upstream(|config| {
            config.calls.concurrency = concurrency.into();
            // That would be another reason to look.
            config.standalone_reopen_delay = Duration::from_secs(60);
        })
    })
    .await;
    let (successor, other) = (mover.beside().await, mover.beside().await);
    let session = Session::open(&mover).await;
    let (at_successor, elsewhere) = (session.via(&successor), session.via(&other));
    for (no, session) in [&session, &at_successor, &elsewhere].into_iter().enumerate() {
        assert_eq!(call(session, no as u64, "t").await["result"], json!({}));
    }
    assert_eq!((a.opened(), b.opened()), (1, 0));
    at_a.kill().await;
    assert_eq!(call(&session, 10, "t").await["result"], json!({}));
    assert_eq!((a.opened(), b.opened()), (1, 1), "it has moved");
    let gone = mover.server().0.node();
    let at = if concurrency.is_some() { &elsewhere } else { &at_successor };
    let mut listener = at.listen().stream().await;
    is_told_to_look(&mut listener).await;
    mover.crash().await;
    let is_known = async {
        while successor.server().0.store().is_alive(gone).await != Ok(false) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        successor.sweep_after(Duration::ZERO).await;
    };
    within("word of its end", is_known).await;
    let mut is_told = false;
    if concurrency.is_some() {
        let answered = async {
            let mut is_answered = false;
            while !is_answered {
                let reply = at_successor.tool(11, "t", json!({})).send().await;
                is_answered = reply.answer()["result"] == json!({});
                // While it runs its client reads its stream, and is told there.
                is_told |= reply.messages().iter().any(says_look);
            }
        };
        within("an answer through the successor", answered).await;
    }
    if !is_told {
        is_told_to_look(&mut listener).await;
    }
    b.server.prod();
    // The gateway may tell the client once more to look: one `list_changed` for each kind of list.
    let late = async {
        let mut message = listener.message().await;
        while message["method"] != "notifications/resources/updated" {
            message = listener.message().await;
        }
        message
    };
    assert_eq!(within("the server's message", late).await["params"], json!({"uri": "late"}));
    assert_eq!((a.opened(), b.opened()), (1, 1));
}

#[tokio::test]
async fn a_gateway_that_takes_a_session_over_by_a_call_hears_the_server_where_it_was_moved_to() {
    check_that_the_successor_hears_the_server(Some(NonZeroUsize::MIN)).await;
}

#[tokio::test]
async fn a_gateway_that_takes_a_session_over_without_a_call_hears_the_server_where_it_was_moved_to() {
    check_that_the_successor_hears_the_server(None).await;
}
