//! The set of replicas of an HTTP server: which ones exist, and which one gets the next session.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use http::Uri;
use tokio::task::JoinSet;

use crate::replicas::replica::{ConnectOptions, Replica, ReplicaStatus, is_secure};
use crate::upstream::StartError;

/// How often names are resolved again.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Replicas {
    urls: Vec<Uri>,
    options: ConnectOptions,
    list: RwLock<Vec<Arc<Replica>>>,
}

impl Replicas {
    pub(crate) async fn start(mut urls: Vec<Uri>, options: ConnectOptions) -> Result<Arc<Self>, StartError> {
        if urls.is_empty() {
            return Err(StartError::NoAddress);
        }
        let is_known =
            |url: &&Uri| url.host().is_some() && (is_secure(url) || url.scheme_str() == Some("http"));
        if let Some(bad) = urls.iter().find(|url| !is_known(url)) {
            return Err(StartError::BadAddress(bad.to_string()));
        }
        // Addresses appear in logs.
        if urls.iter().any(|url| url.authority().is_some_and(|authority| authority.as_str().contains('@'))) {
            return Err(StartError::SecretInAddress);
        }
        // An address that is configured twice is one replica.
        let mut known = HashSet::new();
        urls.retain(|url| known.insert(url.clone()));
        let replicas = Arc::new(Self { urls, options, list: RwLock::default() });
        replicas.resolve().await;
        tokio::spawn(resolve_periodically(Arc::downgrade(&replicas)));
        Ok(replicas)
    }

    /// Returns the replica with the fewest sessions that is up and not in `tried`. If all others
    /// are down, returns any that is not in `tried`.
    pub(crate) fn next(&self, tried: &[String]) -> Option<Arc<Replica>> {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        let left = list.iter().filter(|replica| !tried.contains(&replica.name));
        left.min_by_key(|replica| (!replica.is_up(), replica.sessions.load(Ordering::Relaxed))).cloned()
    }

    /// Returns the replica with this name. If there is none, but the URL has exactly one replica,
    /// returns that: its host name may resolve to another address by now.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<Replica>> {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = list.iter().find(|replica| replica.name == name) {
            return Some(Arc::clone(found));
        }
        let url = name.split_once('#').map_or(name, |(url, _)| url);
        let mut there = list.iter().filter(|replica| replica.url == *url);
        there.next().filter(|_| there.next().is_none()).cloned()
    }

    /// Returns true if another replica than this one is up.
    pub(crate) fn has_other(&self, name: &str) -> bool {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        list.iter().any(|replica| replica.name != name && replica.is_up())
    }

    pub(crate) fn status(&self) -> Vec<ReplicaStatus> {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        let status = |replica: &Arc<Replica>| ReplicaStatus {
            verdict: replica.verdicts.newest(),
            name: replica.name.clone(),
            is_up: replica.is_up(),
            sessions: replica.sessions.load(Ordering::Relaxed),
        };
        list.iter().map(status).collect()
    }

    /// Resolves all names and updates the list.
    async fn resolve(&self) {
        let mut resolving = JoinSet::new();
        for (at, url) in self.urls.iter().cloned().enumerate() {
            let resolver = self.options.resolver.clone();
            resolving.spawn(async move { (at, resolver.addresses(&url).await, url) });
        }
        let mut found = resolving.join_all().await;
        found.sort_unstable_by_key(|(at, ..)| *at);
        self.update(found.into_iter().map(|(_, addresses, url)| (url, addresses)).collect());
    }

    /// Updates the list to what the names resolve to. Keeps known replicas, whether or not a name
    /// still has several. Sessions at a replica that is no longer listed continue until it fails.
    fn update(&self, found: Vec<(Uri, Vec<SocketAddr>)>) {
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        let mut fresh = Vec::new();
        for (url, addresses) in found {
            let is_one_of_several = addresses.len() > 1;
            let at = |address: Option<SocketAddr>| {
                let known = list.iter().find(|replica| replica.url == url && replica.address == address);
                let replica = known.cloned().unwrap_or_else(|| Replica::new(&url, address, &self.options));
                replica.pinned_address.move_to(address.filter(|_| is_one_of_several));
                replica
            };
            if addresses.is_empty() {
                // The name cannot be resolved at the moment. The replicas may still be reachable.
                let before: Vec<_> = list.iter().filter(|replica| replica.url == url).cloned().collect();
                fresh.extend(if before.is_empty() { vec![at(None)] } else { before });
            } else {
                fresh.extend(addresses.into_iter().map(|address| at(Some(address))));
            }
        }
        let before = std::mem::replace(&mut *list, fresh);
        drop(list);
        drop(before);
    }
}

async fn resolve_periodically(replicas: Weak<Replicas>) {
    loop {
        tokio::time::sleep(RESOLVE_INTERVAL).await;
        let Some(replicas) = replicas.upgrade() else { return };
        replicas.resolve().await;
    }
}

#[cfg(test)]
mod tests {
    use steadfast_client::transport::Tls;
    use steadfast_client::{Limits, Timeouts};

    use super::*;
    use crate::replicas::dns::Resolver;

    async fn replicas(urls: &[&str]) -> Arc<Replicas> {
        let urls = urls.iter().map(|url| url.parse().unwrap()).collect();
        let (timeouts, limits) = (Timeouts::default(), Limits::default());
        Replicas::start(
            urls,
            ConnectOptions { resolver: Resolver::System, tls: Tls::public(), timeouts, limits },
        )
        .await
        .unwrap()
    }

    #[tokio::test]
    async fn the_least_loaded_replica_that_is_up_is_next() {
        let replicas = replicas(&["http://127.0.0.1:1/a", "http://127.0.0.1:1/b"]).await;
        let next = |tried: &[String]| replicas.next(tried).map(|replica| replica.url.path().to_owned());
        let a = replicas.next(&[]).unwrap();
        assert_eq!(a.url.path(), "/a");
        let load = a.count_session();
        assert_eq!(next(&[]).as_deref(), Some("/b"));
        drop(load);
        assert_eq!(next(&[]).as_deref(), Some("/a"));
        a.failed();
        assert_eq!(next(&[]).as_deref(), Some("/b"));
        // If no other replica is left, one that is down is tried.
        let b = replicas.next(&[]).unwrap();
        assert_eq!(next(std::slice::from_ref(&b.name)).as_deref(), Some("/a"));
        assert!(!replicas.has_other(&b.name) && replicas.has_other(&a.name));
        assert_eq!(next(&[a.name.clone(), b.name.clone()]), None);
    }

    #[tokio::test]
    async fn an_address_that_is_configured_twice_is_one_replica() {
        let replicas = replicas(&["http://127.0.0.1:1/a", "http://127.0.0.1:1/a"]).await;
        for _ in 0..3 {
            replicas.resolve().await;
            assert_eq!(names(&replicas), [("http://127.0.0.1:1/a".to_owned(), None)]);
        }
    }

    fn found(url: &str, addresses: &[&str]) -> Vec<(Uri, Vec<SocketAddr>)> {
        vec![(url.parse().unwrap(), addresses.iter().map(|text| text.parse().unwrap()).collect())]
    }

    /// Returns the name of each replica and the port of the address that it is pinned to.
    fn names(replicas: &Replicas) -> Vec<(String, Option<u16>)> {
        let list = replicas.list.read().unwrap();
        list.iter().map(|one| (one.name.clone(), one.pinned_address.address().map(|at| at.port()))).collect()
    }

    #[tokio::test]
    async fn a_replica_is_the_same_alone_and_among_others() {
        const URL: &str = "http://127.0.0.1:1/a";
        let name = |address: &str| format!("{URL}#{address}");
        let replicas = replicas(&[URL]).await;
        replicas.update(found(URL, &["10.0.0.1:1"]));
        assert_eq!(names(&replicas), [(name("10.0.0.1:1"), None)], "a single replica is not pinned");
        let first = replicas.find(&name("10.0.0.1:1")).unwrap();
        // With a second replica the first one keeps its identity.
        replicas.update(found(URL, &["10.0.0.1:1", "10.0.0.2:2"]));
        assert_eq!(names(&replicas), [(name("10.0.0.1:1"), Some(1)), (name("10.0.0.2:2"), Some(2))]);
        assert!(Arc::ptr_eq(&first, &replicas.find(&name("10.0.0.1:1")).unwrap()));
        let second = replicas.find(&name("10.0.0.2:2")).unwrap();
        assert!(replicas.find(URL).is_none() && replicas.find(&name("10.0.0.3:3")).is_none());
        // A name that cannot be resolved for a moment changes nothing.
        replicas.update(found(URL, &[]));
        assert_eq!(names(&replicas).len(), 2);
        // Only one is left.
        replicas.update(found(URL, &["10.0.0.2:2"]));
        assert_eq!(names(&replicas), [(name("10.0.0.2:2"), None)]);
        assert!(Arc::ptr_eq(&second, &replicas.find(&name("10.0.0.2:2")).unwrap()));
        // A single replica is found under its old names, at any address.
        replicas.update(found(URL, &["10.0.0.4:4"]));
        let fourth = replicas.find(&name("10.0.0.4:4")).unwrap();
        for before in [URL, &name("10.0.0.2:2")] {
            assert!(Arc::ptr_eq(&fourth, &replicas.find(before).unwrap()), "{before}");
        }
        assert!(replicas.find("http://127.0.0.1:1/b").is_none());
    }
}
