//! Messages that a server sends while the gateway does not listen: the gateway tells the client
//! that it may have missed messages, and only if it can have missed some.

use std::time::Duration;

use crate::support::server::{Reply, Request};
use crate::support::{Backing, Host, Session, Stream, json, within};

use super::forgetful::Forgetful;
use super::gateway;

/// Long enough for what should not be said to be said.
const QUIET: Duration = Duration::from_millis(200);

fn gets(log: &[Request]) -> usize {
    log.iter().filter(|request| request.verb == "GET").count()
}

fn prods(log: &[Request]) -> usize {
    log.iter().filter(|request| request.verb == "PROD").count()
}

/// A session that watches a resource, and its listener.
async fn watching(host: &Host, forgetful: &Forgetful) -> (Session, Stream) {
    let session = Session::open(host).await;
    session.request(1, "resources/subscribe", json!({"uri": "test:1"})).send().await.answer();
    forgetful.server.until("a GET", |log| gets(log) == 1).await;
    let mut listener = session.listen().stream().await;
    assert!(is_silent(&mut listener).await, "nothing can be missing");
    (session, listener)
}

async fn is_silent(listener: &mut Stream) -> bool {
    tokio::time::timeout(QUIET, listener.message()).await.is_err()
}

/// Everything that there is to look at, once.
async fn is_told_to_look(listener: &mut Stream) {
    for kind in ["tools", "prompts", "resources"] {
        assert_eq!(listener.message().await["method"], format!("notifications/{kind}/list_changed"));
    }
    let updated = listener.message().await;
    assert_eq!(updated["method"], "notifications/resources/updated");
    assert_eq!(updated["params"], json!({"uri": "test:1"}));
}

#[tokio::test]
async fn a_gateway_that_takes_over_says_that_something_may_be_missing() {
    let forgetful =
        Forgetful::start("s", |request| (request.verb == "GET").then(|| Reply::stream().hang())).await;
    let mut here = Host::before(Backing::Sqlite, [forgetful.server.url()], |builder| {
        // That would be another reason.
        builder.upstream(|config| config.standalone_reopen_delay = Duration::from_secs(60))
    })
    .await;
    let there = here.beside().await;
    let (session, _) = watching(&here, &forgetful).await;
    let mut listener = session.via(&there).listen().stream().await;
    here.crash().await;
    let taken = async {
        while gets(&forgetful.server.log()) < 2 {
            there.sweep_after(Duration::ZERO).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within("another listener", taken).await;
    is_told_to_look(&mut listener).await;
    assert!(is_silent(&mut listener).await, "once is enough");
    assert_eq!(
        (forgetful.opened(), there.upstream().failovers()),
        (1, 0),
        "nothing was lost but what was said"
    );
}

/// Its stream ends each time that it is prodded, and what it says has no ids.
#[tokio::test]
async fn a_stream_without_ids_that_is_opened_again_may_have_a_gap() {
    let forgetful = Forgetful::start("s", |request| {
        (request.verb == "GET").then(|| Reply::stream().until(|log| prods(log) >= gets(log)))
    })
    .await;
    let host = gateway(&forgetful.server).await;
    let (_session, mut listener) = watching(&host, &forgetful).await;
    forgetful.server.prod();
    forgetful.server.until("another GET", |log| gets(log) == 2).await;
    is_told_to_look(&mut listener).await;
    // The next ones are told together, when that is due.
    for no in 3..6 {
        forgetful.server.prod();
        forgetful.server.until("another GET", |log| gets(log) == no).await;
    }
    assert!(is_silent(&mut listener).await, "a client that was told just now is not told again at once");
}

#[tokio::test]
async fn a_stream_that_is_resumed_has_no_gap() {
    let forgetful = Forgetful::start("s", |request| {
        if request.verb != "GET" {
            return None;
        }
        Some(match request.header("last-event-id") {
            None => Reply::stream().send("id: a\ndata:\n\n").until(|log| prods(log) == 1),
            Some(id) => {
                assert_eq!(id, "a");
                Reply::stream()
                    .event(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))
                    .hang()
            }
        })
    })
    .await;
    let host = gateway(&forgetful.server).await;
    let (_session, mut listener) = watching(&host, &forgetful).await;
    forgetful.server.prod();
    assert_eq!(listener.message().await["method"], "notifications/tools/list_changed");
    assert!(is_silent(&mut listener).await, "the server sent that message, and the gateway has added none");
    assert_eq!(gets(&forgetful.server.log()), 2);
}
