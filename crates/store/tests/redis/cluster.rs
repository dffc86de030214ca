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

use crate::common::{NOW, ONE, OTHER, begin_call, eventually, open, open_session, run};

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
