//! Where sessions are kept, as people write it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use steadfast_engine::Rules;
use steadfast_store::{MemoryStore, Store, StoreError};

pub use steadfast_store::Durability;

/// A store's address: `memory:`, `sqlite:PATH`, with the feature `redis` `redis://HOST`, and with the feature `postgres`
/// `postgres://HOST/DATABASE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// In this process, and gone with it.
    Memory,
    /// In a file, shared by every process of this machine that opens it.
    Sqlite(PathBuf),
    /// On a Redis or Valkey server (`redis://`, `rediss://`) or cluster (`redis+cluster://`, `rediss+cluster://`), shared by every
    /// process that reaches it.
    #[cfg(feature = "redis")]
    Redis(ServerUrl),
    /// In a PostgreSQL database (`postgres://`, `postgresql://`), shared by every process that reaches it.
    #[cfg(feature = "postgres")]
    Postgres(ServerUrl),
}

/// The address of a server. Has the user's password in it, if there is one, which is not shown.
#[cfg(any(feature = "postgres", feature = "redis"))]
#[derive(Clone, PartialEq, Eq)]
pub struct ServerUrl(String);

#[cfg(any(feature = "postgres", feature = "redis"))]
impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_password(&self.0))
    }
}

#[cfg(any(feature = "postgres", feature = "redis"))]
impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerUrl({self})")
    }
}

/// An address that can be shown to anybody: without who asks, and without a password among its settings.
fn without_password(text: &str) -> String {
    let (address, settings) = text.split_once('?').map_or((text, None), |(a, s)| (a, Some(s)));
    let mut shown = match (address.split_once("://"), address.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://…@{host}"),
        _ => address.to_owned(),
    };
    for (at, setting) in settings.into_iter().flat_map(|settings| settings.split('&')).enumerate() {
        shown.push(if at == 0 { '?' } else { '&' });
        match setting.split_once('=') {
            Some((name, _)) if name.contains("password") => shown.extend([name, "=…"]),
            _ => shown.push_str(setting),
        }
    }
    shown
}

/// A text that is no store's address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no store. Write {forms}", forms = forms())]
pub struct StoreUrlError(String);

/// How addresses are written, as a list in a sentence.
fn forms() -> String {
    let mut forms = vec!["`memory:`", "`sqlite:PATH`"];
    if cfg!(feature = "redis") {
        forms.push("`redis://HOST`");
    }
    if cfg!(feature = "postgres") {
        forms.push("`postgres://HOST/DATABASE`");
    }
    let last = forms.pop().unwrap_or_default();
    format!("{} or {last}", forms.join(", "))
}

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
                Ok(Self::Redis(ServerUrl(text.to_owned())))
            }
            #[cfg(feature = "postgres")]
            _ if steadfast_store::PostgresOptions::parse(text).is_some() => {
                Ok(Self::Postgres(ServerUrl(text.to_owned())))
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
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => url.fmt(f),
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
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => {
                let no_address = || StoreError::Unavailable(format!("{url} is no address"));
                let options = steadfast_store::PostgresOptions::parse(&url.0).ok_or_else(no_address)?;
                Arc::new(steadfast_store::PostgresStore::open(rules, options)?)
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
        let error = "nosuch://h?x=1&password=s3cret&y=2".parse::<StoreUrl>().unwrap_err();
        assert!(error.to_string().starts_with("\"nosuch://h?x=1&password=…&y=2\" is no store."), "{error}");
        #[cfg(feature = "redis")]
        shown_as("rediss://u:s3cret@h/1?prefix=x", "rediss://…@h/1?prefix=x");
        #[cfg(feature = "postgres")]
        {
            shown_as("postgres://u:s3cret@h:1/d?schema=x", "postgres://…@h:1/d?schema=x");
            shown_as("postgresql://h/d?password=s3cret", "postgresql://h/d?password=…");
        }
    }

    #[cfg(any(feature = "postgres", feature = "redis"))]
    fn shown_as(text: &str, shown: &str) {
        let url: StoreUrl = text.parse().unwrap();
        assert_eq!(url.to_string(), shown);
        assert!(!format!("{url:?}").contains("s3cret"));
    }
}
