//! What operations cost: round trips, rows and index updates.

use std::time::Duration;

use steadfast_session::{Facts, Principal, SessionId};
use steadfast_store::Store as _;
use steadfast_store::testing::server::fresh_name;

use crate::common::{
    FIRST, NOW, ONE, begin_call, eventually, facts, finish, message, open_session, run, server_or_skip, texts,
};
use crate::database::{Options, Server, open, options};

/// Returns the functions that the store has called since the last time, one per line, with the
/// number of calls.
fn called(server: &Server) -> String {
    let calls = "SELECT substring(query from '\"t\"\\.(\\w+)'), calls FROM pg_stat_statements \
                 WHERE query LIKE 'SELECT * FROM \"t\".%' ORDER BY 1";
    let called = server.ask(calls);
    server.ask("SELECT FROM pg_stat_statements_reset()");
    called
}

#[tokio::test]
async fn a_call_costs_two_round_trips() {
    let Some(server) = Server::start(&["shared_preload_libraries=pg_stat_statements"]) else { return };
    server.ask("CREATE EXTENSION pg_stat_statements");
    let store = open(Options { heartbeat: Duration::from_secs(3600), ..options(&server, "t") });
    store.join(ONE, NOW).await.unwrap();
    called(&server);
    let session = open_session(&store, 1).await;
    assert_eq!(called(&server), "admit|1\ncommit|1\npresent|1", "a session");
    // The first response that is retained schedules an earlier sweep of the session.
    let (_, call) = begin_call(&store, session, ONE, 1).await;
    run(&store, session, finish(call, "answer")).await;
    called(&server);
    for attempt in 2..12 {
        let (_, call) = begin_call(&store, session, ONE, attempt).await;
        run(&store, session, finish(call, "answer")).await;
    }
    assert_eq!(called(&server), "commit|20", "ten calls, two round trips each");
}

fn numbered(n: u32) -> Facts {
    let mut id = [0; SessionId::BYTES];
    // Distributed like random ids.
    id[..4].copy_from_slice(&n.wrapping_mul(2_654_435_761).to_be_bytes());
    Facts { principal: Principal::new("client-a"), ..facts(SessionId::from_random(id)) }
}

#[tokio::test]
async fn an_idle_session_is_three_rows_and_leaves_nothing() {
    const SESSIONS: u32 = 1000;
    let (server, schema) = (server_or_skip!(), fresh_name());
    let store = open(options(server, &schema));
    store.join(ONE, NOW).await.unwrap();
    for n in 0..SESSIONS {
        store.open(numbered(n)).await.unwrap();
    }
    // A row that changes, a row that does not, and a row for the node that may hold something.
    // `cargo xtask bench nodes` prints how many bytes they take.
    for (table, rows) in
        [("session", "1000"), ("part", "1000"), ("event", "0"), ("presence", "1000"), ("tally", "1")]
    {
        assert_eq!(server.ask(&format!("SELECT count(*) FROM \"{schema}\".{table}")), rows, "{table}");
    }

    // The first sweep closes the sessions, a later one removes them.
    for days in 30..40 {
        store.sweep(NOW.plus(Duration::from_secs(days * 24 * 60 * 60)), 600).await.unwrap();
    }
    for table in ["session", "part", "event", "presence", "tally"] {
        assert_eq!(server.ask(&format!("SELECT count(*) FROM \"{schema}\".{table}")), "0", "{table}");
    }
    assert_eq!(server.ask(&format!("SELECT listed, open FROM \"{schema}\".total")), "0|0");
}

/// This must hold without statistics, which come later than the first rows.
#[tokio::test]
async fn no_command_scans_a_table() {
    let (server, schema) = (server_or_skip!(), fresh_name());
    let counts = |what: &str, tables: &str| {
        let from =
            format!("FROM pg_stat_user_tables WHERE schemaname = '{schema}' AND relname IN ({tables})");
        server.ask(&format!("SELECT {what} {from}"))
    };
    let whole = || counts("sum(seq_scan)", "'session', 'part', 'event', 'presence'");
    // The counts of a connection are visible when it ends. Creating the six indexes reads six
    // tables.
    drop(open(options(server, &schema)));
    eventually("the schema", || async { (whole() == "6").then_some(()) }).await;
    let store = open(Options { heartbeat: Duration::from_secs(3600), ..options(server, &schema) });
    store.join(ONE, NOW).await.unwrap();
    for n in 0..50 {
        let session = open_session(&store, n).await;
        for attempt in 1..6 {
            let (_, call) = begin_call(&store, session, ONE, attempt).await;
            run(&store, session, message("hello")).await;
            run(&store, session, finish(call, &"long ".repeat(300))).await;
        }
        texts(&store, session, FIRST).await;
        store.facts(session).await.unwrap();
    }
    drop(store);
    let updates = || counts("sum(n_tup_upd)", "'session'").parse().unwrap_or(0);
    eventually("the counts", || async { (updates() >= 750).then_some(()) }).await;
    assert_eq!(whole(), "6");
}

/// An update that changes no indexed column touches no index if its page has space (HOT). How often
/// it has space depends on the load: `cargo xtask bench nodes` prints it.
#[tokio::test]
async fn a_command_changes_no_indexed_column_of_a_session() {
    let (server, schema) = (server_or_skip!(), fresh_name());
    let store = open(options(server, &schema));
    store.join(ONE, NOW).await.unwrap();
    let session = open_session(&store, 1).await;
    // The first response that is retained schedules an earlier sweep of the session.
    let (_, call) = begin_call(&store, session, ONE, 1).await;
    run(&store, session, finish(call, "answer")).await;
    let columns = server.ask(&format!(
        "SELECT string_agg(DISTINCT quote_ident(attname), ', ') FROM pg_index JOIN pg_attribute \
         ON attrelid = indrelid AND attnum = ANY (indkey) WHERE indrelid = '\"{schema}\".session'::regclass"
    ));
    let indexed = || server.ask(&format!("SELECT {columns} FROM \"{schema}\".session"));
    let before = indexed();
    for attempt in 2..6 {
        let (_, call) = begin_call(&store, session, ONE, attempt).await;
        assert_eq!(indexed(), before, "a call");
        run(&store, session, message("hello")).await;
        assert_eq!(indexed(), before, "a message");
        run(&store, session, finish(call, &"long ".repeat(300))).await;
        assert_eq!(indexed(), before, "an answer");
    }
}
