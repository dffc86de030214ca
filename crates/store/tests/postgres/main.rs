//! The PostgreSQL store passes the contract. Further tests cover what a server on the network adds.

mod audit;
mod costs;
mod database;
mod heartbeats;
mod locks_and_listeners;
mod older_schemas;
mod schema;
mod tls;

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
use steadfast_store::testing::server::fresh_name;

use database::{Options, Server, Store, options};

struct Postgres {
    server: &'static Server,
    schema: String,
}

impl StoreFixture for Postgres {
    type Store = Store;
    const PERSISTS: bool = true;
    const IS_SHARED: bool = true;
    const PREDICTS_PRINCIPAL_LIMIT: bool = false;
    const LIMITS_STORE_BYTES: bool = false;
    const LIMITS_PRINCIPAL_BYTES: bool = false;
    const HAS_ONE_QUEUE: bool = false;

    fn is_available() -> bool {
        Server::shared().is_some()
    }

    fn fresh() -> Self {
        Self { server: Server::shared().expect("a server"), schema: fresh_name() }
    }

    fn open(&self, rules: Rules) -> Store {
        // Long, so that no node counts as dead because the machine is slow.
        let node_ttl = Duration::from_secs(600);
        let options = Options { node_ttl, receives_hints: false, ..options(self.server, &self.schema) };
        Store::open(rules, options).expect("the store opens")
    }

    /// Makes the heartbeats of the store's nodes old instead of waiting for `node_ttl`.
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
