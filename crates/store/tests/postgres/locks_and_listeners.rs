//! Row locks, `LISTEN` connections, flushing and pipelining in PostgreSQL.

use std::sync::Arc;
use std::time::Duration;

use steadfast_session::command::{AppendOutcome, Attach, Position};
use steadfast_store::Store as _;
use steadfast_store::testing::server::fresh_name;
use steadfast_store::testing::signal_recorder::{RecordedSignal, SignalRecorder};

use crate::common::{
    FIRST, NOW, ONE, OTHER, eventually, id, message, open_session, run, server_or_skip, texts,
};
use crate::database::{Options, Server, open, options};

/// Returns SQL that waits until this many calls of a function wait for a lock. It runs in the same
/// transaction as what precedes it.
fn until_waiting(calls: u8, schema: &str, function: &str) -> String {
    format!(
        "DO $$ BEGIN FOR i IN 1..600 LOOP \
           PERFORM pg_stat_clear_snapshot(); \
           IF (SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pid <> pg_backend_pid() \
               AND query LIKE '%\"{schema}\".{function}(%') >= {calls} THEN RETURN; END IF; \
           PERFORM pg_sleep(0.02); \
         END LOOP; RAISE 'no call waits'; END $$"
    )
}

/// Waits until a connection sleeps in the SQL of `until_waiting`, and so has executed what precedes
/// it.
async fn wait_until_asleep(server: &Server, schema: &str, what: &str) {
    let sleeps = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND query LIKE";
    let sleeps = format!("{sleeps} '%{schema}%{what}%' AND pid <> pg_backend_pid()");
    eventually("the other", || async { (server.ask(&sleeps) == "1").then_some(()) }).await;
}

/// The commit waits for a lock longer than the store waits for its reply, and takes effect after
/// that. The repeated commit must not take effect as well.
#[tokio::test]
async fn a_commit_that_waits_for_a_lock_happens_once() {
    let (server, schema) = (server_or_skip!(), fresh_name());
    let hasty = Options {
        response_timeout: Duration::from_millis(150),
        retry_window: Duration::from_secs(20),
        heartbeat: Duration::from_secs(3600),
        receives_hints: false,
        ..options(server, &schema)
    };
    let store = open(hasty);
    let session = open_session(&store, 1).await;
    run(&store, session, message("before")).await;
    let lock =
        format!("SELECT FROM \"{schema}\".session FOR UPDATE; {}", until_waiting(2, &schema, "commit"));
    let holder = std::thread::spawn(move || server.ask(&lock));
    wait_until_asleep(server, &schema, "FOR UPDATE").await;
    let appended = run(&store, session, message("mine")).await;
    assert!(matches!(appended, AppendOutcome::Appended { seq: 2, .. }), "{appended:?}");
    holder.join().expect("psql ends");
    run(&store, session, message("after")).await;
    assert_eq!(texts(&store, session, FIRST).await, ["before", "mine", "after"]);
}

#[tokio::test]
async fn hints_arrive_again_after_their_connection_was_cut() {
    let (server, schema) = (server_or_skip!(), fresh_name());
    let (one, other) = (open(options(server, &schema)), open(options(server, &schema)));
    let signal_recorder: Arc<SignalRecorder> = Arc::default();
    other.subscribe(Arc::<SignalRecorder>::clone(&signal_recorder));
    one.join(ONE, NOW).await.unwrap();
    other.join(OTHER, NOW).await.unwrap();
    let session = open_session(&one, 1).await;
    run(&other, session, Attach { at: Position::Standalone, node: OTHER }).await;
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE";
    assert_eq!(server.ask(&format!("{cut} 'LISTEN \"{schema}:%'")), "2");
    eventually("a hint", || async {
        run(&one, session, message("hello")).await;
        let grown = |signal: &RecordedSignal| matches!(signal, RecordedSignal::SessionUpdate { grown, .. } if *grown == [FIRST]);
        signal_recorder.take().into_values().flatten().any(|signal| grown(&signal)).then_some(())
    })
    .await;
}

/// One process records the presence of a node while another delists the node: one of them waits for
/// the other.
#[tokio::test]
async fn a_node_is_not_delisted_while_its_presence_is_recorded() {
    let (server, schema) = (server_or_skip!(), fresh_name());
    drop(open(options(server, &schema)));
    let present = format!("SELECT \"{schema}\".present('\\x01', 7, 1, true)");
    let delist = format!("SELECT \"{schema}\".strike(7, '{{}}', '{{}}', true, 0)");
    server.ask(&format!("SELECT \"{schema}\".beat('{{7}}', 1000)"));
    let recording = format!("{present}; {}", until_waiting(1, &schema, "strike"));
    let recording = std::thread::spawn(move || server.ask(&recording));
    wait_until_asleep(server, &schema, "present").await;
    assert_eq!(server.ask(&delist), "f", "its presence was recorded meanwhile");
    recording.join().expect("psql ends");
    assert_eq!(server.ask(&format!("SELECT id FROM \"{schema}\".node")), "7");
}

/// Commits of sessions are flushed as the server is configured. Changes of the indexes need not be
/// flushed.
#[tokio::test]
async fn only_commits_wait_for_the_disk() {
    let (server, schema) = (server_or_skip!(), fresh_name());
    drop(open(options(server, &schema)));
    let flushes = |call: &str| {
        let output =
            server.ask(&format!("BEGIN; SELECT \"{schema}\".{call}; SHOW synchronous_commit; ROLLBACK"));
        output.lines().last().unwrap_or_default() == "on"
    };
    for call in [
        "admit('\\x01', '', 1, 9, 9)",
        "release('\\x01')",
        "forget('\\x01', '{}')",
        "remove('\\x01', '')",
        "schedule('\\x01', 1)",
        "reschedule('\\x01', 1, 2)",
        "beat('{1}', 9)",
        "present('\\x01', 1, 1, true)",
        "strike(1, '{}', '{}', true, 9)",
        "tell('{a}', 'b')",
    ] {
        assert!(!flushes(call), "{call}");
    }
    let nothing = "'{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}'";
    assert!(flushes(&format!("commit('\\x01', '', '\\x02', NULL, {nothing})")), "a commit");
}

/// Many requests on a slow server: none of them times out, and is sent again, because it waits
/// behind others.
#[tokio::test]
async fn a_queued_request_does_not_time_out() {
    let (server, schema) = (server_or_skip!(), fresh_name());
    let narrow = Options {
        connections: 1,
        response_timeout: Duration::from_secs(4),
        retry_window: Duration::from_secs(20),
        heartbeat: Duration::from_secs(3600),
        ..options(server, &schema)
    };
    let store = open(narrow);
    server.ask(&format!(
        "SET search_path TO \"{schema}\"; CREATE SEQUENCE loads; ALTER FUNCTION load RENAME TO load_quickly; \
         CREATE FUNCTION load(a bytea, b bytea) RETURNS found LANGUAGE sql SET search_path FROM CURRENT AS \
         'SELECT pg_sleep(0.03), nextval(''loads''); SELECT load_quickly(a, b)'"
    ));
    let replies: Vec<_> = (0..150).map(|n| store.facts(id(n))).collect();
    for reply in replies {
        assert_eq!(reply.await, Ok(None));
    }
    assert_eq!(server.ask(&format!("SELECT last_value FROM \"{schema}\".loads")), "150");
}
