//! Where sessions are kept, as people write it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use steadfast_engine::Rules;
use steadfast_store::{MemoryStore, Store, StoreError};

pub use steadfast_store::Durability;

/// A store's address: `memory:` or `sqlite:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// In this process, and gone with it.
    Memory,
    /// In a file, shared by every process of this machine that opens it.
    Sqlite(PathBuf),
}

/// A text that is no store's address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no store. Write `memory:` or `sqlite:PATH`")]
pub struct StoreUrlError(String);

impl FromStr for StoreUrl {
    type Err = StoreUrlError;

    fn from_str(text: &str) -> Result<Self, StoreUrlError> {
        match text.split_once(':') {
            Some(("memory", "")) => Ok(Self::Memory),
            Some(("sqlite", path)) if !path.is_empty() => {
                Ok(Self::Sqlite(path.strip_prefix("//").unwrap_or(path).into()))
            }
            _ => Err(StoreUrlError(text.to_owned())),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
        }
    }
}

impl StoreUrl {
    /// Opens the store, for those who share it between servers: [`Builder::custom_store`](crate::Builder::custom_store).
    pub fn open(&self, rules: Rules, durability: Durability) -> Result<Arc<dyn Store>, StoreError> {
        Ok(match self {
            Self::Memory => Arc::new(MemoryStore::new(rules)),
            Self::Sqlite(path) => {
                let options = steadfast_store::SqliteOptions { durability, ..Default::default() };
                Arc::new(steadfast_store::SqliteStore::open(path, rules, options)?)
            }
        })
    }
}
