//! Listeners hear of each step of a session exactly once, in order. A listener that hangs or panics
//! harms no client.

use std::sync::{Mutex, mpsc};

use steadfast::CloseReason;
use steadfast::SessionEventKind::{Closed, Detached, Opened, Reattached, Restored};

use crate::support::{Backing, Heard, Host, Session, json};

crate::on_every_store!(
    a_life_is_heard_step_by_step,
    a_call_that_is_read_to_its_end_is_no_step,
    a_listener_that_hangs_harms_no_client,
    a_listener_that_panics_harms_no_client,
);

async fn a_life_is_heard_step_by_step(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let other = Session::open(&host).await;
    for round in 1..=3 {
        let stream = session.listen().stream().await;
        stream.cut();
        host.heard.times(&session, Detached, round).await;
    }
    // Two connections: losing one of them is no step.
    let (a, b) = (session.listen().stream().await, session.listen().stream().await);
    a.cut();
    b.cut();
    host.heard.times(&session, Detached, 4).await;
    assert_eq!(session.delete().send().await.status, 204);
    assert_eq!(session.delete().send().await.status, 404);
    host.heard.once(&session, Closed(CloseReason::Deleted)).await;
    let expect = [
        Opened,
        Detached,
        Reattached,
        Detached,
        Reattached,
        Detached,
        Reattached,
        Detached,
        Closed(CloseReason::Deleted),
    ];
    assert_eq!(host.heard.of(&session), expect);
    assert_eq!(host.heard.of(&other), [Opened]);
}

async fn a_call_that_is_read_to_its_end_is_no_step(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    for id in 0..10 {
        session.call(id, "progress", json!({"n": 2})).await;
    }
    assert_eq!(session.delete().send().await.status, 204);
    host.heard.once(&session, Closed(CloseReason::Deleted)).await;
    assert_eq!(host.heard.of(&session), [Opened, Closed(CloseReason::Deleted)]);
}

async fn a_listener_that_hangs_harms_no_client(backing: Backing) {
    let (let_go, held) = mpsc::channel::<()>();
    let held = std::sync::Arc::new(Mutex::new(held));
    let host = Host::start(backing, move |builder| {
        let held = std::sync::Arc::clone(&held);
        // Hangs at the first event, until the test is over.
        builder.on_session_event(move |_| drop(held.lock().map(|held| held.recv())))
    })
    .await;
    let session = Session::open(&host).await;
    assert_eq!(session.say(1, "echo", json!({"text": "served"})).await, "served");
    session.listen().stream().await.cut();
    host.heard.once(&session, Detached).await;
    assert_eq!(session.delete().send().await.status, 204);
    host.heard.once(&session, Closed(CloseReason::Deleted)).await;
    assert_eq!(host.heard.of(&session), [Opened, Detached, Closed(CloseReason::Deleted)]);
    drop(let_go);
}

async fn a_listener_that_panics_harms_no_client(backing: Backing) {
    let after = Heard::new();
    let listener = after.clone();
    let host = Host::start(backing, move |builder| {
        let listener = listener.clone();
        builder.on_session_event(move |event| {
            listener.note(&event);
            panic!("a listener that panics on purpose");
        })
    })
    .await;
    let session = Session::open(&host).await;
    assert_eq!(session.say(1, "echo", json!({"text": "served"})).await, "served");
    session.listen().stream().await.cut();
    host.heard.once(&session, Detached).await;
    assert_eq!(session.delete().send().await.status, 204);
    // It hears everything all the same, and so do the others.
    for heard in [&host.heard, &after] {
        heard.once(&session, Closed(CloseReason::Deleted)).await;
        assert_eq!(heard.of(&session), [Opened, Detached, Closed(CloseReason::Deleted)]);
    }
}

#[tokio::test]
async fn a_session_is_restored_once_by_its_first_use() {
    let mut host = Host::plain(Backing::Sqlite).await;
    let session = Session::open(&host).await;
    host.heard.once(&session, Opened).await;
    host.restart().await;
    let session = session.via(&host);
    let calls: Vec<_> = (0..16)
        .map(|id| {
            let session = session.clone();
            tokio::spawn(async move { session.say(id, "echo", json!({"text": "served"})).await })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap(), "served");
    }
    assert_eq!(session.delete().send().await.status, 204);
    host.heard.once(&session, Closed(CloseReason::Deleted)).await;
    assert_eq!(host.heard.of(&session), [Opened, Restored, Closed(CloseReason::Deleted)]);
}
