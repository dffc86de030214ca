//! [`PostgresStore`]: keeps sessions in PostgreSQL. Any number of processes on any number of
//! machines share them.
//!
//! A session is a row with its parts and its events. One function of the database commits to a
//! session; [`remote`](crate::remote) explains how. The tables and functions are in a schema that
//! the store creates and migrates by itself.

mod connection;
mod database;
mod errors;
mod hint_listener;
mod migrations;
mod options;
mod pool;
mod tls;

use std::time::Duration;

use steadfast_session::{NodeId, Rules};

use crate::error::StoreError;
use crate::remote::{RemoteStore, Settings, remote_store, session_ttl};
use database::PostgresDatabase;
pub use options::PostgresOptions;

/// A store in PostgreSQL, for processes on many machines. Dropping it waits until all queued
/// operations are done.
#[derive(Debug)]
pub struct PostgresStore(RemoteStore);

impl PostgresStore {
    /// Opens the store, and creates or migrates the schema. Fails if the server refuses that, or if
    /// a newer release has migrated the schema. If the server cannot be reached, this succeeds, and
    /// operations fail until the server can be reached.
    pub fn open(rules: Rules, options: PostgresOptions) -> Result<Self, StoreError> {
        let settings = Settings {
            heartbeat: options.heartbeat,
            retry_window: options.retry_window,
            retry_interval: Duration::from_millis(25),
            session_ttl: session_ttl(&rules),
            poll_interval: options.poll_interval,
            receives_hints: options.receives_hints,
        };
        let open = async move |hints| PostgresDatabase::open(&options, hints).await;
        RemoteStore::start("postgres-store", rules, settings, open).map(Self)
    }

    /// Returns the nodes that have joined through this store and have not left.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.0.nodes().iter().copied().collect()
    }
}

remote_store!(PostgresStore);
