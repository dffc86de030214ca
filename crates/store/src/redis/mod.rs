//! [`RedisStore`]: keeps sessions in Redis or Valkey, on one server or on a cluster. Any number of
//! processes on any number of machines share them.
//!
//! A session is two hashes, its rows and its events, in one slot of a cluster. One script commits
//! to a session; [`remote`](crate::remote) explains how. A few index keys beside the sessions help
//! to find them.

mod cluster;
mod connection;
mod database;
mod keys;
mod single_server;

use std::time::Duration;

use steadfast_session::{NodeId, Rules};

use crate::error::StoreError;
use crate::remote::{RemoteStore, Settings, remote_store, session_ttl};
use connection::Connection;
use database::RedisDatabase;

/// How to reach and use Redis.
#[derive(Clone)]
pub struct RedisOptions {
    /// The addresses: `redis://` or, with TLS, `rediss://`, with user name and password if needed.
    /// For a cluster one of its nodes is enough; several are safer.
    pub urls: Vec<String>,
    /// Whether the addresses are those of a cluster.
    pub cluster: bool,
    /// The prefix of all keys, for stores that share a server.
    pub prefix: String,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long one request may take.
    pub response_timeout: Duration,
    /// How long a request is retried while the server does not reply. After that the operation
    /// fails.
    pub retry_window: Duration,
    /// How often this process sends a heartbeat.
    pub heartbeat: Duration,
    /// After how long without a heartbeat a node counts as dead.
    pub node_ttl: Duration,
    /// How often nodes poll for changes of other processes whose hint was lost.
    pub poll_interval: Duration,
    /// Whether to send and receive hints, and to signal what other processes change. Tests that
    /// count signals turn this off.
    #[doc(hidden)]
    pub receives_hints: bool,
}

impl RedisOptions {
    /// Parses an address: `redis://[USER:PASSWORD@]HOST[:PORT][/DB]`, with TLS `rediss://`, and for
    /// a cluster `redis+cluster://` or `rediss+cluster://` with one or more of its nodes, separated
    /// by commas.
    ///
    /// Settings may follow, as in `?prefix=NAME&node_ttl=3000`: the prefix of all keys, and after
    /// how many milliseconds without a heartbeat a process counts as dead. Returns `None` if the
    /// address is invalid.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, settings) = text.split_once('?').unwrap_or((text, ""));
        let (scheme, rest) = address.split_once("://")?;
        let (scheme, cluster) = match scheme.strip_suffix("+cluster") {
            Some(scheme) => (scheme, true),
            None => (scheme, false),
        };
        if scheme != "redis" && scheme != "rediss" {
            return None;
        }
        let (user, hosts) = rest.rsplit_once('@').map_or(("", rest), |(user, hosts)| (user, hosts));
        let at = if user.is_empty() { "" } else { "@" };
        let hosts: Vec<&str> = if cluster { hosts.split(',').collect() } else { vec![hosts] };
        let urls: Vec<String> = hosts.iter().map(|host| format!("{scheme}://{user}{at}{host}")).collect();
        let fits =
            hosts.iter().zip(&urls).all(|(host, url)| !host.is_empty() && Connection::is_valid_url(url));
        let mut options = Self { urls, cluster, ..Self::new("") };
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            match setting.split_once('=')? {
                ("prefix", name) if is_valid_prefix(name) => name.clone_into(&mut options.prefix),
                ("node_ttl", millis) => {
                    options.node_ttl = Duration::from_millis(millis.parse().ok().filter(|ttl| *ttl >= 100)?);
                    options.heartbeat = options.node_ttl / 4;
                }
                _ => return None,
            }
        }
        fits.then_some(options)
    }

    /// Returns the default options for one server.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            urls: vec![url.into()],
            cluster: false,
            prefix: "steadfast".to_owned(),
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_secs(1),
            retry_window: Duration::from_secs(3),
            heartbeat: Duration::from_millis(750),
            node_ttl: Duration::from_secs(3),
            poll_interval: Duration::from_secs(1),
            receives_hints: true,
        }
    }
}

/// Leaves out the addresses, which may contain a password.
impl std::fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = f.debug_struct("RedisOptions");
        text.field("cluster", &self.cluster).field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// Returns true if a prefix is allowed. Braces are not, because a cluster would use them to choose
/// the slot of a key.
fn is_valid_prefix(name: &str) -> bool {
    !name.is_empty() && !name.contains(['{', '}'])
}

/// A store in Redis, for processes on many machines. Dropping it waits until all queued operations
/// are done.
#[derive(Debug)]
pub struct RedisStore(RemoteStore);

impl RedisStore {
    /// Opens the store without waiting for the server. If the server cannot be reached, operations
    /// fail until it can. Fails if the prefix is not allowed.
    pub fn open(rules: Rules, options: RedisOptions) -> Result<Self, StoreError> {
        if !is_valid_prefix(&options.prefix) {
            return Err(StoreError::Unavailable(
                "the key prefix must not be empty and must not contain braces".into(),
            ));
        }
        let session_ttl = session_ttl(&rules);
        let settings = Settings {
            heartbeat: options.heartbeat,
            retry_window: options.retry_window,
            retry_interval: Duration::from_millis(25),
            session_ttl,
            poll_interval: options.poll_interval,
            receives_hints: options.receives_hints,
        };
        let open = async move |hints| {
            Connection::open(&options, hints).map(|connection| {
                RedisDatabase::new(connection, &options.prefix, session_ttl, options.node_ttl)
            })
        };
        RemoteStore::start("redis-store", rules, settings, open).map(Self)
    }

    /// Returns the nodes that have joined through this store and have not left.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.0.nodes().iter().copied().collect()
    }
}

remote_store!(RedisStore);

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the addresses, whether it is a cluster, and the prefix.
    fn parsed(text: &str) -> Option<(Vec<String>, bool, String)> {
        RedisOptions::parse(text).map(|options| (options.urls, options.cluster, options.prefix))
    }

    #[test]
    fn a_password_is_not_printed() {
        let options = RedisOptions::parse("redis://me:secret@host").expect("an address");
        assert!(!format!("{options:?}").contains("secret"));
    }

    #[test]
    fn addresses_are_parsed() {
        let expect = |text: &str, urls: &[&str], cluster: bool, prefix: &str| {
            let urls = urls.iter().map(|url| (*url).to_owned()).collect();
            assert_eq!(parsed(text), Some((urls, cluster, prefix.to_owned())), "{text}");
        };
        expect("redis://h", &["redis://h"], false, "steadfast");
        expect("rediss://u:p@h:1/2?prefix=x", &["rediss://u:p@h:1/2"], false, "x");
        expect("redis+cluster://:p@a:1,b:2", &["redis://:p@a:1", "redis://:p@b:2"], true, "steadfast");
        expect("rediss+cluster://a", &["rediss://a"], true, "steadfast");
        let quick = RedisOptions::parse("redis://h?node_ttl=1000&prefix=x").expect("an address");
        assert_eq!(
            (quick.node_ttl.as_millis(), quick.heartbeat.as_millis(), &*quick.prefix),
            (1000, 250, "x")
        );
        for bad in [
            "redis://h?node_ttl=1",
            "redis://h?what=1",
            "redis:",
            "redis://",
            "http://h",
            "redis://h?prefix=",
            "redis://h?prefix={x}",
            "redis+cluster://a,",
        ] {
            assert_eq!(parsed(bad), None, "{bad}");
        }
    }
}
