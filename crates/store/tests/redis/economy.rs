//! What things cost: round trips and bytes.

use std::time::Duration;

use steadfast_session::{Principal, SessionId};
use steadfast_store::testing::server::RedisServer;
use steadfast_store::{RedisOptions, Store};

use crate::common::{NOW, ONE, begin_call, facts, finish, open_session, run};
use crate::database::{ask, open, options};

fn info(server: &RedisServer, section: &str) -> String {
    ask(server, &format!("INFO {section}"))
}

/// How often the server was asked something since the last time, by the name of the command.
fn requests(server: &RedisServer) -> Vec<(String, u64)> {
    let calls = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
    };
    let found = info(server, "commandstats").lines().filter_map(calls).collect();
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

#[tokio::test]
async fn an_idle_session_is_small() {
    const SESSIONS: u32 = 1000;
    let Some(server) = RedisServer::start(&[]) else { return };
    let store = open(options(&server, "steadfast"));
    store.join(ONE, NOW).await.unwrap();
    let used = |server: &RedisServer| -> u64 {
        let memory = info(server, "memory");
        let line = memory.lines().find_map(|line| line.strip_prefix("used_memory:"));
        line.and_then(|text| text.trim().parse().ok()).expect("a number")
    };
    let before = used(&server);
    for n in 0..SESSIONS {
        let mut id = [0; SessionId::BYTES];
        id[..4].copy_from_slice(&n.to_be_bytes());
        let facts = facts(SessionId::from_random(id));
        let facts = steadfast_session::Facts { principal: Principal::new("somebody"), ..facts };
        store.open(facts).await.unwrap();
    }
    let each = (used(&server) - before) / u64::from(SESSIONS);
    println!("{each} bytes for an idle session, with its places in all lists");
    assert!(each <= 1024, "{each}");
}
