//! Detects replicas that hang. If a replica owes an HTTP response and has sent no bytes for
//! `health_check.silence`, the gateway sends it an OPTIONS request (a probe). A stopped process
//! (SIGSTOP, paused VM) keeps its TCP connections open, so only such a request reveals it.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use steadfast_client::transport::{Body, BrokenBody, SendError, Transport};
use steadfast_client::{BoxFuture, Error};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::config::HealthCheck;
use crate::replicas::replica::Replica;
use crate::replicas::replica_set::Replicas;

/// How often a replica that fails its probes is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// What the bytes that a replica sends say about its health.
#[derive(Debug)]
pub(crate) struct Liveness {
    created: Instant,
    /// When the last bytes arrived, in milliseconds since `created`.
    last_activity: AtomicU64,
    /// The number of requests that wait for a response.
    waiting: AtomicUsize,
    /// A task monitors the replica.
    is_monitored: AtomicBool,
    /// The replica was silent and failed a probe.
    is_suspected: AtomicBool,
    suspected: Notify,
    /// The replica has failed all probes for `health_check.failover_after`.
    is_given_up: AtomicBool,
    given_up: Notify,
}

impl Default for Liveness {
    fn default() -> Self {
        Self {
            created: Instant::now(),
            last_activity: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            is_monitored: AtomicBool::new(false),
            is_suspected: AtomicBool::new(false),
            suspected: Notify::new(),
            is_given_up: AtomicBool::new(false),
            given_up: Notify::new(),
        }
    }
}

impl Liveness {
    fn record_activity(&self) {
        let passed = u64::try_from(self.created.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_activity.store(passed, Ordering::Relaxed);
    }

    /// Returns for how long no bytes have arrived.
    pub(crate) fn silence(&self) -> Duration {
        let last_activity = Duration::from_millis(self.last_activity.load(Ordering::Relaxed));
        self.created.elapsed().saturating_sub(last_activity)
    }

    /// Returns true if the replica was silent and failed a probe.
    pub(crate) fn is_suspected(&self) -> bool {
        self.is_suspected.load(Ordering::Relaxed)
    }

    /// Returns true if calls must not wait for the replica any more.
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed)
    }

    /// Records that a probe succeeded or that a session was opened.
    pub(crate) fn reset(&self) {
        self.record_activity();
        self.is_suspected.store(false, Ordering::Relaxed);
        self.is_given_up.store(false, Ordering::Relaxed);
    }

    fn suspect(&self) {
        self.is_suspected.store(true, Ordering::Relaxed);
        self.suspected.notify_waiters();
    }

    fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
        self.given_up.notify_waiters();
    }
}

/// A request that waits for a response, until it is dropped. Meanwhile a task monitors the replica.
#[derive(Debug)]
pub(crate) struct ResponseWait(Arc<Replica>);

impl ResponseWait {
    pub(crate) fn new(replica: &Arc<Replica>, replicas: &Arc<Replicas>, health_check: HealthCheck) -> Self {
        let liveness = &replica.liveness;
        if liveness.waiting.fetch_add(1, Ordering::SeqCst) == 0 {
            // Without a pending request the replica had no reason to send anything.
            liveness.record_activity();
        }
        if !liveness.is_monitored.load(Ordering::SeqCst)
            && !liveness.is_monitored.swap(true, Ordering::SeqCst)
        {
            tokio::spawn(monitor(Arc::downgrade(replica), Arc::downgrade(replicas), health_check));
        }
        Self(Arc::clone(replica))
    }

    /// Waits until the replica fails a probe.
    pub(crate) async fn suspected(&self) {
        self.0.liveness.suspected.notified().await;
    }

    /// Waits until the replica has failed all probes for `health_check.failover_after`.
    pub(crate) async fn given_up(&self) {
        self.0.liveness.given_up.notified().await;
    }
}

impl Drop for ResponseWait {
    fn drop(&mut self) {
        self.0.liveness.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Returns the error of a call that no longer waits for an unresponsive server.
pub(crate) fn unresponsive() -> Error {
    Error::OutcomeUnknown { why: "the server has stopped responding".to_owned() }
}

/// Monitors a replica while requests wait for it, but only while another replica is up: a busy
/// server may respond to nothing, and without an alternative the calls have to wait.
async fn monitor(replica: Weak<Replica>, replicas: Weak<Replicas>, health_check: HealthCheck) {
    let mut suspected_since = None;
    loop {
        let delay = {
            let (Some(replica), Some(replicas)) = (replica.upgrade(), replicas.upgrade()) else { return };
            let liveness = &replica.liveness;
            if liveness.waiting.load(Ordering::SeqCst) == 0 {
                liveness.is_monitored.store(false, Ordering::SeqCst);
                // A request may have been added after the first check, when the replica still
                // counted as monitored.
                let is_idle = liveness.waiting.load(Ordering::SeqCst) == 0;
                if is_idle || liveness.is_monitored.swap(true, Ordering::SeqCst) {
                    return;
                }
            }
            check(&replica, &replicas, health_check, &mut suspected_since).await
        };
        tokio::time::sleep(delay).await;
    }
}

/// Checks a replica once. Returns the time until the next check.
async fn check(
    replica: &Arc<Replica>,
    replicas: &Replicas,
    health_check: HealthCheck,
    suspected_since: &mut Option<Instant>,
) -> Duration {
    let liveness = &replica.liveness;
    let is_silent = || liveness.silence() >= health_check.silence;
    if !is_silent() || !replicas.has_other(&replica.name) {
        *suspected_since = None;
        return health_check
            .silence
            .saturating_sub(liveness.silence())
            .max(CHECK_INTERVAL.min(health_check.silence));
    }
    if !liveness.is_suspected() {
        if replica.responds().await {
            replica.succeeded();
            return health_check.silence;
        }
        if !is_silent() {
            return health_check.silence;
        }
        // From now on the replica is probed until it responds.
        liveness.suspect();
        replica.failed();
    }
    let since = *suspected_since.get_or_insert_with(Instant::now);
    if since.elapsed() >= health_check.failover_after {
        liveness.give_up();
    }
    CHECK_INTERVAL.min(health_check.silence)
}

/// A transport that records when bytes arrive, comments of an event stream included.
pub(crate) struct LivenessTransport {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) liveness: Arc<Liveness>,
}

impl Transport for LivenessTransport {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Body>, SendError>> {
        Box::pin(async move {
            let response = self.transport.send(request).await?;
            self.liveness.record_activity();
            let liveness = Arc::clone(&self.liveness);
            Ok(response.map(|body| ObservedBody { body, liveness }.boxed_unsync()))
        })
    }
}

struct ObservedBody {
    body: Body,
    liveness: Arc<Liveness>,
}

impl http_body::Body for ObservedBody {
    type Data = Bytes;
    type Error = BrokenBody;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenBody>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(_))) = &polled {
            self.liveness.record_activity();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;
    use crate::config::Config;
    use crate::replicas::replica::ConnectOptions;

    /// A server that responds at once, with a body.
    struct Responding;

    impl Transport for Responding {
        fn send(&self, _request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Body>, SendError>> {
            let body = Full::new(Bytes::from_static(b": alive\n\n")).map_err(|never| match never {});
            Box::pin(async { Ok(Response::new(body.boxed_unsync())) })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn received_bytes_are_a_sign_of_life() {
        let liveness: Arc<Liveness> = Arc::default();
        let transport =
            LivenessTransport { transport: Arc::new(Responding), liveness: Arc::clone(&liveness) };
        let second = Duration::from_secs(1);
        tokio::time::advance(second).await;
        assert_eq!(liveness.silence(), second);
        let mut response = transport.send(Request::new(Bytes::new())).await.unwrap();
        assert_eq!(liveness.silence(), Duration::ZERO, "response headers");
        tokio::time::advance(second).await;
        assert!(response.body_mut().frame().await.is_some());
        assert_eq!(liveness.silence(), Duration::ZERO, "a part of the body");
        tokio::time::advance(second).await;
        assert!(response.body_mut().frame().await.is_none());
        assert_eq!(liveness.silence(), second, "the end of the body may be the end of the connection");
    }

    /// Without another replica a call waits as long as it may take.
    #[tokio::test(start_paused = true)]
    async fn a_single_replica_is_not_given_up() {
        for (names, is_given_up) in [(&["a"][..], false), (&["a", "b"], true)] {
            // They accept connections and send nothing.
            let silent: Vec<_> =
                names.iter().map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap()).collect();
            let url = |one: &std::net::TcpListener| format!("http://{}/mcp", one.local_addr().unwrap());
            let urls: Vec<http::Uri> = silent.iter().map(|one| url(one).parse().unwrap()).collect();
            let config = Config::http(urls.clone());
            let Config { resolver, tls, timeouts, limits, health_check, .. } = config;
            let replicas =
                Replicas::start(urls, ConnectOptions { resolver, tls, timeouts, limits }).await.unwrap();
            let wait = ResponseWait::new(&replicas.next(&[]).unwrap(), &replicas, health_check);
            let given_up = tokio::time::timeout(Duration::from_secs(3600), wait.given_up()).await.is_ok();
            assert_eq!(given_up, is_given_up, "{} of them", silent.len());
        }
    }
}
