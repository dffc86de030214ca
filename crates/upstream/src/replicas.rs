//! The replicas of an HTTP server: which are there, how many sessions each has, and which one is next.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue};
use http::{Method, Request, Uri};
use steadfast_client::transport::{Anchor, Http, Tls, Transport};
use steadfast_client::{Limits, Timeouts};
use tokio::task::JoinSet;

use crate::names::Names;
use crate::stateless::Era;
use crate::upstream::StartError;
use crate::vigil::{Attentive, Signs};

/// How often names are looked up again.
const LOOK_UP: Duration = Duration::from_secs(30);

/// How soon, and at last how seldom, a replica that is down is tried.
const FIRST_TRIAL: Duration = Duration::from_millis(250);
const LATER_TRIALS: Duration = Duration::from_secs(5);

/// How long a replica may take to answer a trial, if `timeouts.control` does not end sooner. One that is busy with something else
/// for a while is not taken for dead.
const TRIAL: Duration = Duration::from_secs(5);

/// One process of the server, as far as we can tell.
pub(crate) struct Replica {
    /// Its address, and the one that its host's name stood for when it was found: under this a session finds it again.
    pub(crate) name: String,
    pub(crate) url: Uri,
    /// Where it was found. Without: its host is no name, or could not be looked up.
    address: Option<SocketAddr>,
    /// Holds it to where it was found while its name stands for several. One alone is wherever its name says.
    anchor: Anchor,
    pub(crate) transport: Arc<dyn Transport>,
    /// For trials: its connections are all new ones. One that was opened before may work where no other can be had.
    trials: Arc<dyn Transport>,
    /// How long a trial may take.
    trial: Duration,
    pub(crate) era: Arc<Era>,
    sessions: AtomicUsize,
    is_down: AtomicBool,
    pub(crate) signs: Arc<Signs>,
}

/// What is known of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaStatus {
    pub name: String,
    pub is_up: bool,
    /// Sessions that this process has there.
    pub sessions: usize,
}

impl Replica {
    fn new(url: &Uri, address: Option<SocketAddr>, ways: &Ways) -> Arc<Self> {
        let name = address.map_or_else(|| url.to_string(), |address| format!("{url}#{address}"));
        let anchor = Anchor::default();
        let signs: Arc<Signs> = Arc::default();
        let transport = Attentive { transport: ways.to(url, &anchor), signs: Arc::clone(&signs) };
        let (transport, trials) = (Arc::new(transport), ways.to(url, &anchor));
        let trial = TRIAL.min(ways.timeouts.control);
        let (sessions, is_down) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (url, era) = (url.clone(), Arc::default());
        Arc::new(Self { name, url, address, anchor, transport, trials, trial, era, sessions, is_down, signs })
    }

    pub(crate) fn is_up(&self) -> bool {
        !self.is_down.load(Ordering::Relaxed)
    }

    /// Somebody could not reach it. It gets nobody new until a trial succeeds.
    pub(crate) fn failed(self: &Arc<Self>) {
        self.era.forget();
        if !self.is_down.swap(true, Ordering::Relaxed) {
            tracing::warn!(replica = self.name, "a replica cannot be reached; it is tried until it can");
            tokio::spawn(try_until_up(Arc::downgrade(self)));
        }
    }

    pub(crate) fn succeeded(&self) {
        self.signs.trust();
        if self.is_down.swap(false, Ordering::Relaxed) {
            tracing::info!(replica = self.name, "a replica can be reached again");
        }
    }

    /// Whether there is somebody who answers. A process that is stopped has its connections accepted by its machine, and one
    /// that is gone by the proxy before it, so nothing less than an answer counts.
    pub(crate) async fn answers(&self) -> bool {
        let answer = tokio::time::timeout(self.trial, self.trials.send(trial(&self.url))).await;
        // Its connection is closed with the answer, which nobody reads.
        matches!(answer, Ok(Ok(answer)) if !is_away(answer.status().as_u16()))
    }

    /// One session more, until the guard is dropped.
    pub(crate) fn take(self: &Arc<Self>) -> Taken {
        self.sessions.fetch_add(1, Ordering::Relaxed);
        Taken(Arc::clone(self))
    }
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replica")
            .field("name", &self.name)
            .field("is_up", &self.is_up())
            .finish_non_exhaustive()
    }
}

/// A session's share in the load of a replica.
#[derive(Debug)]
pub(crate) struct Taken(pub(crate) Arc<Replica>);

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether a status says that the server is not there, or not now: mostly in the words of whoever stands before it.
pub(crate) fn is_away(status: u16) -> bool {
    matches!(status, 502..=504)
}

/// A question that changes nothing: OPTIONS is safe by its definition, and MCP gives it no meaning. A GET might open a stream or,
/// in 2024-11-05, a session, and each POST is a message. Most servers refuse it (404, 405, 401), which is an answer. Nobody's
/// credentials are shown for it.
fn trial(url: &Uri) -> Request<Bytes> {
    let mut request = Request::new(Bytes::new());
    *request.method_mut() = Method::OPTIONS;
    *request.uri_mut() = url.clone();
    request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    request
}

/// The half-open state: sessions wait elsewhere while one request at a time finds out.
async fn try_until_up(replica: Weak<Replica>) {
    let mut pause = FIRST_TRIAL;
    loop {
        tokio::time::sleep(pause).await;
        let Some(replica) = replica.upgrade() else { return };
        if replica.is_up() {
            return;
        }
        if replica.answers().await {
            return replica.succeeded();
        }
        pause = (pause * 2).min(LATER_TRIALS);
    }
}

/// How replicas are reached.
#[derive(Debug)]
pub(crate) struct Ways {
    pub(crate) names: Names,
    pub(crate) tls: Tls,
    pub(crate) timeouts: Timeouts,
    pub(crate) limits: Limits,
}

impl Ways {
    fn to(&self, url: &Uri, anchor: &Anchor) -> Arc<dyn Transport> {
        let Self { tls, timeouts, limits, .. } = self;
        if is_secure(url) {
            Arc::new(Http::anchored_and_secured(anchor, tls, timeouts, limits))
        } else {
            Arc::new(Http::anchored(anchor, timeouts, limits))
        }
    }
}

/// All replicas.
#[derive(Debug)]
pub(crate) struct Replicas {
    urls: Vec<Uri>,
    ways: Ways,
    list: RwLock<Vec<Arc<Replica>>>,
}

impl Replicas {
    pub(crate) async fn start(mut urls: Vec<Uri>, ways: Ways) -> Result<Arc<Self>, StartError> {
        if urls.is_empty() {
            return Err(StartError::NoAddress);
        }
        let is_known =
            |url: &&Uri| url.host().is_some() && (is_secure(url) || url.scheme_str() == Some("http"));
        if let Some(bad) = urls.iter().find(|url| !is_known(url)) {
            return Err(StartError::BadAddress(bad.to_string()));
        }
        // Addresses are written to logs.
        if urls.iter().any(|url| url.authority().is_some_and(|authority| authority.as_str().contains('@'))) {
            return Err(StartError::SecretInAddress);
        }
        // What is written down twice is there once.
        let mut known = HashSet::new();
        urls.retain(|url| known.insert(url.clone()));
        let replicas = Arc::new(Self { urls, ways, list: RwLock::default() });
        replicas.look_up().await;
        tokio::spawn(look_up_again(Arc::downgrade(&replicas)));
        Ok(replicas)
    }

    /// The one that is up and has the fewest sessions, of those that were not tried; if all are down, any that was not.
    pub(crate) fn next(&self, tried: &[String]) -> Option<Arc<Replica>> {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        let left = list.iter().filter(|replica| !tried.contains(&replica.name));
        left.min_by_key(|replica| (!replica.is_up(), replica.sessions.load(Ordering::Relaxed))).cloned()
    }

    /// The one of this name; or the only one at that address, wherever its host's name has led since.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<Replica>> {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = list.iter().find(|replica| replica.name == name) {
            return Some(Arc::clone(found));
        }
        let url = name.split_once('#').map_or(name, |(url, _)| url);
        let mut there = list.iter().filter(|replica| replica.url == *url);
        there.next().filter(|_| there.next().is_none()).cloned()
    }

    /// Whether there is one that is up, besides this.
    pub(crate) fn has_other(&self, name: &str) -> bool {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        list.iter().any(|replica| replica.name != name && replica.is_up())
    }

    pub(crate) fn status(&self) -> Vec<ReplicaStatus> {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        let status = |replica: &Arc<Replica>| ReplicaStatus {
            name: replica.name.clone(),
            is_up: replica.is_up(),
            sessions: replica.sessions.load(Ordering::Relaxed),
        };
        list.iter().map(status).collect()
    }

    /// Brings the list up to date.
    async fn look_up(&self) {
        let mut looked_up = JoinSet::new();
        for (at, url) in self.urls.iter().cloned().enumerate() {
            let names = self.ways.names.clone();
            looked_up.spawn(async move { (at, names.addresses(&url).await, url) });
        }
        let mut found = looked_up.join_all().await;
        found.sort_unstable_by_key(|(at, ..)| *at);
        self.take_in(found.into_iter().map(|(_, addresses, url)| (url, addresses)).collect());
    }

    /// Takes in what names stand for now. Replicas that are known stay the same, whether they are alone or not; sessions on one
    /// that is gone go on there until it fails them.
    fn take_in(&self, found: Vec<(Uri, Vec<SocketAddr>)>) {
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        let mut fresh = Vec::new();
        for (url, addresses) in found {
            let is_one_of_several = addresses.len() > 1;
            let at = |address: Option<SocketAddr>| {
                let known = list.iter().find(|replica| replica.url == url && replica.address == address);
                let replica = known.cloned().unwrap_or_else(|| Replica::new(&url, address, &self.ways));
                replica.anchor.move_to(address.filter(|_| is_one_of_several));
                replica
            };
            if addresses.is_empty() {
                // Nobody knows better: it may be there when it is needed.
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

async fn look_up_again(replicas: Weak<Replicas>) {
    loop {
        tokio::time::sleep(LOOK_UP).await;
        let Some(replicas) = replicas.upgrade() else { return };
        replicas.look_up().await;
    }
}

pub(crate) fn is_secure(url: &Uri) -> bool {
    url.scheme_str() == Some("https")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn replicas(urls: &[&str]) -> Arc<Replicas> {
        let urls = urls.iter().map(|url| url.parse().unwrap()).collect();
        let (timeouts, limits) = (Timeouts::default(), Limits::default());
        Replicas::start(urls, Ways { names: Names::System, tls: Tls::public(), timeouts, limits })
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn the_least_loaded_that_is_up_is_next() {
        let replicas = replicas(&["http://127.0.0.1:1/a", "http://127.0.0.1:1/b"]).await;
        let next = |tried: &[String]| replicas.next(tried).map(|replica| replica.url.path().to_owned());
        let a = replicas.next(&[]).unwrap();
        assert_eq!(a.url.path(), "/a");
        let taken = a.take();
        assert_eq!(next(&[]).as_deref(), Some("/b"));
        drop(taken);
        assert_eq!(next(&[]).as_deref(), Some("/a"));
        a.failed();
        assert_eq!(next(&[]).as_deref(), Some("/b"));
        // If nobody else is left, one that is down is worth a try.
        let b = replicas.next(&[]).unwrap();
        assert_eq!(next(std::slice::from_ref(&b.name)).as_deref(), Some("/a"));
        assert!(!replicas.has_other(&b.name) && replicas.has_other(&a.name));
        assert_eq!(next(&[a.name.clone(), b.name.clone()]), None);
    }

    #[tokio::test]
    async fn an_address_that_is_written_twice_is_one_replica() {
        let replicas = replicas(&["http://127.0.0.1:1/a", "http://127.0.0.1:1/a"]).await;
        for _ in 0..3 {
            replicas.look_up().await;
            assert_eq!(names(&replicas), [("http://127.0.0.1:1/a".to_owned(), None)]);
        }
    }

    fn found(url: &str, addresses: &[&str]) -> Vec<(Uri, Vec<SocketAddr>)> {
        vec![(url.parse().unwrap(), addresses.iter().map(|text| text.parse().unwrap()).collect())]
    }

    /// The names, and where each is held.
    fn names(replicas: &Replicas) -> Vec<(String, Option<u16>)> {
        let list = replicas.list.read().unwrap();
        list.iter().map(|one| (one.name.clone(), one.anchor.address().map(|at| at.port()))).collect()
    }

    #[tokio::test]
    async fn a_replica_is_the_same_alone_and_among_others() {
        const URL: &str = "http://127.0.0.1:1/a";
        let name = |address: &str| format!("{URL}#{address}");
        let replicas = replicas(&[URL]).await;
        replicas.take_in(found(URL, &["10.0.0.1:1"]));
        assert_eq!(names(&replicas), [(name("10.0.0.1:1"), None)], "one alone is where its name says");
        let first = replicas.find(&name("10.0.0.1:1")).unwrap();
        // It gets company: whoever is there stays there.
        replicas.take_in(found(URL, &["10.0.0.1:1", "10.0.0.2:2"]));
        assert_eq!(names(&replicas), [(name("10.0.0.1:1"), Some(1)), (name("10.0.0.2:2"), Some(2))]);
        assert!(Arc::ptr_eq(&first, &replicas.find(&name("10.0.0.1:1")).unwrap()));
        let second = replicas.find(&name("10.0.0.2:2")).unwrap();
        assert!(replicas.find(URL).is_none() && replicas.find(&name("10.0.0.3:3")).is_none());
        // A name that cannot be looked up for a moment changes nothing.
        replicas.take_in(found(URL, &[]));
        assert_eq!(names(&replicas).len(), 2);
        // Alone again.
        replicas.take_in(found(URL, &["10.0.0.2:2"]));
        assert_eq!(names(&replicas), [(name("10.0.0.2:2"), None)]);
        assert!(Arc::ptr_eq(&second, &replicas.find(&name("10.0.0.2:2")).unwrap()));
        // One alone is who was there before, wherever it is now.
        replicas.take_in(found(URL, &["10.0.0.4:4"]));
        let fourth = replicas.find(&name("10.0.0.4:4")).unwrap();
        for before in [URL, &name("10.0.0.2:2")] {
            assert!(Arc::ptr_eq(&fourth, &replicas.find(before).unwrap()), "{before}");
        }
        assert!(replicas.find("http://127.0.0.1:1/b").is_none());
    }
}
