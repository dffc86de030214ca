//! Long streams are read in pieces, by the index.

use rusqlite::Connection;
use steadfast_session::{Read, StreamNo};
use steadfast_store::{Store, StoreExt};

use crate::common::{NOW, message, open, open_session, run};

const FIRST: StreamNo = StreamNo::FIRST_STANDALONE;
const EVENTS: u64 = 3_000;

#[tokio::test]
async fn a_long_stream_is_read_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("sessions.db"));
    let session = open_session(&store, 1).await;
    let replies: Vec<_> = (0..EVENTS).map(|n| store.run(session, message(&n.to_string()), NOW)).collect();
    for reply in replies {
        reply.await.unwrap();
    }
    let (mut after, mut pieces) = (0, 0);
    while after < EVENTS {
        let read = store.read(session, FIRST, after, 10_000).await.unwrap();
        let Read::Slice(slice) = read else { panic!("{read:?}") };
        assert!(slice.events.iter().map(|entry| entry.seq).eq(after + 1..=slice.through));
        assert!(slice.events.iter().map(|entry| u64::from(entry.size)).sum::<u64>() <= 10_000);
        assert_eq!((slice.missing, slice.ended), (0, false));
        after = slice.through;
        pieces += 1;
    }
    assert!(pieces > 10);
}

/// Whatever SQLite's planner does in the future, no command and no read may scan a table.
#[tokio::test]
async fn reading_and_removing_use_the_index() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let store = open(&file);
    let session = open_session(&store, 1).await;
    run(&store, session, message("hello")).await;
    let connection = Connection::open(&file).unwrap();
    for (sql, index) in [
        (
            "SELECT seq FROM event WHERE session = 1 AND stream = 0 AND seq > 5 ORDER BY seq",
            "event_place (session=? AND stream=? AND seq>?)",
        ),
        ("DELETE FROM event WHERE session = 1", "event_place (session=?)"),
        (
            "DELETE FROM event WHERE session = 1 AND stream BETWEEN 3 AND 4",
            "event_place (session=? AND stream>",
        ),
        ("SELECT id FROM presence JOIN session ON key = presence.session WHERE node = 1", "presence_of_node"),
        ("SELECT session FROM agenda WHERE check_at <= 5 ORDER BY check_at", "PRIMARY KEY (check_at<?)"),
    ] {
        let explain = format!("EXPLAIN QUERY PLAN {sql}");
        let plan: Vec<String> = connection
            .prepare(&explain)
            .unwrap()
            .query_map([], |row| row.get(3))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        assert!(plan.iter().any(|step| step.contains(index)), "{sql}: {plan:?}");
        assert!(
            !plan.iter().any(|step| step.starts_with("SCAN") || step.contains("TEMP B-TREE")),
            "{plan:?}"
        );
    }
}
