//! The Redis store keeps the contract, and what a server on the network adds to it.

mod access;
mod audit;
mod cluster;
mod database;
mod doubled;
mod economy;
mod older;
mod parts;
mod scripts;
mod secure;
mod troubled;

#[path = "../remote/common.rs"]
mod common;
#[path = "../remote/faults.rs"]
mod faults;
#[path = "../remote/news.rs"]
mod news;
#[path = "../remote/nodes.rs"]
mod nodes;
#[path = "../remote/proxy.rs"]
mod proxy;

use std::time::Duration;

use steadfast_session::{NodeId, Rules};
use steadfast_store::testing::Place;
use steadfast_store::testing::model::Model;
use steadfast_store::testing::server::{RedisServer, fresh_name};
use steadfast_store::{RedisOptions, RedisStore};

use database::ask;

struct Redis {
    server: &'static RedisServer,
    prefix: String,
}

impl Place for Redis {
    type Store = RedisStore;
    const KEEPS: bool = true;
    const SHARES: bool = true;
    const BOUNDS_BYTES: bool = false;
    const BOUNDS_BYTES_OF_PRINCIPALS: bool = false;
    const ONE_QUEUE: bool = false;

    fn is_here() -> bool {
        RedisServer::shared().is_some()
    }

    fn fresh() -> Self {
        Self { server: RedisServer::shared().expect("a Redis server"), prefix: fresh_name() }
    }

    fn open(&self, rules: Rules) -> RedisStore {
        let options = RedisOptions {
            prefix: self.prefix.clone(),
            // No test takes a node for dead because the machine is slow.
            node_ttl: Duration::from_secs(600),
            hears_others: false,
            ..RedisOptions::new(self.server.url())
        };
        RedisStore::open(rules, options).expect("the store opens")
    }

    /// In place of waiting until its nodes have been silent for too long.
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
