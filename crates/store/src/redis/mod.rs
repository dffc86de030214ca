//! Sessions in Redis or Valkey, on one server or on a cluster: any number of processes on any number of machines share them.
//!
//! A session is two hashes, its rows and its events, which a cluster keeps together. One script commits to it; see
//! [`remote`](crate::remote) for what that means. Beside the sessions there are a few lists that help to find them.

mod backing;
mod cluster;
mod keys;
mod link;
mod single;

use std::time::Duration;

use steadfast_session::{NodeId, Rules};

use crate::error::StoreError;
use crate::remote::{Remote, Settings, keep_for, remote_store};
use backing::Redis;
use link::Link;

/// How Redis is used.
#[derive(Clone)]
pub struct RedisOptions {
    /// `redis://` or, with TLS, `rediss://`, with the user's name and password if there are any. A cluster needs one of its
    /// nodes, and may name several.
    pub urls: Vec<String>,
    pub cluster: bool,
    /// What all keys begin with, for those who share a server.
    pub prefix: String,
    pub connect_timeout: Duration,
    /// How long one request may take.
    pub response_timeout: Duration,
    /// How long a command is tried again while the server does not answer. After that its caller is told.
    pub patience: Duration,
    /// How often this process shows that it is alive, and how long others wait for that before they take it for dead.
    pub heartbeat: Duration,
    pub node_ttl: Duration,
    /// How often to look for changes of other processes of which the news was lost.
    pub poll_interval: Duration,
    /// Whether to signal what other processes change. Tests that count signals do without.
    #[doc(hidden)]
    pub hears_others: bool,
}

impl RedisOptions {
    /// Reads an address as people write it: `redis://[USER:PASSWORD@]HOST[:PORT][/DB]`, with TLS `rediss://`, and for a cluster
    /// `redis+cluster://` or `rediss+cluster://` with any of its nodes, parted by commas. Settings may follow, as in
    /// `?prefix=NAME&node_ttl=3000`: what all keys begin with, and after how many milliseconds of silence a process is
    /// taken for dead. `None` if it is no such address.
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
        let fits = hosts.iter().zip(&urls).all(|(host, url)| !host.is_empty() && Link::understands(url));
        let mut options = Self { urls, cluster, ..Self::new("") };
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            match setting.split_once('=')? {
                ("prefix", name) if is_prefix(name) => name.clone_into(&mut options.prefix),
                ("node_ttl", millis) => {
                    options.node_ttl = Duration::from_millis(millis.parse().ok().filter(|ttl| *ttl >= 100)?);
                    options.heartbeat = options.node_ttl / 4;
                }
                _ => return None,
            }
        }
        fits.then_some(options)
    }

    pub fn new(url: impl Into<String>) -> Self {
        Self {
            urls: vec![url.into()],
            cluster: false,
            prefix: "steadfast".to_owned(),
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_secs(1),
            patience: Duration::from_secs(3),
            heartbeat: Duration::from_millis(750),
            node_ttl: Duration::from_secs(3),
            poll_interval: Duration::from_secs(1),
            hears_others: true,
        }
    }
}

/// Without addresses, which may hold a password.
impl std::fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = f.debug_struct("RedisOptions");
        text.field("cluster", &self.cluster).field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// Braces would tell a cluster to keep together what does not belong together.
fn is_prefix(name: &str) -> bool {
    !name.is_empty() && !name.contains(['{', '}'])
}

/// The store for many machines. Dropping it finishes what is queued.
#[derive(Debug)]
pub struct RedisStore(Remote);

impl RedisStore {
    /// Does not wait for the server: a store that cannot be reached says so when it is used, and recovers by itself.
    pub fn open(rules: Rules, options: RedisOptions) -> Result<Self, StoreError> {
        if !is_prefix(&options.prefix) {
            return Err(StoreError::Unavailable("a prefix of keys has letters, and no braces".into()));
        }
        let keep = keep_for(&rules);
        let settings = Settings {
            heartbeat: options.heartbeat,
            patience: options.patience,
            pause: Duration::from_millis(25),
            keep,
            poll_interval: options.poll_interval,
            hears_others: options.hears_others,
        };
        let open = async move |news| {
            Link::open(&options, news).map(|link| Redis::new(link, &options.prefix, keep, options.node_ttl))
        };
        Remote::start("redis-store", rules, settings, open).map(Self)
    }

    /// Nodes that have joined through this store and not left.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.0.nodes().iter().copied().collect()
    }
}

remote_store!(RedisStore);

#[cfg(test)]
mod tests {
    use super::*;

    /// The addresses, whether it is a cluster, and the prefix.
    fn parsed(text: &str) -> Option<(Vec<String>, bool, String)> {
        RedisOptions::parse(text).map(|options| (options.urls, options.cluster, options.prefix))
    }

    #[test]
    fn a_password_is_not_printed() {
        let options = RedisOptions::parse("redis://me:secret@host").expect("an address");
        assert!(!format!("{options:?}").contains("secret"));
    }

    #[test]
    fn addresses_are_read_as_people_write_them() {
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
