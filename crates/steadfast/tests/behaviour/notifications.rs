//! Notifications of the client: in order, bounded, and each within its time.

use std::time::Duration;

use crate::support::{Backing, Host, Reply, Session, json, within};

crate::on_every_store!(
    the_next_waits_until_the_handler_is_done,
    too_many_of_one_client_are_refused,
    too_many_in_all_are_refused,
    one_that_takes_too_long_does_not_stop_the_rest,
);

async fn tick(session: &Session) -> Reply {
    session.notify("notifications/tick", json!({})).await
}

/// The handler works on this until the gate `pass` is opened.
async fn slow(host: &Host, session: &Session) {
    assert_eq!(session.notify("notifications/slow", json!({})).await.status, 202);
    host.gates.reached("pass", 1).await;
}

async fn the_next_waits_until_the_handler_is_done(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    slow(&host, &session).await;
    assert_eq!(tick(&session).await.status, 202);
    // Calls do not wait, nor do other sessions.
    session.say(1, "echo", json!({})).await;
    let other = Session::open(&host).await;
    assert_eq!(other.notify("notifications/tock", json!({})).await.status, 202);
    host.gates.reached("notifications/tock", 1).await;
    assert_eq!(host.gates.count("notifications/tick"), 0, "it was sent after one that is not done");
    host.gates.open("pass");
    host.gates.reached("notifications/tick", 1).await;
}

async fn too_many_of_one_client_are_refused(backing: Backing) {
    let host = Host::start(backing, |builder| builder.notifications(2)).await;
    let session = Session::open(&host).await;
    slow(&host, &session).await;
    for _ in 0..2 {
        assert_eq!(tick(&session).await.status, 202);
    }
    let refused = tick(&session).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    assert!(refused.text().contains("`notifications`"), "{}", refused.text());
    let other = Session::open(&host).await;
    assert_eq!(tick(&other).await.status, 202);
    host.gates.open("pass");
    host.gates.reached("notifications/tick", 3).await;
    assert_eq!(tick(&session).await.status, 202);
    host.gates.reached("notifications/tick", 4).await;
}

async fn too_many_in_all_are_refused(backing: Backing) {
    let host = Host::start(backing, |builder| builder.notifications_in_all(2)).await;
    let session = Session::open(&host).await;
    let other = Session::open(&host).await;
    // Places are given back a moment after the handler is done with `initialized`.
    let begun = async { while session.notify("notifications/slow", json!({})).await.status != 202 {} };
    within("a place", begun).await;
    host.gates.reached("pass", 1).await;
    let taken = async { while tick(&session).await.status != 202 {} };
    within("the other place", taken).await;
    let refused = tick(&other).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert!(refused.text().contains("`notifications_in_all`"), "{}", refused.text());
    host.gates.open("pass");
    host.gates.reached("notifications/tick", 1).await;
    let taken = async { while tick(&other).await.status != 202 {} };
    within("a place", taken).await;
}

async fn one_that_takes_too_long_does_not_stop_the_rest(backing: Backing) {
    let host = Host::start(backing, |builder| builder.notification_deadline(Duration::from_millis(20))).await;
    let session = Session::open(&host).await;
    slow(&host, &session).await;
    assert_eq!(tick(&session).await.status, 202);
    host.gates.reached("notifications/tick", 1).await;
}
