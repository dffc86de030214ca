//! What things cost: round trips and keys.

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

/// How often the server was asked something since the counts were reset, by the name of the command.
fn counts(server: &RedisServer) -> Vec<(String, u64)> {
    let calls = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
    };
    info(server, "commandstats").lines().filter_map(calls).collect()
}

/// The same, and resets them.
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
    // The first answer that is kept for a while is a reason to look at the session earlier.
    let (_, call) = begin_call(&store, session, ONE, 1).await;
    run(&store, session, finish(call, "answer")).await;
    requests(&server);
    for attempt in 2..12 {
        let (_, call) = begin_call(&store, session, ONE, attempt).await;
        run(&store, session, finish(call, "answer")).await;
    }
    let asked: u64 = requests(&server)
        .iter()
        // What a script does inside is counted by the server as well.
        .filter(|(name, _)| ["eval", "evalsha", "publish"].contains(&name.as_str()))
        .map(|(_, calls)| calls)
        .sum();
    assert_eq!(asked, 20, "ten calls, two round trips each");
}

/// Whoever asks whether a process is of use asks often.
#[tokio::test]
async fn whether_it_answers_costs_one_command() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let store = open(RedisOptions { heartbeat: Duration::from_secs(3600), ..options(&server, "t") });
    open_session(&store, 1).await;
    requests(&server);
    store.answers().await.unwrap();
    let asked: Vec<(String, u64)> = requests(&server)
        .into_iter()
        // What this test says itself.
        .filter(|(name, _)| !["config|resetstat", "info", "client|setinfo", "hello"].contains(&name.as_str()))
        .collect();
    assert_eq!(asked, [("exists".to_owned(), 1)]);
}

/// How often the server was asked this.
fn asked(server: &RedisServer, names: &[&str]) -> u64 {
    let found = counts(server).into_iter().filter(|(name, _)| names.contains(&name.as_str()));
    found.map(|(_, calls)| calls).sum()
}

/// What a waiting stream costs with each look, and what a call costs where others have served the session.
#[tokio::test]
async fn a_look_is_one_command_and_so_is_each_other_node_that_is_told() {
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
    assert_eq!(asked(&server, &["eval", "evalsha"]), 10, "ten looks");
    for attempt in 1..11 {
        let (_, call) = begin_call(&stores[0], session, ONE, attempt).await;
        run(&stores[0], session, finish(call, "answer")).await;
    }
    // Nobody waits for that.
    let published = async || (asked(&server, &["publish"]) >= 20).then_some(());
    eventually("news of ten answers for two others", published).await;
    assert_eq!(asked(&server, &["publish"]), 20, "and of nothing else");
}

fn numbered(n: u8) -> Facts {
    Facts { principal: Principal::new("somebody"), ..facts(id(n)) }
}

fn keys(server: &RedisServer) -> u64 {
    ask(server, "DBSIZE")
}

/// Each key has a price of its own. How many bytes a session takes depends on the server: `cargo
/// xtask bench nodes` prints it.
#[tokio::test]
async fn an_idle_session_is_one_key() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let store = open(RedisOptions { heartbeat: Duration::from_secs(3600), ..options(&server, "t") });
    store.join(ONE, NOW).await.unwrap();
    // The first one makes the lists that all of them share.
    store.open(numbered(0)).await.unwrap();
    let before = keys(&server);
    for n in 1..=20 {
        store.open(numbered(n)).await.unwrap();
    }
    assert_eq!(keys(&server) - before, 20);
}

/// A process that has served a session is named in the session's key, and the session on the one
/// list of the process.
#[tokio::test]
async fn another_node_adds_no_key_to_a_session() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let quiet =
        RedisOptions { heartbeat: Duration::from_secs(3600), hears_others: false, ..options(&server, "t") };
    let (one, other) = (open(quiet.clone()), open(quiet));
    one.join(ONE, NOW).await.unwrap();
    other.join(OTHER, NOW).await.unwrap();
    let attach = async |store: &RedisStore, node, at, n| {
        let attached = run(store, id(n), Attach { at, node }).await;
        assert!(matches!(attached, Attached::Attached { .. }), "{attached:?}");
    };
    let again = Position::After { stream: FIRST, seq: 0 };
    for n in 0..=20 {
        one.open(numbered(n)).await.unwrap();
        attach(&one, ONE, Position::Standalone, n).await;
    }
    // The first one makes the list of this process.
    attach(&other, OTHER, again, 0).await;
    let before = keys(&server);
    for n in 1..=20 {
        attach(&other, OTHER, again, n).await;
    }
    assert_eq!(keys(&server), before);
}
