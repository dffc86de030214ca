//! Sessions in PostgreSQL: any number of processes on any number of machines share them.
//!
//! A session is a row, its parts and its events. One function of the database commits to it; see
//! [`remote`](crate::remote) for what that means. The functions and tables are in a schema that the store makes and
//! keeps up to date by itself.

mod backing;
mod failure;
mod line;
mod lines;
mod listener;
mod options;
mod schema;
mod tls;

use std::time::Duration;

use steadfast_session::{NodeId, Rules};

use crate::error::StoreError;
use crate::remote::{Remote, Settings, keep_for, remote_store};
use backing::Postgres;
pub use options::PostgresOptions;

/// The store for many machines that have a database. Dropping it finishes what is queued.
#[derive(Debug)]
pub struct PostgresStore(Remote);

impl PostgresStore {
    /// Makes the schema, or brings it up to date. A server that refuses that is an error, and so is one that holds a newer schema;
    /// one that cannot be reached is not: the store says so when it is used, and recovers by itself.
    pub fn open(rules: Rules, options: PostgresOptions) -> Result<Self, StoreError> {
        let settings = Settings {
            heartbeat: options.heartbeat,
            patience: options.patience,
            pause: Duration::from_millis(25),
            keep: keep_for(&rules),
            poll_interval: options.poll_interval,
            hears_others: options.hears_others,
        };
        let open = async move |news| Postgres::open(&options, news).await;
        Remote::start("postgres-store", rules, settings, open).map(Self)
    }

    /// Nodes that have joined through this store and not left.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.0.nodes().iter().copied().collect()
    }
}

remote_store!(PostgresStore);
