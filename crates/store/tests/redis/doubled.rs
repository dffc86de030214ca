//! Commits on a cluster whose connection breaks: the client library must not send them again by itself.

use std::time::Duration;

use steadfast_store::RedisOptions;
use steadfast_store::testing::server::RedisServer;

use crate::database::{ask, open, options};
use crate::faults::is_unknown_and_done_once;
use crate::proxy::Proxy;

#[tokio::test]
async fn a_commit_that_nobody_remembers_is_not_done_twice() {
    let Some(server) = RedisServer::start_alone(&[]) else { return };
    let proxy = Proxy::start(server.port());
    // Whoever asks where the servers of the cluster are is sent to the proxy.
    let () = ask(&server, &format!("CONFIG SET cluster-announce-port {}", proxy.port));
    let behind = RedisOptions {
        urls: vec![format!("redis://127.0.0.1:{}", proxy.port)],
        cluster: true,
        response_timeout: Duration::from_secs(10),
        patience: Duration::from_secs(20),
        heartbeat: Duration::from_secs(3600),
        hears_others: false,
        ..options(&server, "t")
    };
    is_unknown_and_done_once(&open(behind), &open(options(&server, "t")), &proxy).await;
}
