//! Where sessions are kept, as people write it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use steadfast_engine::Rules;
use steadfast_store::{MemoryStore, Store, StoreError};

pub use steadfast_store::Durability;

/// A store's address: `memory:`, `sqlite:PATH` or, with the feature `redis`, `redis://HOST`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// In this process, and gone with it.
    Memory,
    /// In a file, shared by every process of this machine that opens it.
    Sqlite(PathBuf),
    /// On a Redis or Valkey server or cluster, shared by every process that reaches it. Has the user's password in it, if
    /// there is one, which `Display` leaves out.
    #[cfg(feature = "redis")]
    Redis(RedisUrl),
}

/// The address of a Redis or Valkey server (`redis://`, `rediss://`) or cluster (`redis+cluster://`, `rediss+cluster://`).
#[cfg(feature = "redis")]
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl(String);

#[cfg(feature = "redis")]
impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_password(&self.0))
    }
}

#[cfg(feature = "redis")]
impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisUrl({self})")
    }
}

/// An address that can be shown to anybody.
fn without_password(text: &str) -> String {
    match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://…@{host}"),
        _ => text.to_owned(),
    }
}

/// A text that is no store's address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "redis", error("{0:?} is no store. Write `memory:`, `sqlite:PATH` or `redis://HOST`"))]
#[cfg_attr(not(feature = "redis"), error("{0:?} is no store. Write `memory:` or `sqlite:PATH`"))]
pub struct StoreUrlError(String);

impl FromStr for StoreUrl {
    type Err = StoreUrlError;

    fn from_str(text: &str) -> Result<Self, StoreUrlError> {
        match text.split_once(':') {
            Some(("memory", "")) => Ok(Self::Memory),
            Some(("sqlite", path)) if !path.is_empty() => {
                Ok(Self::Sqlite(path.strip_prefix("//").unwrap_or(path).into()))
            }
            #[cfg(feature = "redis")]
            _ if steadfast_store::RedisOptions::parse(text).is_some() => {
                Ok(Self::Redis(RedisUrl(text.to_owned())))
            }
            _ => Err(StoreUrlError(without_password(text))),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            #[cfg(feature = "redis")]
            Self::Redis(url) => url.fmt(f),
        }
    }
}

impl StoreUrl {
    /// Opens the store (`durability` is for files), for those who share it between servers: [`Builder::custom_store`](crate::Builder::custom_store).
    pub fn open(&self, rules: Rules, durability: Durability) -> Result<Arc<dyn Store>, StoreError> {
        Ok(match self {
            Self::Memory => Arc::new(MemoryStore::new(rules)),
            Self::Sqlite(path) => {
                let options = steadfast_store::SqliteOptions { durability, ..Default::default() };
                Arc::new(steadfast_store::SqliteStore::open(path, rules, options)?)
            }
            #[cfg(feature = "redis")]
            Self::Redis(url) => {
                let no_address = || StoreError::Unavailable(format!("{url} is no address"));
                let options = steadfast_store::RedisOptions::parse(&url.0).ok_or_else(no_address)?;
                Arc::new(steadfast_store::RedisStore::open(rules, options)?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_their_password() {
        let error = "rediss//u:s3cret@h".parse::<StoreUrl>().map(drop);
        assert!(error.is_err());
        let error = "nosuch://u:s3cret@h".parse::<StoreUrl>().unwrap_err();
        assert!(!error.to_string().contains("s3cret"), "{error}");
        #[cfg(feature = "redis")]
        {
            let url: StoreUrl = "rediss://u:s3cret@h/1?prefix=x".parse().unwrap();
            assert_eq!(url.to_string(), "rediss://…@h/1?prefix=x");
            assert!(!format!("{url:?}").contains("s3cret"));
        }
    }
}
