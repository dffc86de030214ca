//! Handles server requests (sampling, elicitation, roots): concurrently up to a limit, each
//! answered once, dropped when cancelled.
//!
//! The reader of a stream passes a request to [`ServerRequests::accept`]. Below the limit, the
//! handler has received the request when `accept` returns, so the request keeps its position among
//! the messages of its stream. Above the limit the request is queued. One task takes requests from
//! the queue in order of arrival. While the queue is full, the reader waits. In strict order the
//! limit is one.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use bytes::Bytes;
use serde_json::value::RawValue;
use steadfast_wire::rpc::{ErrorObject, INTERNAL_ERROR};
use steadfast_wire::{Mutex, RequestId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::{Limits, ServerRequestOrder};
use crate::error::{Effect, Error};
use crate::handler::{ClientHandler, Event, ServerRequest};
use crate::legacy::{self, Session};
use crate::peer::{ServerResponse, message};
use crate::shared::Shared;

/// Pings that are answered concurrently. Pings do not wait behind server requests, which may take
/// minutes.
const MAX_CONCURRENT_PINGS: usize = 8;

#[derive(Debug)]
pub(crate) struct ServerRequests {
    /// Created by the first request above the limit: most clients never need it.
    queue: OnceLock<mpsc::Sender<(QueueSlot, PendingRequest)>>,
    max_queued: usize,
    /// How many requests are in the queue or about to enter it.
    queued: Arc<AtomicUsize>,
    /// One permit for each request that may be handled concurrently.
    permits: Arc<Semaphore>,
    pings: Arc<Semaphore>,
    in_flight: Arc<InFlight>,
}

impl ServerRequests {
    pub(crate) fn new(order: ServerRequestOrder, limits: &Limits) -> Self {
        let max_concurrent = match order {
            ServerRequestOrder::Concurrent => limits.server_requests.max(1),
            ServerRequestOrder::Strict => 1,
        };
        let permits = Arc::new(Semaphore::new(max_concurrent));
        Self {
            queue: OnceLock::new(),
            max_queued: limits.queued_server_requests.max(1),
            queued: Arc::default(),
            permits,
            pings: Arc::new(Semaphore::new(MAX_CONCURRENT_PINGS)),
            in_flight: Arc::default(),
        }
    }

    /// Returns the queue, and starts its task on first use. The task ends when this value and all
    /// queued requests are dropped.
    fn queue(&self) -> &mpsc::Sender<(QueueSlot, PendingRequest)> {
        self.queue.get_or_init(|| {
            let (queue, pending) = mpsc::channel(self.max_queued);
            tokio::spawn(run_queue(pending, Arc::clone(&self.permits)));
            queue
        })
    }

    /// Accepts a server request. Returns when the handler has received it or when it is in the
    /// queue. Dropping the future before that drops the request.
    pub(crate) async fn accept(
        &self,
        shared: &Arc<Shared>,
        session: &Arc<Session>,
        id: RequestId,
        server_request: ServerRequest,
    ) {
        let Some(registration) = Registration::register(&self.in_flight, session.generation, id) else {
            tracing::warn!(
                method = server_request.method,
                "ignored a server request whose id is already in flight"
            );
            return;
        };
        let pending = PendingRequest {
            shared: Arc::clone(shared),
            session: Arc::clone(session),
            registration,
            server_request,
        };
        // Queued requests arrived earlier and go first.
        if self.queued.load(Ordering::Acquire) == 0
            && let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned()
        {
            return pending.begin(permit).await;
        }
        let queued = QueueSlot::acquire(&self.queued);
        // The queue's task lives as long as `self`, so sending cannot fail.
        let _ = self.queue().send((queued, pending)).await;
    }

    /// Answers a ping without the handler.
    pub(crate) async fn answer_ping(&self, shared: &Arc<Shared>, session: &Arc<Session>, id: RequestId) {
        let Ok(permit) = Arc::clone(&self.pings).acquire_owned().await else { return };
        let (shared, session) = (Arc::clone(shared), Arc::clone(session));
        tokio::spawn(async move {
            if let Err(error) = send_answer(&shared, &session, message::result(&id, b"{}")).await {
                tracing::debug!(%error, "could not answer a ping of the server");
            }
            drop(permit);
        });
    }

    pub(crate) fn cancel(&self, session: &Session, id: &RequestId) {
        if let Some(token) = self.in_flight.0.lock().get(&(session.generation, id.clone())) {
            token.cancel();
        }
    }

    /// Drops all requests of a session that the server has lost, because the server no longer waits
    /// for answers.
    pub(crate) fn cancel_all(&self, session: &Session) {
        let in_flight = self.in_flight.0.lock();
        in_flight.iter().filter(|((generation, _), _)| *generation == session.generation).for_each(
            |(_, token)| {
                token.cancel();
            },
        );
    }

    /// Waits for a permit for an input request of a stateless call. Such a request does not enter
    /// the queue.
    pub(crate) async fn acquire_permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).acquire_owned().await.ok()
    }
}

/// Calls the handler in a task of its own. A panic of the handler becomes an error answer.
pub(crate) async fn answer(
    handler: Arc<dyn ClientHandler>,
    server_request: ServerRequest,
) -> Result<Bytes, ErrorObject> {
    answer_and_signal(handler, server_request, oneshot::channel().0).await
}

/// Calls the handler like [`answer`]. Signals `seen`, or drops it, once the handler has received
/// the request.
async fn answer_and_signal(
    handler: Arc<dyn ClientHandler>,
    server_request: ServerRequest,
    seen: oneshot::Sender<()>,
) -> Result<Bytes, ErrorObject> {
    // The set aborts its task when it is dropped, unlike the handle of a task.
    let mut work = JoinSet::new();
    work.spawn(async move {
        let mut answer = handler.on_server_request(server_request);
        let first = poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await;
        // The reader may be gone.
        let _ = seen.send(());
        match first {
            Poll::Ready(answer) => answer,
            Poll::Pending => answer.await,
        }
    });
    match work.join_next().await {
        Some(Ok(Ok(result))) if serde_json::from_slice::<&RawValue>(&result).is_ok() => Ok(result),
        Some(Ok(Ok(_))) => {
            Err(ErrorObject::new(INTERNAL_ERROR, "the client's handler returned an answer that is not JSON"))
        }
        Some(Ok(Err(error))) => Err(error),
        Some(Err(_)) | None => Err(ErrorObject::new(INTERNAL_ERROR, "the client's handler panicked")),
    }
}

async fn run_queue(mut queue: mpsc::Receiver<(QueueSlot, PendingRequest)>, permits: Arc<Semaphore>) {
    while let Some((queued, pending)) = queue.recv().await {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        pending.begin(permit).await;
        drop(queued);
    }
}

/// Counts one request that is in the queue or about to enter it.
#[derive(Debug)]
struct QueueSlot(Arc<AtomicUsize>);

impl QueueSlot {
    fn acquire(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(count))
    }
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A request that has not been passed to the handler.
#[derive(Debug)]
struct PendingRequest {
    shared: Arc<Shared>,
    session: Arc<Session>,
    registration: Registration,
    server_request: ServerRequest,
}

impl PendingRequest {
    /// Handles the request in a new task. Returns when the handler has received it.
    async fn begin(self, permit: OwnedSemaphorePermit) {
        let (tell, seen) = oneshot::channel();
        tokio::spawn(async move {
            self.handle(tell).await;
            drop(permit);
        });
        // If the task drops `seen` without a signal, the request is over.
        let _ = seen.await;
    }

    async fn handle(self, seen: oneshot::Sender<()>) {
        let Self { shared, session, registration, server_request } = self;
        let call = server_request.call.clone();
        let work = async {
            let text = match answer_and_signal(Arc::clone(&shared.handler), server_request, seen).await {
                Ok(result) => message::result(registration.id(), &result),
                Err(error) => error.to_message(Some(registration.id())).into(),
            };
            if let Err(error) = send_answer(&shared, &session, text).await {
                shared.handler.on_event(Event::AnswerLost {
                    server_request: registration.id().clone(),
                    call,
                    error,
                });
            }
        };
        tokio::select! {
            biased;
            () = registration.cancelled.cancelled() => {}
            () = shared.closing.cancelled() => {}
            () = work => {}
        }
    }
}

/// Sends an answer. Retries if the answer may not have arrived: a server accepts one answer per
/// request, so a second copy does no harm, but a lost answer would leave the server waiting.
async fn send_answer(shared: &Shared, session: &Session, text: Bytes) -> Result<(), Error> {
    let (mut failures, mut may_have_arrived) = (0, false);
    loop {
        let error = match legacy::post(shared, session, text.clone()).await {
            Ok(ServerResponse::Refusal { status, body, challenge }) => {
                // A server that has received the first copy may refuse the second one.
                if may_have_arrived && status.is_client_error() && !session.status_means_lost(status) {
                    return Ok(());
                }
                Error::refused(status, &body, challenge)
            }
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        may_have_arrived |= error.effect() == Effect::Unknown;
        failures += 1;
        let is_transient = match &error {
            Error::Connect(_) | Error::Broken(_) | Error::Timeout(_) => true,
            Error::Refused { status, .. } => matches!(status, 502..=504),
            _ => false,
        };
        if !is_transient || failures >= shared.peer.backoff.attempts {
            return Err(error);
        }
        tokio::time::sleep(shared.peer.backoff.wait(failures)).await;
    }
}

/// The server requests in flight, by session generation and id.
#[derive(Debug, Default)]
struct InFlight(Mutex<HashMap<(u64, RequestId), CancellationToken>>);

impl InFlight {}

/// The table entry of one request. Dropping it removes the entry.
#[derive(Debug)]
struct Registration {
    in_flight: Arc<InFlight>,
    key: (u64, RequestId),
    cancelled: CancellationToken,
}

impl Registration {
    fn register(in_flight: &Arc<InFlight>, generation: u64, id: RequestId) -> Option<Self> {
        let (key, cancelled) = ((generation, id), CancellationToken::new());
        let mut entries = in_flight.0.lock();
        if entries.contains_key(&key) {
            return None;
        }
        entries.insert(key.clone(), cancelled.clone());
        Some(Self { in_flight: Arc::clone(in_flight), key, cancelled })
    }

    fn id(&self) -> &RequestId {
        &self.key.1
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.in_flight.0.lock().remove(&self.key);
    }
}
