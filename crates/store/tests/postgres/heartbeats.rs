//! A live process sends its heartbeats, however busy or stuck its other connections are.

use std::time::Duration;

use steadfast_store::Store as _;
use steadfast_store::testing::server::fresh_name;

use crate::common::{NOW, ONE, OTHER, id, server_or_skip};
use crate::database::{Options, Store, open, options, options_with_port};
use crate::proxy::{Cut, Proxy};

/// Three heartbeats may be late before a node counts as dead; a busy machine delays each of them.
const TTL: Duration = Duration::from_secs(3);

fn quick(options: Options) -> Options {
    Options { node_ttl: TTL, heartbeat: TTL / 4, receives_hints: false, ..options }
}

/// Checks for longer than `node_ttl` that the node counts as alive.
async fn stays_alive(watcher: &Store) {
    let start = tokio::time::Instant::now();
    while start.elapsed() < TTL + TTL / 3 {
        assert_eq!(watcher.reap_dead_nodes(NOW).await, Ok(0), "after {:?}", start.elapsed());
        assert_eq!(watcher.is_alive(ONE).await, Ok(true), "after {:?}", start.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_heartbeat_without_a_reply_is_repeated_in_time() {
    let (server, schema) = (server_or_skip!(), fresh_name());
    let proxy = Proxy::start(server.port());
    let (store, watcher) =
        (open(quick(options_with_port(proxy.port, &schema))), open(quick(options(server, &schema))));
    store.join(ONE, NOW).await.unwrap();
    watcher.join(OTHER, NOW).await.unwrap();
    proxy.cut(Cut::Silence);
    while proxy.is_pending() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    stays_alive(&watcher).await;
}

/// As many requests as can be in flight at once. Together they take longer than `node_ttl`.
#[tokio::test]
async fn a_heartbeat_does_not_wait_for_other_requests() {
    let (server, schema) = (server_or_skip!(), fresh_name());
    let narrow = Options {
        connections: 1,
        response_timeout: Duration::from_secs(20),
        retry_window: Duration::from_secs(20),
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
