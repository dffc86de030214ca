//! Faults of a server or a connection: acknowledged commands are kept, and the outcome of a commit
//! in doubt is found out.

use std::sync::Arc;
use std::time::Duration;

use steadfast_session::command::{AppendOutcome, Finished};
use steadfast_store::testing::server::fresh_name;
use steadfast_store::testing::signal_recorder::{RecordedSignal, SignalRecorder};
use steadfast_store::{Store as _, StoreError, StoreExt};

use crate::common::{
    FIRST, NOW, ONE, begin_call, eventually, finish, message, open_session, run, server_or_skip, texts,
};
use crate::database::{
    Options, Store, copy_session, durable_server, open, options, options_with_port, restore_session,
};
use crate::proxy::{Cut, Proxy};

/// Returns options without background traffic: the test causes every request.
fn quiet(options: Options) -> Options {
    Options { heartbeat: Duration::from_secs(3600), receives_hints: false, ..options }
}

#[tokio::test]
async fn the_outcome_of_a_commit_in_doubt_is_found_out() {
    let server = server_or_skip!();
    let proxy = Proxy::start(server.port());
    let prefix = fresh_name();
    let behind = quiet(options_with_port(proxy.port, &prefix));
    let (store, other) = (open(behind), open(quiet(options(server, &prefix))));
    let session = open_session(&store, 1).await;
    for round in 1..=10 {
        for cut in [Cut::Request, Cut::Answer] {
            proxy.cut(cut);
            let (stream, call) = begin_call(&store, session, ONE, round).await;
            assert!(!proxy.is_pending(), "the connection was not cut");
            proxy.cut(cut);
            let appended = run(&store, session, message(&format!("{round} {cut:?}"))).await;
            assert!(!proxy.is_pending(), "the connection was not cut");
            assert!(matches!(appended, AppendOutcome::Appended { .. }), "{appended:?}");
            proxy.cut(cut);
            let finished = run(&store, session, finish(call, "answer")).await;
            assert_eq!(finished, Finished::Finished { stream, seq: 1 }, "{cut:?}");
            assert_eq!(texts(&other, session, stream).await, ["answer"]);
        }
    }
    let expected: Vec<String> =
        (1..=10).flat_map(|round| ["Request", "Answer"].map(|cut| format!("{round} {cut}"))).collect();
    assert_eq!(texts(&other, session, FIRST).await, expected, "a message was lost or doubled");
}

/// The first reply on a connection belongs to its handshake. If it cannot be read, the store must
/// open another connection.
#[tokio::test]
async fn the_store_reconnects_after_a_broken_handshake() {
    let server = server_or_skip!();
    let proxy = Proxy::start(server.port());
    let prefix = fresh_name();
    let behind = Options { retry_window: Duration::from_secs(20), ..options_with_port(proxy.port, &prefix) };
    let other = open(options(server, &prefix));
    proxy.cut(Cut::PartOfAnswer);
    let store = open(behind);
    let signal_recorder: Arc<SignalRecorder> = Arc::default();
    store.subscribe(Arc::<SignalRecorder>::clone(&signal_recorder));
    store.join(ONE, NOW).await.unwrap();
    assert!(!proxy.is_pending(), "the handshake was not cut");
    let session = open_session(&store, 1).await;
    for n in 0..10 {
        let (_, call) = begin_call(&store, session, ONE, n).await;
        proxy.cut(Cut::Answer);
        run(&store, session, message("cut")).await;
        proxy.cut(Cut::PartOfAnswer);
        run(&store, session, message("cut in the middle")).await;
        // The subscription to hints works on the new connection, too.
        run(&other, session, finish(call, "answer")).await;
        let stops = |signal: &RecordedSignal| matches!(signal, RecordedSignal::SessionUpdate { stopped, .. } if *stopped == [(call, ONE)]);
        let signal = || async {
            signal_recorder.take().into_values().flatten().any(|signal| stops(&signal)).then_some(())
        };
        eventually("a hint", signal).await;
    }
}

/// The commit took effect, its reply was lost, and other commits follow before the store can ask.
#[tokio::test]
async fn the_outcome_is_found_out_after_other_commits() {
    let server = server_or_skip!();
    let proxy = Proxy::start(server.port());
    let prefix = fresh_name();
    let behind = quiet(options_with_port(proxy.port, &prefix));
    let (store, other) = (open(behind), open(quiet(options(server, &prefix))));
    let session = open_session(&store, 1).await;
    for round in 0..10 {
        run(&store, session, message("warm")).await;
        proxy.cut(Cut::Answer);
        let mine = format!("mine {round}");
        let (appended, ()) = tokio::join!(run(&store, session, message(&mine)), async {
            while proxy.is_pending() {
                tokio::task::yield_now().await;
            }
            for _ in 0..3 {
                run(&other, session, message("theirs")).await;
            }
        });
        let AppendOutcome::Appended { seq, .. } = appended else { panic!("{appended:?}") };
        let log = texts(&other, session, FIRST).await;
        assert_eq!(log.iter().filter(|text| **text == mine).count(), 1, "{log:?}");
        assert_eq!(log[usize::try_from(seq).unwrap() - 1], mine);
    }
}

/// The commit took effect and its reply was lost. Before the store can repeat it, so many commits
/// follow that the session does not remember it. `store` is behind the proxy, `other` is not.
pub(crate) async fn check_that_a_forgotten_commit_is_unknown_and_done_once(
    store: &Store,
    other: &Store,
    proxy: &Proxy,
) {
    let session = open_session(store, 1).await;
    run(store, session, message("first")).await;
    proxy.hold_new_connections(true);
    proxy.cut(Cut::Answer);
    let (mine, ()) = tokio::join!(store.run(session, message("mine"), NOW), async {
        while proxy.is_pending() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        for _ in 0..8 {
            run(other, session, message("theirs")).await;
        }
        proxy.hold_new_connections(false);
    });
    let log = texts(other, session, FIRST).await;
    assert_eq!(log.iter().filter(|text| *text == "mine").count(), 1, "{log:?}");
    assert!(matches!(mine, Err(StoreError::Unknown(_))), "{mine:?}");
    // A store that has missed as many commits but was not disconnected is not in doubt.
    for _ in 0..8 {
        run(other, session, message("theirs")).await;
    }
    run(store, session, message("last")).await;
    assert_eq!(texts(other, session, FIRST).await.len(), 1 + 1 + 8 + 8 + 1);
}

#[tokio::test]
async fn a_commit_that_the_session_has_forgotten_is_not_repeated() {
    let server = server_or_skip!();
    let proxy = Proxy::start(server.port());
    let prefix = fresh_name();
    let behind =
        Options { retry_window: Duration::from_secs(20), ..quiet(options_with_port(proxy.port, &prefix)) };
    check_that_a_forgotten_commit_is_unknown_and_done_once(
        &open(behind),
        &open(quiet(options(server, &prefix))),
        &proxy,
    )
    .await;
}

#[tokio::test]
async fn a_server_that_goes_away_is_unavailable_and_loses_nothing() {
    let Some(mut server) = durable_server() else { return };
    let impatient = Options { retry_window: Duration::from_millis(100), ..options(&server, "t") };
    let store = open(impatient);
    store.join(ONE, NOW).await.unwrap();
    let session = open_session(&store, 1).await;
    let (stream, call) = begin_call(&store, session, ONE, 1).await;
    run(&store, session, message("before")).await;
    server.kill();
    for _ in 0..3 {
        let outcome = store.run(session, message("lost"), NOW).await;
        assert!(matches!(outcome, Err(StoreError::Unavailable(_) | StoreError::Unknown(_))), "{outcome:?}");
        assert!(matches!(store.facts(session).await, Err(StoreError::Unavailable(_))));
    }
    server.launch().expect("the server starts again");
    eventually("the store", || async { store.facts(session).await.ok() }).await;
    assert_eq!(texts(&store, session, FIRST).await, ["before"]);
    assert!(matches!(run(&store, session, finish(call, "answer")).await, Finished::Finished { .. }));
    assert_eq!(texts(&store, session, stream).await, ["answer"]);
    assert_eq!(store.is_alive(ONE).await, Ok(true), "no node counts as dead because the server restarted");
    assert_eq!(store.reap_dead_nodes(NOW).await, Ok(0));
}

/// A server has lost its last commits, as after a failover to a replica that lagged behind. A store
/// that remembers them must not overwrite what other processes have committed since.
#[tokio::test]
async fn commits_that_the_server_has_lost_are_not_written_back() {
    let server = server_or_skip!();
    let prefix = fresh_name();
    let (store, other) = (open(quiet(options(server, &prefix))), open(quiet(options(server, &prefix))));
    let session = open_session(&store, 1).await;
    run(&store, session, message("kept")).await;
    copy_session(server, &prefix, session);
    let (_, call) = begin_call(&store, session, ONE, 1).await;
    restore_session(server, &prefix, session);
    run(&other, session, message("instead")).await;
    assert_eq!(run(&store, session, finish(call, "answer")).await, Finished::AlreadyFinished);
    run(&store, session, message("next")).await;
    assert_eq!(texts(&other, session, FIRST).await, ["kept", "instead", "next"]);
}
