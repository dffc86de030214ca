//! What a commit promises: nothing is said before it, and without it nothing has happened.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rusqlite::Connection;
use steadfast_session::command::{AppendOutcome, Begin, Begun};
use steadfast_session::{NodeId, Request, Rules, StreamNo};
use steadfast_store::testing::recorder::{Heard, Recorder};
use steadfast_store::{Durability, SqliteOptions, SqliteStore, Store, StoreError, StoreExt};

use crate::common::{NODE, NOW, id, message, open, open_session, read, run};

const FIRST: StreamNo = StreamNo::FIRST_STANDALONE;

#[tokio::test]
async fn commands_that_wait_share_a_commit() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("sessions.db");
    let store = open(&file);
    let session = open_session(&store, 1).await;
    let before = store.stats();
    // While another process holds the file, commands pile up behind the first.
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
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("sessions.db");
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

/// Plants something in the file that makes the next write of an event fail, and takes it away again.
async fn check_failed_write(plant: &str, is_expected: fn(&StoreError) -> bool) {
    let place = tempfile::tempdir().expect("a directory for the test");
    let file = place.path().join("sessions.db");
    let store = open(&file);
    let recorder: Arc<Recorder> = Arc::default();
    store.subscribe(Arc::<Recorder>::clone(&recorder));
    let session = open_session(&store, 1).await;
    run(&store, session, message("before")).await;
    recorder.take();
    let other = Connection::open(&file).expect("the file opens");
    other.execute_batch(plant).expect("a fault is planted");
    let error = store.run(session, message("failed"), NOW).await.expect_err("the planted fault strikes");
    assert!(is_expected(&error), "{error:?}");
    assert!(recorder.take().is_empty(), "what did not happen was made heard");
    assert_eq!(read(&store, session, FIRST).await.entries.len(), 1);
    other.execute_batch("DROP TRIGGER planted").expect("the fault is gone");
    let outcome = run(&store, session, message("after")).await;
    assert_eq!(outcome, AppendOutcome::Appended { stream: FIRST, seq: 2 }, "memory and file differ");
    assert_eq!(read(&store, session, FIRST).await.entries.len(), 2);
}

#[tokio::test]
async fn a_failed_write_has_not_happened() {
    let plant = "CREATE TRIGGER planted BEFORE INSERT ON event BEGIN SELECT RAISE(ABORT, 'planted'); END";
    check_failed_write(plant, |error| matches!(error, StoreError::Unavailable(_))).await;
}

#[tokio::test]
async fn a_failed_commit_is_unknown() {
    // A constraint that is looked at only by the commit.
    let plant = "CREATE TABLE parent (x INTEGER PRIMARY KEY);
        CREATE TABLE child (x REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
        CREATE TRIGGER planted BEFORE INSERT ON event BEGIN INSERT INTO child VALUES (1); END";
    check_failed_write(plant, |error| matches!(error, StoreError::Unknown(_))).await;
}

#[tokio::test]
async fn an_unreadable_session_harms_no_other() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("sessions.db");
    let store = open(&file);
    let (bad, good) = (open_session(&store, 1).await, open_session(&store, 2).await);
    let other = Connection::open(&file).unwrap();
    other.execute("UPDATE session SET revision = '1999-01-01' WHERE id = ?1", [id(1).as_bytes()]).unwrap();
    let replies = [bad, good].map(|session| store.run(session, message("hello"), NOW));
    let [of_bad, of_good] = replies;
    assert!(matches!(of_bad.await, Err(StoreError::Corrupt(_))));
    assert!(of_good.await.is_ok());
    // The sweep that both are due for does not stumble over it either.
    let long_after = NOW.plus(Duration::from_secs(86_400));
    assert_eq!(store.sweep(long_after, 100).await, Ok(2));
    assert_eq!(store.facts(good).await, Ok(None));
}

#[tokio::test]
async fn dropping_a_store_finishes_what_is_queued() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("sessions.db");
    let store = open(&file);
    let session = open_session(&store, 1).await;
    let replies: Vec<_> = (0..500).map(|_| store.run(session, message("hello"), NOW)).collect();
    drop(replies);
    drop(store);
    assert_eq!(read(&open(&file), session, FIRST).await.entries.len(), 500);
}

#[tokio::test]
async fn a_store_notices_what_others_commit_and_nothing_else() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("sessions.db");
    let (store, other) = (open(&file), open(&file));
    let session = open_session(&store, 1).await;
    let seen = store.changes_elsewhere().await.unwrap();
    assert!(seen.is_some());
    run(&store, session, message("mine")).await;
    read(&other, session, FIRST).await;
    other.held(session, NODE).await.unwrap();
    assert_eq!(store.changes_elsewhere().await, Ok(seen));
    run(&other, session, message("theirs")).await;
    let changed = store.changes_elsewhere().await.unwrap();
    assert_ne!(changed, seen);
    assert_eq!(store.changes_elsewhere().await, Ok(changed));
}

/// Processes do not tell each other anything. Whoever is given a call may know nothing of its session.
#[tokio::test]
async fn a_store_tells_of_calls_that_others_give_to_its_nodes() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("sessions.db");
    let (store, other) = (open(&file), open(&file));
    let recorder: Arc<Recorder> = Arc::default();
    store.subscribe(Arc::<Recorder>::clone(&recorder));
    let there = NodeId(8);
    store.join(NODE, NOW).await.unwrap();
    other.join(there, NOW).await.unwrap();
    let session = open_session(&other, 1).await;
    store.changes_elsewhere().await.unwrap();
    assert!(recorder.take().is_empty());
    let request = Request { text: Bytes::from_static(b"do"), again: true };
    let mail = Begin { owner: NODE, requests: vec![Some(request)], ..Begin::here(there, 1, vec![1.into()]) };
    let Begun::Begun { first, .. } = run(&other, session, mail).await else { panic!("not begun") };
    store.changes_elsewhere().await.unwrap();
    let heard = recorder.take().remove(&session).unwrap_or_default();
    let [Heard::News { errands, .. }] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!(*errands, [(first, NODE)]);
    store.changes_elsewhere().await.unwrap();
    assert!(recorder.take().is_empty(), "nothing has changed since");
    run(&other, session, message("theirs")).await;
    store.changes_elsewhere().await.unwrap();
    assert_eq!(recorder.take().remove(&session), Some(heard), "it is still to be run");
}

#[tokio::test]
async fn power_safe_commits_work_alike() {
    let place = tempfile::tempdir().unwrap();
    let options = SqliteOptions { durability: Durability::Power, ..SqliteOptions::default() };
    let store = SqliteStore::open(&place.path().join("sessions.db"), Rules::default(), options).unwrap();
    let session = open_session(&store, 1).await;
    run(&store, session, message("hello")).await;
    assert_eq!(read(&store, session, FIRST).await.entries.len(), 1);
}
