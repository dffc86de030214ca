//! Watching over replicas that are to answer: one that has said nothing for a while is tried. A process that is stopped keeps its
//! connections, so nobody else would notice.

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
use steadfast_client::{Boxed, Error};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::config::Vigil;
use crate::replicas::{Replica, Replicas};

/// How often a replica that does not answer trials is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// What is known of a replica by what it sends.
#[derive(Debug)]
pub(crate) struct Signs {
    since: Instant,
    /// When something was heard last, in milliseconds after that.
    heard: AtomicU64,
    /// Requests that it is to answer.
    waiting: AtomicUsize,
    /// Somebody watches.
    is_watched: AtomicBool,
    /// It was silent, and did not answer a trial.
    is_suspected: AtomicBool,
    suspicion: Notify,
    /// It has answered no trial for long.
    is_given_up: AtomicBool,
    given_up: Notify,
}

impl Default for Signs {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            heard: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            is_watched: AtomicBool::new(false),
            is_suspected: AtomicBool::new(false),
            suspicion: Notify::new(),
            is_given_up: AtomicBool::new(false),
            given_up: Notify::new(),
        }
    }
}

impl Signs {
    fn hear(&self) {
        let passed = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.heard.store(passed, Ordering::Relaxed);
    }

    /// For how long nothing was heard.
    pub(crate) fn silence(&self) -> Duration {
        let heard = Duration::from_millis(self.heard.load(Ordering::Relaxed));
        self.since.elapsed().saturating_sub(heard)
    }

    fn is_suspected(&self) -> bool {
        self.is_suspected.load(Ordering::Relaxed)
    }

    /// Nobody is to wait for it any more.
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed)
    }

    /// A trial was answered, or a session opened.
    pub(crate) fn trust(&self) {
        self.hear();
        self.is_suspected.store(false, Ordering::Relaxed);
        self.is_given_up.store(false, Ordering::Relaxed);
    }

    fn suspect(&self) {
        self.is_suspected.store(true, Ordering::Relaxed);
        self.suspicion.notify_waiters();
    }

    fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
        self.given_up.notify_waiters();
    }
}

/// A request that a replica is to answer, until it is dropped. Meanwhile the replica is watched over.
#[derive(Debug)]
pub(crate) struct Waiting(Arc<Replica>);

impl Waiting {
    pub(crate) fn at(replica: &Arc<Replica>, replicas: &Arc<Replicas>, vigil: Vigil) -> Self {
        let signs = &replica.signs;
        if signs.waiting.fetch_add(1, Ordering::SeqCst) == 0 {
            // It had no reason to say anything.
            signs.hear();
        }
        if !signs.is_watched.load(Ordering::SeqCst) && !signs.is_watched.swap(true, Ordering::SeqCst) {
            tokio::spawn(watch(Arc::downgrade(replica), Arc::downgrade(replicas), vigil));
        }
        Self(Arc::clone(replica))
    }

    /// Waits until the replica has not answered a trial.
    pub(crate) async fn suspicion(&self) {
        self.0.signs.suspicion.notified().await;
    }

    /// Waits until the replica has answered no trial for so long that nobody is to wait for it any more.
    pub(crate) async fn end(&self) {
        self.0.signs.given_up.notified().await;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.signs.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Why a call has no answer that is not waited for any more.
pub(crate) fn fell_silent() -> Error {
    Error::OutcomeUnknown { why: "the server has stopped answering, whatever it is asked".to_owned() }
}

/// Watches over a replica while requests wait there. Only if there is another to go to: a server may be busy and answer nothing
/// else meanwhile, and who has no choice waits.
async fn watch(replica: Weak<Replica>, replicas: Weak<Replicas>, vigil: Vigil) {
    let mut suspected = None;
    loop {
        let pause = {
            let (Some(replica), Some(replicas)) = (replica.upgrade(), replicas.upgrade()) else { return };
            let signs = &replica.signs;
            if signs.waiting.load(Ordering::SeqCst) == 0 {
                signs.is_watched.store(false, Ordering::SeqCst);
                // Somebody may have come who saw that it was watched.
                let is_over = signs.waiting.load(Ordering::SeqCst) == 0;
                if is_over || signs.is_watched.swap(true, Ordering::SeqCst) {
                    return;
                }
            }
            look(&replica, &replicas, vigil, &mut suspected).await
        };
        tokio::time::sleep(pause).await;
    }
}

/// One look at a replica. Gives when the next is due.
async fn look(
    replica: &Arc<Replica>,
    replicas: &Replicas,
    vigil: Vigil,
    suspected: &mut Option<Instant>,
) -> Duration {
    let signs = &replica.signs;
    let is_silent = || signs.silence() >= vigil.silence;
    if !is_silent() || !replicas.has_other(&replica.name) {
        *suspected = None;
        return vigil.silence.saturating_sub(signs.silence()).max(LOOK.min(vigil.silence));
    }
    if !signs.is_suspected() {
        if replica.answers().await {
            replica.succeeded();
            return vigil.silence;
        }
        if !is_silent() {
            return vigil.silence;
        }
        // It is tried from now on, until it answers.
        signs.suspect();
        replica.failed();
    }
    let since = *suspected.get_or_insert_with(Instant::now);
    if since.elapsed() >= vigil.endurance {
        signs.give_up();
    }
    LOOK.min(vigil.silence)
}

/// Hears what a replica sends, be it comments.
pub(crate) struct Attentive {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) signs: Arc<Signs>,
}

impl Transport for Attentive {
    fn send(&self, request: Request<Bytes>) -> Boxed<'_, Result<Response<Body>, SendError>> {
        Box::pin(async move {
            let response = self.transport.send(request).await?;
            self.signs.hear();
            let signs = Arc::clone(&self.signs);
            Ok(response.map(|body| Heard { body, signs }.boxed_unsync()))
        })
    }
}

struct Heard {
    body: Body,
    signs: Arc<Signs>,
}

impl http_body::Body for Heard {
    type Data = Bytes;
    type Error = BrokenBody;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenBody>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(_))) = &polled {
            self.signs.hear();
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
    use crate::replicas::Ways;

    /// A server that answers at once, with a body that says something.
    struct Talking;

    impl Transport for Talking {
        fn send(&self, _request: Request<Bytes>) -> Boxed<'_, Result<Response<Body>, SendError>> {
            let body = Full::new(Bytes::from_static(b": alive\n\n")).map_err(|never| match never {});
            Box::pin(async { Ok(Response::new(body.boxed_unsync())) })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whatever_comes_is_a_sign_of_life() {
        let signs: Arc<Signs> = Arc::default();
        let attentive = Attentive { transport: Arc::new(Talking), signs: Arc::clone(&signs) };
        let second = Duration::from_secs(1);
        tokio::time::advance(second).await;
        assert_eq!(signs.silence(), second);
        let mut response = attentive.send(Request::new(Bytes::new())).await.unwrap();
        assert_eq!(signs.silence(), Duration::ZERO, "a head");
        tokio::time::advance(second).await;
        assert!(response.body_mut().frame().await.is_some());
        assert_eq!(signs.silence(), Duration::ZERO, "a part of a body");
        tokio::time::advance(second).await;
        assert!(response.body_mut().frame().await.is_none());
        assert_eq!(signs.silence(), second, "the end of a body may be that of its connection");
    }

    /// Who has nobody else to go to waits for as long as the call may take.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_alone_is_waited_for() {
        for (names, is_given_up) in [(&["a"][..], false), (&["a", "b"], true)] {
            // They take connections and answer nothing.
            let silent: Vec<_> =
                names.iter().map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap()).collect();
            let url = |one: &std::net::TcpListener| format!("http://{}/mcp", one.local_addr().unwrap());
            let urls: Vec<http::Uri> = silent.iter().map(|one| url(one).parse().unwrap()).collect();
            let config = Config::http(urls.clone());
            let Config { names, tls, timeouts, limits, vigil, .. } = config;
            let replicas = Replicas::start(urls, Ways { names, tls, timeouts, limits }).await.unwrap();
            let waiting = Waiting::at(&replicas.next(&[]).unwrap(), &replicas, vigil);
            let given_up = tokio::time::timeout(Duration::from_secs(3600), waiting.end()).await.is_ok();
            assert_eq!(given_up, is_given_up, "{} of them", silent.len());
        }
    }
}
