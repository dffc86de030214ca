//! A process that is alive shows it, whatever else its connections are busy with.

use std::time::Duration;

use steadfast_store::Store as _;
use steadfast_store::testing::server::fresh_name;

use crate::common::{NOW, ONE, OTHER, id, server_or_skip};
use crate::database::{Options, Store, open, options, through};
use crate::proxy::{Cut, Proxy};

/// Three heartbeats may be late before a node counts as dead; a busy machine delays each of them.
const TTL: Duration = Duration::from_secs(3);

fn quick(options: Options) -> Options {
    Options { node_ttl: TTL, heartbeat: TTL / 4, hears_others: false, ..options }
}

/// Watches for longer than a node may be silent.
async fn stays_alive(watcher: &Store) {
    let start = tokio::time::Instant::now();
    while start.elapsed() < TTL + TTL / 3 {
        assert_eq!(watcher.bury_dead_nodes(NOW).await, Ok(0), "after {:?}", start.elapsed());
        assert_eq!(watcher.is_alive(ONE).await, Ok(true), "after {:?}", start.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_beat_without_an_answer_kills_nobody() {
    let (server, schema) = (server_or_skip!(), fresh_name());
    let proxy = Proxy::start(server.port());
    let (store, watcher) = (open(quick(through(proxy.port, &schema))), open(quick(options(server, &schema))));
    store.join(ONE, NOW).await.unwrap();
    watcher.join(OTHER, NOW).await.unwrap();
    proxy.cut(Cut::Silence);
    while proxy.waits() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    stays_alive(&watcher).await;
}

/// As many requests as may be under way at once, each of which takes its time: together longer than
/// a node may be silent.
#[tokio::test]
async fn a_beat_does_not_wait_for_other_requests() {
    let (server, schema) = (server_or_skip!(), fresh_name());
    let narrow = Options {
        connections: 1,
        response_timeout: Duration::from_secs(20),
        patience: Duration::from_secs(20),
        ..options(server, &schema)
    };
    let (store, watcher) = (open(quick(narrow)), open(quick(options(server, &schema))));
    store.join(ONE, NOW).await.unwrap();
    watcher.join(OTHER, NOW).await.unwrap();
    server.ask(&format!(
        "SET search_path TO \"{schema}\"; ALTER FUNCTION load RENAME TO load_quickly; \
         CREATE FUNCTION load(a bytea, b bytea) RETURNS found LANGUAGE sql SET search_path FROM CURRENT AS \
         'SELECT pg_sleep(0.12); SELECT load_quickly(a, b)'"
    ));
    let replies: Vec<_> = (0..40).map(|n| store.facts(id(n))).collect();
    stays_alive(&watcher).await;
    for reply in replies {
        assert_eq!(reply.await, Ok(None));
    }
}
