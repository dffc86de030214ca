//! What operations cost: round trips and keys.

use std::time::Duration;

use steadfast_session::command::{Attach, Attached, Position};
use steadfast_session::{Facts, NodeId, Principal};
use steadfast_store::testing::server::RedisServer;
use steadfast_store::{RedisOptions, RedisStore, Store};

use crate::common::{
    FIRST, NOW, ONE, OTHER, begin_call, eventually, facts, finish, id, open_session, read, run,
};
use crate::database::{ask, open, options};

fn info(server: &RedisServer, section: &str) -> String {
    ask(server, &format!("INFO {section}"))
}

/// Returns how often the server has executed each command since the counts were reset.
fn counts(server: &RedisServer) -> Vec<(String, u64)> {
    let calls = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
    };
    info(server, "commandstats").lines().filter_map(calls).collect()
}

/// Returns the counts and resets them.
fn requests(server: &RedisServer) -> Vec<(String, u64)> {
    let found = counts(server);
    let () = ask(server, "CONFIG RESETSTAT");
    found
}

#[tokio::test]
async fn a_call_costs_two_round_trips() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let quiet = RedisOptions { heartbeat: Duration::from_secs(3600), ..options(&server, "t") };
    let store = open(quiet);
    store.join(ONE, NOW).await.unwrap();
    let session = open_session(&store, 1).await;
    // The first response that is retained schedules an earlier sweep of the session.
    let (_, call) = begin_call(&store, session, ONE, 1).await;
    run(&store, session, finish(call, "answer")).await;
    requests(&server);
    for attempt in 2..12 {
        let (_, call) = begin_call(&store, session, ONE, attempt).await;
        run(&store, session, finish(call, "answer")).await;
    }
    let executed: u64 = requests(&server)
        .iter()
        // The server also counts the commands that scripts execute.
        .filter(|(name, _)| ["eval", "evalsha", "publish"].contains(&name.as_str()))
        .map(|(_, calls)| calls)
        .sum();
    assert_eq!(executed, 20, "ten calls, two round trips each");
}

/// Readiness probes call this often.
#[tokio::test]
async fn a_ping_costs_one_command() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let store = open(RedisOptions { heartbeat: Duration::from_secs(3600), ..options(&server, "t") });
    open_session(&store, 1).await;
    requests(&server);
    store.ping().await.unwrap();
    let executed: Vec<(String, u64)> = requests(&server)
        .into_iter()
        // The commands of this test itself.
        .filter(|(name, _)| !["config|resetstat", "info", "client|setinfo", "hello"].contains(&name.as_str()))
        .collect();
    assert_eq!(executed, [("exists".to_owned(), 1)]);
}

/// Returns how often the server has executed these commands.
fn executed(server: &RedisServer, names: &[&str]) -> u64 {
    let found = counts(server).into_iter().filter(|(name, _)| names.contains(&name.as_str()));
    found.map(|(_, calls)| calls).sum()
}

/// What each poll of a waiting stream costs, and what a call costs if other nodes have served the
/// session.
#[tokio::test]
async fn a_poll_is_one_command_and_so_is_each_hint() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let quiet = RedisOptions { heartbeat: Duration::from_secs(3600), ..options(&server, "t") };
    let stores = [open(quiet.clone()), open(quiet.clone()), open(quiet)];
    let nodes = [ONE, OTHER, NodeId(99)];
    for (store, node) in stores.iter().zip(nodes) {
        store.join(node, NOW).await.unwrap();
    }
    let session = open_session(&stores[0], 1).await;
    for (store, node) in stores.iter().zip(nodes) {
        run(store, session, Attach { at: Position::Standalone, node }).await;
        read(store, session, FIRST).await;
    }
    requests(&server);
    for _ in 0..10 {
        read(&stores[2], session, FIRST).await;
    }
    assert_eq!(executed(&server, &["eval", "evalsha"]), 10, "ten looks");
    for attempt in 1..11 {
        let (_, call) = begin_call(&stores[0], session, ONE, attempt).await;
        run(&stores[0], session, finish(call, "answer")).await;
    }
    // No command waits for the hints.
    let published = async || (executed(&server, &["publish"]) >= 20).then_some(());
    eventually("hints of ten answers for two other nodes", published).await;
    assert_eq!(executed(&server, &["publish"]), 20, "and of nothing else");
}

fn numbered(n: u8) -> Facts {
    Facts { principal: Principal::new("client-a"), ..facts(id(n)) }
}

fn keys(server: &RedisServer) -> u64 {
    ask(server, "DBSIZE")
}

/// Each key has a fixed cost. How many bytes a session takes depends on the server: `cargo xtask
/// bench nodes` prints it.
#[tokio::test]
async fn an_idle_session_is_one_key() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let store = open(RedisOptions { heartbeat: Duration::from_secs(3600), ..options(&server, "t") });
    store.join(ONE, NOW).await.unwrap();
    // The first session creates the index keys.
    store.open(numbered(0)).await.unwrap();
    let before = keys(&server);
    for n in 1..=20 {
        store.open(numbered(n)).await.unwrap();
    }
    assert_eq!(keys(&server) - before, 20);
}

/// The session's key names the processes that have served it, and each process has one list of
/// sessions.
#[tokio::test]
async fn another_node_adds_no_key_to_a_session() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let quiet =
        RedisOptions { heartbeat: Duration::from_secs(3600), receives_hints: false, ..options(&server, "t") };
    let (one, other) = (open(quiet.clone()), open(quiet));
    one.join(ONE, NOW).await.unwrap();
    other.join(OTHER, NOW).await.unwrap();
    let attach = async |store: &RedisStore, node, at, n| {
        let attached = run(store, id(n), Attach { at, node }).await;
        assert!(matches!(attached, Attached::Attached { .. }), "{attached:?}");
    };
    let reassignable = Position::After { stream: FIRST, seq: 0 };
    for n in 0..=20 {
        one.open(numbered(n)).await.unwrap();
        attach(&one, ONE, Position::Standalone, n).await;
    }
    // The first session creates the list of this process.
    attach(&other, OTHER, reassignable, 0).await;
    let before = keys(&server);
    for n in 1..=20 {
        attach(&other, OTHER, reassignable, n).await;
    }
    assert_eq!(keys(&server), before);
}
