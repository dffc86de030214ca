//! The contract on a cluster of three servers, and news across it.

use std::sync::Arc;
use std::time::Duration;

use redis::cluster::ClusterClient;
use steadfast_session::command::Cancel;
use steadfast_session::{NodeId, Rules};
use steadfast_store::testing::Place;
use steadfast_store::testing::recorder::{Heard, Recorder};
use steadfast_store::testing::server::{RedisCluster, fresh_name};
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

impl Place for Cluster {
    type Store = RedisStore;
    const KEEPS: bool = true;
    const SHARES: bool = true;
    const BOUNDS_BYTES: bool = false;
    const BOUNDS_BYTES_OF_PRINCIPALS: bool = false;
    const ONE_QUEUE: bool = false;

    fn is_here() -> bool {
        RedisCluster::shared().is_some()
    }

    fn fresh() -> Self {
        Self { cluster: RedisCluster::shared().expect("a cluster"), prefix: fresh_name() }
    }

    fn open(&self, rules: Rules) -> RedisStore {
        let node_ttl = Duration::from_secs(600);
        let options = RedisOptions { node_ttl, hears_others: false, ..self.options() };
        RedisStore::open(rules, options).expect("the store opens")
    }

    /// In place of waiting until its nodes have been silent for too long.
    fn close(&self, store: RedisStore) {
        let nodes = store.nodes();
        drop(store);
        if nodes.is_empty() {
            return;
        }
        let client = ClusterClient::new(self.cluster.urls()).expect("a client");
        let mut line = client.get_connection().expect("a connection");
        for NodeId(node) in nodes {
            let mut silence = redis::cmd("ZADD");
            silence.arg(format!("{{{}}}:nodes", self.prefix)).arg("XX").arg(0).arg(format!("{node:016x}"));
            let () = silence.query(&mut line).expect("the cluster answers");
            let mut long_ago = redis::cmd("HSET");
            long_ago.arg(format!("{{{}}}:pulse", self.prefix)).arg("since").arg(0);
            let () = long_ago.query(&mut line).expect("the cluster answers");
        }
    }
}

steadfast_store::store_contract!(Cluster);

#[tokio::test]
async fn news_reach_their_node_across_the_cluster() {
    let Some(cluster) = RedisCluster::shared() else { return };
    let place = Cluster { cluster, prefix: fresh_name() };
    let (one, other) = (open(place.options()), open(place.options()));
    let recorder: Arc<Recorder> = Arc::default();
    one.subscribe(Arc::<Recorder>::clone(&recorder));
    one.join(ONE, NOW).await.unwrap();
    other.join(OTHER, NOW).await.unwrap();
    for n in 0..16 {
        let session = open_session(&one, n).await;
        let (_, call) = begin_call(&one, session, ONE, 1).await;
        run(&other, session, Cancel { id: 1.into() }).await;
        let stops = |heard: &Heard| matches!(heard, Heard::News { stopped, .. } if *stopped == [(call, ONE)]);
        let heard =
            || async { recorder.take().into_values().flatten().any(|heard| stops(&heard)).then_some(()) };
        eventually("the cancellation", heard).await;
    }
}

/// A session's slot moves to another server while the session is used: nothing is lost, doubled or refused.
#[tokio::test]
async fn a_session_moves_to_another_server_while_it_is_used() {
    let Some(cluster) = RedisCluster::shared() else { return };
    let place = Cluster { cluster, prefix: fresh_name() };
    let (one, other) = (open(place.options()), open(place.options()));
    let session = open_session(&one, 77).await;
    let rows = format!("{}:{{{}}}", place.prefix, session.text());
    run(&one, session, message("0")).await;
    run(&other, session, message("1")).await;
    let mut said = 2;
    let mut lines: Vec<_> = cluster
        .urls()
        .into_iter()
        .map(|url| redis::Client::open(url).and_then(|client| client.get_connection()).expect("a connection"))
        .collect();
    let mut names = Vec::new();
    for line in &mut lines {
        names.push(tell::<String>(line, "CLUSTER MYID"));
    }
    let slot: u64 = tell(&mut lines[0], &format!("CLUSTER KEYSLOT {rows}"));
    let is_here =
        |line: &mut redis::Connection| tell_or_not::<bool>(line, &format!("EXISTS {rows}")) == Some(true);
    let from = lines.iter_mut().position(is_here).expect("the session is on one of them");
    let to = (from + 1) % lines.len();
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
        let () = tell(&mut lines[*which], step);
        // With one key here and one there, the cluster asks to try again until both are in one place.
        if step.starts_with("MIGRATE") && !step.contains(":log") {
            continue;
        }
        for store in [&one, &other] {
            run(store, session, message(&said.to_string())).await;
            said += 1;
        }
    }
    let expected: Vec<String> = (0..said).map(|n| n.to_string()).collect();
    assert_eq!(texts(&one, session, FIRST).await, expected);
    assert_eq!(texts(&other, session, FIRST).await, expected);
}

fn tell<T: redis::FromRedisValue>(line: &mut redis::Connection, command: &str) -> T {
    tell_or_not(line, command).unwrap_or_else(|| panic!("the server refuses {command}"))
}

fn tell_or_not<T: redis::FromRedisValue>(line: &mut redis::Connection, command: &str) -> Option<T> {
    let mut request = redis::Cmd::new();
    command.split(' ').for_each(|word| {
        request.arg(word);
    });
    request.query(line).ok()
}
