//! The Redis store passes the contract. Further tests cover what a server on the network adds.

mod acl;
mod audit;
mod cluster;
mod cluster_commit_retry;
mod cluster_outage;
mod costs;
mod database;
mod older_formats;
mod script_flush;
mod tls;
mod unavailable_sessions;

#[path = "../remote/common.rs"]
mod common;
#[path = "../remote/connection_faults.rs"]
mod connection_faults;
#[path = "../remote/hints.rs"]
mod hints;
#[path = "../remote/nodes.rs"]
mod nodes;
#[path = "../remote/proxy.rs"]
mod proxy;

use std::time::Duration;

use steadfast_session::{NodeId, Rules};
use steadfast_store::testing::StoreFixture;
use steadfast_store::testing::model::Model;
use steadfast_store::testing::server::{RedisServer, fresh_name};
use steadfast_store::{RedisOptions, RedisStore};

use database::ask;

struct Redis {
    server: &'static RedisServer,
    prefix: String,
}

impl StoreFixture for Redis {
    type Store = RedisStore;
    const PERSISTS: bool = true;
    const IS_SHARED: bool = true;
    const LIMITS_STORE_BYTES: bool = false;
    const LIMITS_PRINCIPAL_BYTES: bool = false;
    const HAS_ONE_QUEUE: bool = false;

    fn is_available() -> bool {
        RedisServer::shared().is_some()
    }

    fn fresh() -> Self {
        Self { server: RedisServer::shared().expect("a Redis server"), prefix: fresh_name() }
    }

    fn open(&self, rules: Rules) -> RedisStore {
        let options = RedisOptions {
            prefix: self.prefix.clone(),
            // Long, so that no node counts as dead because the machine is slow.
            node_ttl: Duration::from_secs(600),
            receives_hints: false,
            ..RedisOptions::new(self.server.url())
        };
        RedisStore::open(rules, options).expect("the store opens")
    }

    /// Makes the heartbeats of the store's nodes old instead of waiting for `node_ttl`.
    fn close(&self, store: RedisStore) {
        let nodes = store.nodes();
        drop(store);
        for NodeId(node) in nodes {
            let () = ask(self.server, &format!("ZADD {{{}}}:nodes XX 0 {node:016x}", self.prefix));
            let () = ask(self.server, &format!("HSET {{{}}}:pulse since 0", self.prefix));
        }
    }

    fn audit(&self, model: &Model) -> Result<(), String> {
        audit::audit(self.server, &self.prefix, model)
    }
}

steadfast_store::store_contract!(Redis);
