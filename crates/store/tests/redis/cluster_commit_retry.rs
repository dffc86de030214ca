//! A connection to a cluster breaks during a commit: the client library must not repeat the commit
//! by itself.

use std::time::Duration;

use steadfast_store::RedisOptions;
use steadfast_store::testing::server::RedisServer;

use crate::connection_faults::check_that_a_forgotten_commit_is_unknown_and_done_once;
use crate::database::{ask, open, options};
use crate::proxy::Proxy;

#[tokio::test]
async fn a_commit_that_the_session_has_forgotten_is_not_repeated() {
    let Some(server) = RedisServer::start_single_node_cluster(&[]) else { return };
    let proxy = Proxy::start(server.port());
    // Clients that ask for the servers of the cluster get the address of the proxy.
    let () = ask(&server, &format!("CONFIG SET cluster-announce-port {}", proxy.port));
    let behind = RedisOptions {
        urls: vec![format!("redis://127.0.0.1:{}", proxy.port)],
        cluster: true,
        response_timeout: Duration::from_secs(10),
        retry_window: Duration::from_secs(20),
        heartbeat: Duration::from_secs(3600),
        receives_hints: false,
        ..options(&server, "t")
    };
    check_that_a_forgotten_commit_is_unknown_and_done_once(
        &open(behind),
        &open(options(&server, "t")),
        &proxy,
    )
    .await;
}
