//! The PostgreSQL store keeps the contract, and what a server on the network adds to it.

mod audit;
mod beats;
mod database;
mod economy;
mod older;
mod schema;
mod secure;
mod waits;

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
use steadfast_store::testing::server::fresh_name;

use database::{Options, Server, Store, options};

struct Postgres {
    server: &'static Server,
    schema: String,
}

impl Place for Postgres {
    type Store = Store;
    const KEEPS: bool = true;
    const SHARES: bool = true;
    const FORESEES_PRINCIPALS: bool = false;
    const BOUNDS_BYTES: bool = false;
    const BOUNDS_BYTES_OF_PRINCIPALS: bool = false;
    const ONE_QUEUE: bool = false;

    fn is_here() -> bool {
        Server::shared().is_some()
    }

    fn fresh() -> Self {
        Self { server: Server::shared().expect("a server"), schema: fresh_name() }
    }

    fn open(&self, rules: Rules) -> Store {
        // No test takes a node for dead because the machine is slow.
        let node_ttl = Duration::from_secs(600);
        let options = Options { node_ttl, hears_others: false, ..options(self.server, &self.schema) };
        Store::open(rules, options).expect("the store opens")
    }

    /// In place of waiting until its nodes have been silent for too long.
    fn close(&self, store: Store) {
        let nodes = store.nodes();
        drop(store);
        let nodes: Vec<String> = nodes.iter().map(|NodeId(node)| node.cast_signed().to_string()).collect();
        if !nodes.is_empty() {
            let schema = &self.schema;
            self.server.ask(&format!(
                "UPDATE \"{schema}\".node SET beat = 0 WHERE id IN ({}); UPDATE \"{schema}\".pulse SET since = 0",
                nodes.join(", ")
            ));
        }
    }

    fn audit(&self, model: &Model) -> Result<(), String> {
        audit::audit(self.server, &self.schema, model)
    }
}

steadfast_store::store_contract!(Postgres);
