//! One replica of an HTTP server: its address, its load, and the probes that show whether it is up.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue};
use http::{Method, Request, Uri};
use steadfast_client::transport::{Http, PinnedAddress, Tls, Transport};
use steadfast_client::{Limits, Timeouts};
use steadfast_wire::DoublingDelay;

use crate::call::parallel_calls::{KnownVerdicts, Verdict};
use crate::replicas::dns::Resolver;
use crate::replicas::health::{Liveness, LivenessTransport};
use crate::stateless::EraDetection;

/// The delay between probes of a replica that is down.
const PROBE_DELAY: DoublingDelay =
    DoublingDelay { first: Duration::from_millis(250), longest: Duration::from_secs(5) };

/// How long a replica may take to respond to a probe. `timeouts.control` applies if it is shorter.
/// Long enough for a replica that is busy for a moment.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// One replica: an URL, and one of the addresses that its host name resolves to.
pub(crate) struct Replica {
    /// The URL and the address. The stored placement refers to the replica by this name.
    pub(crate) name: String,
    pub(crate) url: Uri,
    /// The address that the host name resolved to. `None` if the host is an IP address or was not
    /// resolved.
    pub(crate) address: Option<SocketAddr>,
    /// Pins connections to the address while the host name has several. A single replica is
    /// wherever its name resolves to.
    pub(crate) pinned_address: PinnedAddress,
    pub(crate) transport: Arc<dyn Transport>,
    /// For probes, which use new connections only: an old connection may still work when no new one
    /// can be opened.
    probe_transport: Arc<dyn Transport>,
    probe_timeout: Duration,
    pub(crate) era: Arc<EraDetection>,
    /// Whether the server answers parallel calls.
    pub(crate) verdicts: KnownVerdicts,
    pub(crate) sessions: AtomicUsize,
    is_down: AtomicBool,
    pub(crate) liveness: Arc<Liveness>,
}

/// The state of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaStatus {
    pub name: String,
    pub is_up: bool,
    /// The number of upstream sessions of this node.
    pub sessions: usize,
    /// Whether the server gets parallel calls of one session, if the gateway has decided that.
    pub verdict: Option<Verdict>,
}

impl Replica {
    pub(crate) fn new(url: &Uri, address: Option<SocketAddr>, options: &ConnectOptions) -> Arc<Self> {
        let name = address.map_or_else(|| url.to_string(), |address| format!("{url}#{address}"));
        let pinned_address = PinnedAddress::default();
        let liveness: Arc<Liveness> = Arc::default();
        let transport = LivenessTransport {
            transport: options.transport(url, &pinned_address),
            liveness: Arc::clone(&liveness),
        };
        let (transport, probe_transport) = (Arc::new(transport), options.transport(url, &pinned_address));
        let probe_timeout = PROBE_TIMEOUT.min(options.timeouts.control);
        let (sessions, is_down) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (url, era) = (url.clone(), Arc::default());
        Arc::new(Self {
            name,
            url,
            address,
            pinned_address,
            transport,
            probe_transport,
            probe_timeout,
            era,
            verdicts: KnownVerdicts::default(),
            sessions,
            is_down,
            liveness,
        })
    }

    pub(crate) fn is_up(&self) -> bool {
        !self.is_down.load(Ordering::Relaxed)
    }

    /// Records that the replica could not be reached. It gets no new sessions until a probe
    /// succeeds.
    pub(crate) fn failed(self: &Arc<Self>) {
        self.era.forget();
        if !self.is_down.swap(true, Ordering::Relaxed) {
            tracing::warn!(replica = self.name, "a replica is down; probing it until it responds");
            tokio::spawn(probe_until_up(Arc::downgrade(self)));
        }
    }

    pub(crate) fn succeeded(&self) {
        self.liveness.reset();
        if self.is_down.swap(false, Ordering::Relaxed) {
            tracing::info!(replica = self.name, "a replica is up again");
        }
    }

    /// Sends a probe and returns true if the replica responds. An accepted connection proves
    /// nothing: the kernel accepts those of a stopped process, and a proxy accepts those of a
    /// process that is gone.
    pub(crate) async fn responds(&self) -> bool {
        let answer =
            tokio::time::timeout(self.probe_timeout, self.probe_transport.send(probe(&self.url))).await;
        // The connection is closed with the response, whose body is not read.
        matches!(answer, Ok(Ok(answer)) if !is_unavailable(answer.status().as_u16()))
    }

    /// Counts a session, until the guard is dropped.
    pub(crate) fn count_session(self: &Arc<Self>) -> LoadGuard {
        self.sessions.fetch_add(1, Ordering::Relaxed);
        LoadGuard(Arc::clone(self))
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

/// Counts a session toward the load of a replica.
#[derive(Debug)]
pub(crate) struct LoadGuard(pub(crate) Arc<Replica>);

impl Drop for LoadGuard {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns true if the status says that the server is down or overloaded. Usually a proxy sends it.
pub(crate) fn is_unavailable(status: u16) -> bool {
    matches!(status, 502..=504)
}

/// Returns an OPTIONS request without credentials. OPTIONS is safe by definition, and MCP gives it
/// no meaning. A GET might open a stream or, in 2024-11-05, a session, and each POST is a message.
/// Most servers refuse OPTIONS (404, 405, 401), which is a response.
fn probe(url: &Uri) -> Request<Bytes> {
    let mut request = Request::new(Bytes::new());
    *request.method_mut() = Method::OPTIONS;
    *request.uri_mut() = url.clone();
    request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    request
}

/// Probes a replica until it responds. Sessions use other replicas meanwhile.
async fn probe_until_up(replica: Weak<Replica>) {
    for failures in 1.. {
        tokio::time::sleep(PROBE_DELAY.after(failures)).await;
        let Some(replica) = replica.upgrade() else { return };
        if replica.is_up() {
            return;
        }
        if replica.responds().await {
            return replica.succeeded();
        }
    }
}

#[derive(Debug)]
pub(crate) struct ConnectOptions {
    pub(crate) resolver: Resolver,
    pub(crate) tls: Tls,
    pub(crate) timeouts: Timeouts,
    pub(crate) limits: Limits,
}

impl ConnectOptions {
    fn transport(&self, url: &Uri, pinned_address: &PinnedAddress) -> Arc<dyn Transport> {
        let Self { tls, timeouts, limits, .. } = self;
        if is_secure(url) {
            Arc::new(Http::pinned_and_secured(pinned_address, tls, timeouts, limits))
        } else {
            Arc::new(Http::pinned(pinned_address, timeouts, limits))
        }
    }
}

pub(crate) fn is_secure(url: &Uri) -> bool {
    url.scheme_str() == Some("https")
}
