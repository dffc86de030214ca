//! A server or a connection that fails: what was acknowledged stays, what is in doubt is found out.

use std::sync::Arc;
use std::time::Duration;

use steadfast_session::command::{AppendOutcome, Finished};
use steadfast_store::testing::recorder::{Heard, Recorder};
use steadfast_store::testing::server::fresh_name;
use steadfast_store::{Store as _, StoreError, StoreExt};

use crate::common::{
    FIRST, NOW, ONE, begin_call, eventually, finish, message, open_session, run, server_or_skip, texts,
};
use crate::database::{
    Options, Store, copy_session, durable_server, open, options, put_session_back, through,
};
use crate::proxy::{Cut, Proxy};

/// A store whose only traffic is what the test makes.
fn quiet(options: Options) -> Options {
    Options { heartbeat: Duration::from_secs(3600), hears_others: false, ..options }
}

#[tokio::test]
async fn a_commit_in_doubt_is_found_out() {
    let server = server_or_skip!();
    let proxy = Proxy::start(server.port());
    let prefix = fresh_name();
    let behind = quiet(through(proxy.port, &prefix));
    let (store, other) = (open(behind), open(quiet(options(server, &prefix))));
    let session = open_session(&store, 1).await;
    for round in 1..=10 {
        for cut in [Cut::Request, Cut::Answer] {
            proxy.cut(cut);
            let (stream, call) = begin_call(&store, session, ONE, round).await;
            assert!(!proxy.waits(), "the line was not cut");
            proxy.cut(cut);
            let appended = run(&store, session, message(&format!("{round} {cut:?}"))).await;
            assert!(!proxy.waits(), "the line was not cut");
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

/// The first answer on a connection is to its greeting: if that cannot be read there is no connection, and there has to be another.
#[tokio::test]
async fn a_greeting_that_breaks_off_is_not_the_last_one() {
    let server = server_or_skip!();
    let proxy = Proxy::start(server.port());
    let prefix = fresh_name();
    let behind = Options { patience: Duration::from_secs(20), ..through(proxy.port, &prefix) };
    let other = open(options(server, &prefix));
    proxy.cut(Cut::Word);
    let store = open(behind);
    let recorder: Arc<Recorder> = Arc::default();
    store.subscribe(Arc::<Recorder>::clone(&recorder));
    store.join(ONE, NOW).await.unwrap();
    assert!(!proxy.waits(), "the greeting was not cut");
    let session = open_session(&store, 1).await;
    for n in 0..10 {
        let (_, call) = begin_call(&store, session, ONE, n).await;
        proxy.cut(Cut::Answer);
        run(&store, session, message("cut")).await;
        proxy.cut(Cut::Word);
        run(&store, session, message("cut in the middle")).await;
        // Whoever was told where news come hears them on the connection after that, too.
        run(&other, session, finish(call, "answer")).await;
        let stops = |heard: &Heard| matches!(heard, Heard::News { stopped, .. } if *stopped == [(call, ONE)]);
        let heard =
            || async { recorder.take().into_values().flatten().any(|heard| stops(&heard)).then_some(()) };
        eventually("news", heard).await;
    }
}

/// The writer's commit happened, its answer was lost, and before it can ask others have gone on.
#[tokio::test]
async fn a_commit_in_doubt_is_found_out_among_those_of_others() {
    let server = server_or_skip!();
    let proxy = Proxy::start(server.port());
    let prefix = fresh_name();
    let behind = quiet(through(proxy.port, &prefix));
    let (store, other) = (open(behind), open(quiet(options(server, &prefix))));
    let session = open_session(&store, 1).await;
    for round in 0..10 {
        run(&store, session, message("warm")).await;
        proxy.cut(Cut::Answer);
        let mine = format!("mine {round}");
        let (appended, ()) = tokio::join!(run(&store, session, message(&mine)), async {
            while proxy.waits() {
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

/// The commit is done, its answer is lost, and before it can be sent again so much has happened that the session does not
/// remember it. `store` is behind the proxy, `other` is not.
pub(crate) async fn is_unknown_and_done_once(store: &Store, other: &Store, proxy: &Proxy) {
    let session = open_session(store, 1).await;
    run(store, session, message("first")).await;
    proxy.shut(true);
    proxy.cut(Cut::Answer);
    let (mine, ()) = tokio::join!(store.run(session, message("mine"), NOW), async {
        while proxy.waits() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        for _ in 0..8 {
            run(other, session, message("theirs")).await;
        }
        proxy.shut(false);
    });
    let log = texts(other, session, FIRST).await;
    assert_eq!(log.iter().filter(|text| *text == "mine").count(), 1, "{log:?}");
    assert!(matches!(mine, Err(StoreError::Unknown(_))), "{mine:?}");
    // Whoever has missed as much and was not cut off is in no doubt.
    for _ in 0..8 {
        run(other, session, message("theirs")).await;
    }
    run(store, session, message("last")).await;
    assert_eq!(texts(other, session, FIRST).await.len(), 1 + 1 + 8 + 8 + 1);
}

#[tokio::test]
async fn a_commit_that_nobody_remembers_is_not_done_twice() {
    let server = server_or_skip!();
    let proxy = Proxy::start(server.port());
    let prefix = fresh_name();
    let behind = Options { patience: Duration::from_secs(20), ..quiet(through(proxy.port, &prefix)) };
    is_unknown_and_done_once(&open(behind), &open(quiet(options(server, &prefix))), &proxy).await;
}

#[tokio::test]
async fn a_server_that_goes_away_is_unavailable_and_loses_nothing() {
    let Some(mut server) = durable_server() else { return };
    let patient = Options { patience: Duration::from_millis(100), ..options(&server, "t") };
    let store = open(patient);
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
    assert_eq!(store.is_alive(ONE).await, Ok(true), "nobody dies of a server's restart");
    assert_eq!(store.bury_dead_nodes(NOW).await, Ok(0));
}

/// A server without the last commits, as after the failover to a replica that lagged behind: a store that remembers them does
/// not write over what others have done instead.
#[tokio::test]
async fn a_server_that_has_forgotten_commits_is_believed() {
    let server = server_or_skip!();
    let prefix = fresh_name();
    let (store, other) = (open(quiet(options(server, &prefix))), open(quiet(options(server, &prefix))));
    let session = open_session(&store, 1).await;
    run(&store, session, message("kept")).await;
    copy_session(server, &prefix, session);
    let (_, call) = begin_call(&store, session, ONE, 1).await;
    put_session_back(server, &prefix, session);
    run(&other, session, message("instead")).await;
    assert_eq!(run(&store, session, finish(call, "answer")).await, Finished::AlreadyFinished);
    run(&store, session, message("next")).await;
    assert_eq!(texts(&other, session, FIRST).await, ["kept", "instead", "next"]);
}
