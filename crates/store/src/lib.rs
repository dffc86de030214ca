//! Session stores: the [`Store`] trait and its implementations.
//!
//! A [`Store`] applies one command to one session atomically. No other operation changes a session:
//! there is no load-modify-save anywhere. The rules of a session are those of
//! [`steadfast_session`]. A store decides where a session's data is kept, what that data survives,
//! and which nodes receive a signal when it changes.
//!
//! - [`MemoryStore`]: in the memory of one process.
//! - `SqliteStore`: in a file that the processes of one machine share.
//! - `RedisStore`, `PostgresStore`: in a database that processes on several machines share. The
//!   private module `remote` has what the two have in common.
//!
//! To add a store, implement [`Store`] and run the test suite of the `testing` module against it
//! (`store_contract!`).
#![forbid(unsafe_code)]

pub mod error;
mod memory;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod remote;
pub mod reply;
#[doc(hidden)]
pub mod sharded;
pub mod signal;
#[cfg(feature = "sqlite")]
mod sqlite;
mod store;
#[cfg(feature = "testing")]
pub mod testing;

pub use error::StoreError;
pub use memory::MemoryStore;
#[cfg(feature = "postgres")]
pub use postgres::{PostgresOptions, PostgresStore};
#[cfg(feature = "redis")]
pub use redis::{RedisOptions, RedisStore};
pub use reply::Reply;
pub use signal::{SessionUpdate, Signal, Subscriber};
#[cfg(feature = "sqlite")]
pub use sqlite::{Durability, SqliteOptions, SqliteStats, SqliteStore};
pub use store::{EvictionSample, Opened, SampledSession, Store, StoreExt, Usage};
