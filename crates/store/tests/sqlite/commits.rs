//! What a commit guarantees: no reply or signal before it, and no effect without it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rusqlite::Connection;
use steadfast_session::command::{AppendOutcome, Begin, Begun};
use steadfast_session::{NodeId, Request, Rules, StreamNo};
use steadfast_store::testing::signal_recorder::{RecordedSignal, SignalRecorder};
use steadfast_store::{Durability, SqliteOptions, SqliteStore, Store, StoreError, StoreExt};

use crate::common::{NODE, NOW, id, message, open, open_session, read, run};

const FIRST: StreamNo = StreamNo::FIRST_STANDALONE;

#[tokio::test]
async fn commands_that_wait_share_a_commit() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let store = open(&file);
    let session = open_session(&store, 1).await;
    let before = store.stats();
    // While another process holds the write lock, commands queue up behind the first.
    let other = Connection::open(&file).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let replies: Vec<_> = (0..200).map(|_| store.run(session, message("hello"), NOW)).collect();
    other.execute_batch("ROLLBACK").unwrap();
    for (n, reply) in (1..).zip(replies) {
        assert_eq!(reply.await, Ok(AppendOutcome::Appended { stream: FIRST, seq: n }));
    }
    let after = store.stats();
    assert_eq!(after.jobs - before.jobs, 200);
    assert!(after.commits - before.commits <= 4, "{before:?} {after:?}");
}

#[tokio::test]
async fn a_file_that_stays_locked_is_unavailable_and_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let options = SqliteOptions { busy_timeout: Duration::from_millis(20), ..SqliteOptions::default() };
    let store = SqliteStore::open(&file, Rules::default(), options).unwrap();
    let session = open_session(&store, 1).await;
    let other = Connection::open(&file).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let outcome = store.run(session, message("lost"), NOW).await;
    assert!(matches!(outcome, Err(StoreError::Unavailable(_))), "{outcome:?}");
    other.execute_batch("ROLLBACK").unwrap();
    let outcome = run(&store, session, message("kept")).await;
    assert_eq!(outcome, AppendOutcome::Appended { stream: FIRST, seq: 1 });
}

/// Installs a trigger that makes the next insertion of an event fail, and removes it again.
async fn check_failed_write(fault: &str, is_expected: fn(&StoreError) -> bool) {
    let folder = tempfile::tempdir().expect("a directory for the test");
    let file = folder.path().join("sessions.db");
    let store = open(&file);
    let signal_recorder: Arc<SignalRecorder> = Arc::default();
    store.subscribe(Arc::<SignalRecorder>::clone(&signal_recorder));
    let session = open_session(&store, 1).await;
    run(&store, session, message("before")).await;
    signal_recorder.take();
    let other = Connection::open(&file).expect("the file opens");
    other.execute_batch(fault).expect("a fault is injected");
    let error =
        store.run(session, message("failed"), NOW).await.expect_err("the trigger makes the command fail");
    assert!(is_expected(&error), "{error:?}");
    assert!(signal_recorder.take().is_empty(), "a failed command was signalled");
    assert_eq!(read(&store, session, FIRST).await.events.len(), 1);
    other.execute_batch("DROP TRIGGER injected").expect("the fault is gone");
    let outcome = run(&store, session, message("after")).await;
    assert_eq!(outcome, AppendOutcome::Appended { stream: FIRST, seq: 2 }, "memory and file differ");
    assert_eq!(read(&store, session, FIRST).await.events.len(), 2);
}

#[tokio::test]
async fn a_failed_write_has_not_happened() {
    let fault = "CREATE TRIGGER injected BEFORE INSERT ON event BEGIN SELECT RAISE(ABORT, 'injected'); END";
    check_failed_write(fault, |error| matches!(error, StoreError::Unavailable(_))).await;
}

#[tokio::test]
async fn a_failed_commit_is_unknown() {
    // A constraint that is checked only at the commit.
    let fault = "CREATE TABLE parent (x INTEGER PRIMARY KEY);
        CREATE TABLE child (x REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
        CREATE TRIGGER injected BEFORE INSERT ON event BEGIN INSERT INTO child VALUES (1); END";
    check_failed_write(fault, |error| matches!(error, StoreError::Unknown(_))).await;
}

#[tokio::test]
async fn an_unreadable_session_does_not_affect_others() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let store = open(&file);
    let (bad, good) = (open_session(&store, 1).await, open_session(&store, 2).await);
    let other = Connection::open(&file).unwrap();
    other.execute("UPDATE session SET revision = '1999-01-01' WHERE id = ?1", [id(1).as_bytes()]).unwrap();
    let replies = [bad, good].map(|session| store.run(session, message("hello"), NOW));
    let [of_bad, of_good] = replies;
    assert!(matches!(of_bad.await, Err(StoreError::Corrupt(_))));
    assert!(of_good.await.is_ok());
    // The sweep of both sessions does not fail because of it either.
    let long_after = NOW.plus(Duration::from_secs(30 * 86_400));
    assert_eq!(store.sweep(long_after, 100).await, Ok(2));
    assert_eq!(store.facts(good).await, Ok(None));
}

#[tokio::test]
async fn dropping_a_store_finishes_what_is_queued() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let store = open(&file);
    let session = open_session(&store, 1).await;
    let replies: Vec<_> = (0..500).map(|_| store.run(session, message("hello"), NOW)).collect();
    drop(replies);
    drop(store);
    assert_eq!(read(&open(&file), session, FIRST).await.events.len(), 500);
}

#[tokio::test]
async fn only_commits_of_other_processes_change_the_external_change_count() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let (store, other) = (open(&file), open(&file));
    let session = open_session(&store, 1).await;
    let seen = store.external_change_count().await.unwrap();
    assert!(seen.is_some());
    run(&store, session, message("mine")).await;
    read(&other, session, FIRST).await;
    other.holdings(session, NODE).await.unwrap();
    assert_eq!(store.external_change_count().await, Ok(seen));
    run(&other, session, message("theirs")).await;
    let changed = store.external_change_count().await.unwrap();
    assert_ne!(changed, seen);
    assert_eq!(store.external_change_count().await, Ok(changed));
}

/// Processes that share a file send no hints, and a node that a call is forwarded to may not know
/// its session.
#[tokio::test]
async fn a_store_signals_calls_that_other_processes_forward_to_its_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let (store, other) = (open(&file), open(&file));
    let signal_recorder: Arc<SignalRecorder> = Arc::default();
    store.subscribe(Arc::<SignalRecorder>::clone(&signal_recorder));
    let there = NodeId(8);
    store.join(NODE, NOW).await.unwrap();
    other.join(there, NOW).await.unwrap();
    let session = open_session(&other, 1).await;
    store.external_change_count().await.unwrap();
    assert!(signal_recorder.take().is_empty());
    let request = Request { text: Bytes::from_static(b"do"), reassignable: true };
    let forwarded_begin =
        Begin { owner: NODE, requests: vec![Some(request)], ..Begin::local(there, 1, vec![1.into()]) };
    let Begun::Begun { first, .. } = run(&other, session, forwarded_begin).await else { panic!("not begun") };
    store.external_change_count().await.unwrap();
    let signals = signal_recorder.take().remove(&session).unwrap_or_default();
    let [RecordedSignal::SessionUpdate { forwarded, .. }] = &signals[..] else { panic!("{signals:?}") };
    assert_eq!(*forwarded, [(first, NODE)]);
    store.external_change_count().await.unwrap();
    assert!(signal_recorder.take().is_empty(), "nothing has changed since");
    run(&other, session, message("theirs")).await;
    store.external_change_count().await.unwrap();
    assert_eq!(signal_recorder.take().remove(&session), Some(signals), "it is still to be run");
}

#[tokio::test]
async fn commits_with_power_durability_work() {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteOptions { durability: Durability::Power, ..SqliteOptions::default() };
    let store = SqliteStore::open(&folder.path().join("sessions.db"), Rules::default(), options).unwrap();
    let session = open_session(&store, 1).await;
    run(&store, session, message("hello")).await;
    assert_eq!(read(&store, session, FIRST).await.events.len(), 1);
}
