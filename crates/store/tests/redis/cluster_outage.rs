//! A cluster with one server down.

use std::time::Duration;

use steadfast_store::testing::server::{RedisCluster, RedisServer};
use steadfast_store::{RedisOptions, Store as _};

use crate::common::{NOW, ONE, eventually, open_session};
use crate::database::{ask, open};

/// Returns true if a server has the index keys of this prefix.
fn has_indexes(server: &RedisServer, prefix: &str) -> bool {
    let keys: Vec<String> = ask(server, &format!("KEYS {{{prefix}}}:*"));
    !keys.is_empty()
}

#[tokio::test]
async fn the_other_servers_reply_and_are_counted() {
    const SESSIONS: u8 = 30;
    let Some(mut cluster) = RedisCluster::start(&["--cluster-require-full-coverage", "no"]) else { return };
    let store = open(RedisOptions {
        urls: cluster.urls(),
        cluster: true,
        prefix: "t".to_owned(),
        response_timeout: Duration::from_millis(300),
        connect_timeout: Duration::from_millis(300),
        ..RedisOptions::new("")
    });
    store.join(ONE, NOW).await.unwrap();
    for n in 0..SESSIONS {
        open_session(&store, n).await;
    }
    let other = cluster.servers().iter_mut().find(|server| !has_indexes(server, "t"));
    other.expect("one server has all index keys").kill();
    // Until the client has noticed the outage, any request may fail.
    eventually("an answer", async || store.ping().await.ok()).await;
    for _ in 0..10 {
        assert_eq!(store.ping().await, Ok(()));
    }
    let usage = eventually("a count", async || store.usage().await.ok()).await;
    assert_eq!(usage.sessions, u64::from(SESSIONS));
}
