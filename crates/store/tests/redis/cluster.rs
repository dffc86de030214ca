//! The contract on a cluster of three servers, hints across servers, and moving slots.

use std::sync::Arc;
use std::time::Duration;

use redis::cluster::ClusterClient;
use steadfast_session::command::Cancel;
use steadfast_session::{NodeId, Rules};
use steadfast_store::testing::StoreFixture;
use steadfast_store::testing::server::{RedisCluster, fresh_name};
use steadfast_store::testing::signal_recorder::{RecordedSignal, SignalRecorder};
use steadfast_store::{RedisOptions, RedisStore, Store};

use crate::common::{FIRST, NOW, ONE, OTHER, begin_call, eventually, message, open_session, run, texts};
use crate::database::open;

struct Cluster {
    cluster: &'static RedisCluster,
    prefix: String,
}

impl Cluster {
    fn options(&self) -> RedisOptions {
        let urls = self.cluster.urls();
        RedisOptions { urls, cluster: true, prefix: self.prefix.clone(), ..RedisOptions::new("") }
    }
}

impl StoreFixture for Cluster {
    type Store = RedisStore;
    const PERSISTS: bool = true;
    const IS_SHARED: bool = true;
    const LIMITS_STORE_BYTES: bool = false;
    const LIMITS_PRINCIPAL_BYTES: bool = false;
    const HAS_ONE_QUEUE: bool = false;

    fn is_available() -> bool {
        RedisCluster::shared().is_some()
    }

    fn fresh() -> Self {
        Self { cluster: RedisCluster::shared().expect("a cluster"), prefix: fresh_name() }
    }

    fn open(&self, rules: Rules) -> RedisStore {
        let node_ttl = Duration::from_secs(600);
        let options = RedisOptions { node_ttl, receives_hints: false, ..self.options() };
        RedisStore::open(rules, options).expect("the store opens")
    }

    /// Makes the heartbeats of the store's nodes old instead of waiting for `node_ttl`.
    fn close(&self, store: RedisStore) {
        let nodes = store.nodes();
        drop(store);
        if nodes.is_empty() {
            return;
        }
        let client = ClusterClient::new(self.cluster.urls()).expect("a client");
        let mut connection = client.get_connection().expect("a connection");
        for NodeId(node) in nodes {
            let mut silence = redis::cmd("ZADD");
            silence.arg(format!("{{{}}}:nodes", self.prefix)).arg("XX").arg(0).arg(format!("{node:016x}"));
            let () = silence.query(&mut connection).expect("the cluster answers");
            let mut long_ago = redis::cmd("HSET");
            long_ago.arg(format!("{{{}}}:pulse", self.prefix)).arg("since").arg(0);
            let () = long_ago.query(&mut connection).expect("the cluster answers");
        }
    }
}

steadfast_store::store_contract!(Cluster);

#[tokio::test]
async fn hints_reach_their_node_across_the_cluster() {
    let Some(cluster) = RedisCluster::shared() else { return };
    let fixture = Cluster { cluster, prefix: fresh_name() };
    let (one, other) = (open(fixture.options()), open(fixture.options()));
    let signal_recorder: Arc<SignalRecorder> = Arc::default();
    one.subscribe(Arc::<SignalRecorder>::clone(&signal_recorder));
    one.join(ONE, NOW).await.unwrap();
    other.join(OTHER, NOW).await.unwrap();
    for n in 0..16 {
        let session = open_session(&one, n).await;
        let (_, call) = begin_call(&one, session, ONE, 1).await;
        run(&other, session, Cancel { id: 1.into() }).await;
        let stops = |signal: &RecordedSignal| matches!(signal, RecordedSignal::SessionUpdate { stopped, .. } if *stopped == [(call, ONE)]);
        let signal = || async {
            signal_recorder.take().into_values().flatten().any(|signal| stops(&signal)).then_some(())
        };
        eventually("the cancellation", signal).await;
    }
}

/// The slot of a session moves to another server while the session is in use. No command is lost,
/// repeated or refused.
#[tokio::test]
async fn a_slot_moves_to_another_server_while_its_session_is_used() {
    let Some(cluster) = RedisCluster::shared() else { return };
    let fixture = Cluster { cluster, prefix: fresh_name() };
    let (one, other) = (open(fixture.options()), open(fixture.options()));
    let session = open_session(&one, 77).await;
    let rows = format!("{}:{{{}}}", fixture.prefix, session.text());
    run(&one, session, message("0")).await;
    run(&other, session, message("1")).await;
    let mut sent = 2;
    let mut connections: Vec<_> = cluster
        .urls()
        .into_iter()
        .map(|url| redis::Client::open(url).and_then(|client| client.get_connection()).expect("a connection"))
        .collect();
    let mut names = Vec::new();
    for connection in &mut connections {
        names.push(run_command::<String>(connection, "CLUSTER MYID"));
    }
    let slot: u64 = run_command(&mut connections[0], &format!("CLUSTER KEYSLOT {rows}"));
    let is_available = |connection: &mut redis::Connection| {
        try_command::<bool>(connection, &format!("EXISTS {rows}")) == Some(true)
    };
    let from = connections.iter_mut().position(is_available).expect("the session is on one of them");
    let to = (from + 1) % connections.len();
    let port = cluster.urls()[to].rsplit(':').next().expect("a port").to_owned();
    let steps = [
        (to, format!("CLUSTER SETSLOT {slot} IMPORTING {}", names[from])),
        (from, format!("CLUSTER SETSLOT {slot} MIGRATING {}", names[to])),
        (from, format!("MIGRATE 127.0.0.1 {port} {rows} 0 5000")),
        (from, format!("MIGRATE 127.0.0.1 {port} {rows}:log 0 5000")),
        (to, format!("CLUSTER SETSLOT {slot} NODE {}", names[to])),
        (from, format!("CLUSTER SETSLOT {slot} NODE {}", names[to])),
    ];
    for (which, step) in &steps {
        let () = run_command(&mut connections[*which], step);
        // While the two keys are on different servers, the cluster replies with TRYAGAIN.
        if step.starts_with("MIGRATE") && !step.contains(":log") {
            continue;
        }
        for store in [&one, &other] {
            run(store, session, message(&sent.to_string())).await;
            sent += 1;
        }
    }
    let expected: Vec<String> = (0..sent).map(|n| n.to_string()).collect();
    assert_eq!(texts(&one, session, FIRST).await, expected);
    assert_eq!(texts(&other, session, FIRST).await, expected);
}

fn run_command<T: redis::FromRedisValue>(connection: &mut redis::Connection, command: &str) -> T {
    try_command(connection, command).unwrap_or_else(|| panic!("the server refuses {command}"))
}

fn try_command<T: redis::FromRedisValue>(connection: &mut redis::Connection, command: &str) -> Option<T> {
    let mut request = redis::Cmd::new();
    command.split(' ').for_each(|word| {
        request.arg(word);
    });
    request.query(connection).ok()
}
