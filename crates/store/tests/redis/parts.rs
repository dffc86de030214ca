//! A cluster of which a part is down.

use std::time::Duration;

use steadfast_store::testing::server::{RedisCluster, RedisServer};
use steadfast_store::{RedisOptions, Store as _};

use crate::common::{NOW, ONE, eventually, open_session};
use crate::database::{ask, open};

/// Whether a server has the lists of this prefix.
fn has_lists(server: &RedisServer, prefix: &str) -> bool {
    let keys: Vec<String> = ask(server, &format!("KEYS {{{prefix}}}:*"));
    !keys.is_empty()
}

#[tokio::test]
async fn the_rest_answers_and_is_counted() {
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
    let other = cluster.servers().iter_mut().find(|server| !has_lists(server, "t"));
    other.expect("the lists are in one place").kill();
    // Until the client has found out, each request may be one of those that fail.
    eventually("an answer", async || store.answers().await.ok()).await;
    for _ in 0..10 {
        assert_eq!(store.answers().await, Ok(()));
    }
    let usage = eventually("a count", async || store.usage().await.ok()).await;
    assert_eq!(usage.sessions, u64::from(SESSIONS));
}
