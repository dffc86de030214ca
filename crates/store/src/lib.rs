//! Where sessions live.
//!
//! A [`Store`] applies one command to one session atomically, and that is the only way to change a session:
//! there is no load-modify-save anywhere. The rules are those of [`steadfast_session`]; a store adds where the
//! tables are kept, how long they survive, and who hears of a change.
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
pub use signal::{News, Signal, Subscriber};
#[cfg(feature = "sqlite")]
pub use sqlite::{Durability, SqliteOptions, SqliteStats, SqliteStore};
pub use store::{Opened, Store, StoreExt, Usage};
