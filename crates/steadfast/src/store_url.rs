//! [`StoreUrl`]: parses, displays and opens the URL of a session store.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use steadfast_engine::Rules;
use steadfast_store::{MemoryStore, Store, StoreError};

pub use steadfast_store::Durability;

/// The URL of a session store: `memory:`, `sqlite:PATH`, `redis://HOST` (feature `redis`) or
/// `postgres://HOST/DATABASE` (feature `postgres`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// In the memory of this process. The sessions are lost when the process ends.
    Memory,
    /// In a file. Every process on this machine that opens the file shares the sessions.
    Sqlite(PathBuf),
    /// On a Redis or Valkey server (`redis://`, `rediss://`) or cluster (`redis+cluster://`,
    /// `rediss+cluster://`). Every process that connects to it shares the sessions.
    #[cfg(feature = "redis")]
    Redis(ServerUrl),
    /// In a PostgreSQL database (`postgres://`, `postgresql://`). Every process that connects to it
    /// shares the sessions.
    #[cfg(feature = "postgres")]
    Postgres(ServerUrl),
}

/// The URL of a database server. It may contain a password, which `Display` and `Debug` omit.
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

/// Returns the URL with its user, its password and every parameter that contains `password`
/// replaced by `…`, so that it can be logged.
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

/// The text is not the URL of a store that this build supports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a store URL. Use {forms}", forms = forms())]
pub struct StoreUrlError(String);

/// Returns the forms of URL that this build supports, as a list for a sentence.
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
    /// Opens the store. `durability` applies to files only.
    ///
    /// Several servers of one process can share the store: pass it to each of them with
    /// [`Builder::custom_store`](crate::Builder::custom_store).
    pub fn open(&self, rules: Rules, durability: Durability) -> Result<Arc<dyn Store>, StoreError> {
        Ok(match self {
            Self::Memory => Arc::new(MemoryStore::new(rules)),
            Self::Sqlite(path) => {
                let options = steadfast_store::SqliteOptions { durability, ..Default::default() };
                Arc::new(steadfast_store::SqliteStore::open(path, rules, options)?)
            }
            #[cfg(feature = "redis")]
            Self::Redis(url) => {
                let invalid = || StoreError::Unavailable(format!("{url} is not a valid URL"));
                let options = steadfast_store::RedisOptions::parse(&url.0).ok_or_else(invalid)?;
                Arc::new(steadfast_store::RedisStore::open(rules, options)?)
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => {
                let invalid = || StoreError::Unavailable(format!("{url} is not a valid URL"));
                let options = steadfast_store::PostgresOptions::parse(&url.0).ok_or_else(invalid)?;
                Arc::new(steadfast_store::PostgresStore::open(rules, options)?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_displayed_without_their_password() {
        let error = "rediss//u:s3cret@h".parse::<StoreUrl>().map(drop);
        assert!(error.is_err());
        let error = "nosuch://u:s3cret@h".parse::<StoreUrl>().unwrap_err();
        assert!(!error.to_string().contains("s3cret"), "{error}");
        let error = "nosuch://h?x=1&password=s3cret&y=2".parse::<StoreUrl>().unwrap_err();
        assert!(
            error.to_string().starts_with("\"nosuch://h?x=1&password=…&y=2\" is not a store URL."),
            "{error}"
        );
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
