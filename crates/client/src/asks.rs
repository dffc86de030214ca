//! Asks: handled side by side up to a bound, answered once each, forgotten when cancelled.
//!
//! A reader hands an ask over with [`Asks::accept`]. If there is room, the owner has seen it when the reader goes on, so it
//! keeps its place among the messages of its stream. Those that find no room wait in a queue, from which one task takes them in
//! the order of their arrival; a reader waits while that is full. In strict order there is room for one.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;

use bytes::Bytes;
use serde_json::value::RawValue;
use steadfast_wire::RequestId;
use steadfast_wire::rpc::{ErrorObject, INTERNAL_ERROR};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::{Limits, Order};
use crate::error::{Effect, Error};
use crate::incoming::Incoming;
use crate::legacy::{self, Session};
use crate::message;
use crate::owner::{Ask, Event, Owner};
use crate::shared::Shared;

/// Pings that are being answered at a time. They do not wait behind asks, which may take minutes.
const PINGS: usize = 8;

/// The asks of one client.
#[derive(Debug)]
pub(crate) struct Asks {
    /// Opened for the first that finds no room: most clients are never asked that much.
    queue: OnceLock<mpsc::Sender<(Queued, Waiting)>>,
    max_queued: usize,
    /// How many are in the queue, or on the way there.
    queued: Arc<AtomicUsize>,
    /// One permit for each ask that may be handled at a time.
    room: Arc<Semaphore>,
    pings: Arc<Semaphore>,
    live: Arc<Live>,
}

impl Asks {
    pub(crate) fn new(order: Order, limits: &Limits) -> Self {
        let at_once = match order {
            Order::Concurrent => limits.asks.max(1),
            Order::Strict => 1,
        };
        let room = Arc::new(Semaphore::new(at_once));
        Self {
            queue: OnceLock::new(),
            max_queued: limits.waiting_asks.max(1),
            queued: Arc::default(),
            room,
            pings: Arc::new(Semaphore::new(PINGS)),
            live: Arc::default(),
        }
    }

    /// The task that hands asks out ends when this value and all asks are gone.
    fn queue(&self) -> &mpsc::Sender<(Queued, Waiting)> {
        self.queue.get_or_init(|| {
            let (queue, waiting) = mpsc::channel(self.max_queued);
            tokio::spawn(hand_out(waiting, Arc::clone(&self.room)));
            queue
        })
    }

    /// Takes an ask of a session, waiting until the owner has seen it or it is in the queue. Dropped before that, the ask is
    /// forgotten.
    pub(crate) async fn accept(&self, shared: &Arc<Shared>, session: &Arc<Session>, id: RequestId, ask: Ask) {
        let Some(place) = Place::take(&self.live, session.generation, id) else {
            tracing::warn!(method = ask.method, "the server repeats the id of an ask in flight: ignored");
            return;
        };
        let waiting = Waiting { shared: Arc::clone(shared), session: Arc::clone(session), place, ask };
        // Whoever waits was there before.
        if self.queued.load(Ordering::Acquire) == 0
            && let Ok(permit) = Arc::clone(&self.room).try_acquire_owned()
        {
            return waiting.begin(permit).await;
        }
        let queued = Queued::one_more(&self.queued);
        // The task that takes them lives as long as this.
        let _ = self.queue().send((queued, waiting)).await;
    }

    /// Answers a ping without the owner.
    pub(crate) async fn ping(&self, shared: &Arc<Shared>, session: &Arc<Session>, id: RequestId) {
        let Ok(permit) = Arc::clone(&self.pings).acquire_owned().await else { return };
        let (shared, session) = (Arc::clone(shared), Arc::clone(session));
        tokio::spawn(async move {
            if let Err(error) = deliver(&shared, &session, message::result(&id, b"{}")).await {
                tracing::debug!(%error, "a ping was not answered");
            }
            drop(permit);
        });
    }

    /// The server wants no answer any more.
    pub(crate) fn cancel(&self, session: &Session, id: &RequestId) {
        if let Some(token) = self.live.lock().get(&(session.generation, id.clone())) {
            token.cancel();
        }
    }

    /// The session is gone, and with it whoever waited for answers.
    pub(crate) fn cancel_all(&self, session: &Session) {
        let live = self.live.lock();
        live.iter().filter(|((generation, _), _)| *generation == session.generation).for_each(
            |(_, token)| {
                token.cancel();
            },
        );
    }

    /// Room for one more ask, which is not in the queue: an input of a stateless call.
    pub(crate) async fn room(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.room).acquire_owned().await.ok()
    }
}

/// Has the owner answer, in a task of its own: if the owner panics, that is an answer too.
pub(crate) async fn answer(owner: Arc<dyn Owner>, ask: Ask) -> Result<Bytes, ErrorObject> {
    answer_telling(owner, ask, oneshot::channel().0).await
}

/// The same; `seen` is told, or dropped, when the owner has got hold of the ask.
async fn answer_telling(
    owner: Arc<dyn Owner>,
    ask: Ask,
    seen: oneshot::Sender<()>,
) -> Result<Bytes, ErrorObject> {
    // The set aborts its task when it is dropped, unlike the handle of a task.
    let mut work = JoinSet::new();
    work.spawn(async move {
        let mut answer = owner.answer(ask);
        let first = poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await;
        // The reader may have gone.
        let _ = seen.send(());
        match first {
            Poll::Ready(answer) => answer,
            Poll::Pending => answer.await,
        }
    });
    match work.join_next().await {
        Some(Ok(Ok(result))) if serde_json::from_slice::<&RawValue>(&result).is_ok() => Ok(result),
        Some(Ok(Ok(_))) => Err(ErrorObject::new(INTERNAL_ERROR, "the client's answer is not JSON")),
        Some(Ok(Err(error))) => Err(error),
        Some(Err(_)) | None => Err(ErrorObject::new(INTERNAL_ERROR, "the client failed to answer")),
    }
}

async fn hand_out(mut queue: mpsc::Receiver<(Queued, Waiting)>, room: Arc<Semaphore>) {
    while let Some((queued, waiting)) = queue.recv().await {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        waiting.begin(permit).await;
        drop(queued);
    }
}

/// A place in the queue, or on the way there.
#[derive(Debug)]
struct Queued(Arc<AtomicUsize>);

impl Queued {
    fn one_more(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(count))
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// An ask on its way.
#[derive(Debug)]
struct Waiting {
    shared: Arc<Shared>,
    session: Arc<Session>,
    place: Place,
    ask: Ask,
}

impl Waiting {
    /// Has it handled in a task of its own, and waits until the owner has seen it.
    async fn begin(self, permit: OwnedSemaphorePermit) {
        let (tell, seen) = oneshot::channel();
        tokio::spawn(async move {
            self.handle(tell).await;
            drop(permit);
        });
        // Dropped without a word, it is over.
        let _ = seen.await;
    }

    async fn handle(self, seen: oneshot::Sender<()>) {
        let Self { shared, session, place, ask } = self;
        let call = ask.call.clone();
        let work = async {
            let text = match answer_telling(Arc::clone(&shared.owner), ask, seen).await {
                Ok(result) => message::result(place.id(), &result),
                Err(error) => error.to_message(Some(place.id())).into(),
            };
            if let Err(error) = deliver(&shared, &session, text).await {
                shared.owner.event(Event::AnswerLost { ask: place.id().clone(), call, error });
            }
        };
        tokio::select! {
            biased;
            () = place.cancelled.cancelled() => {}
            () = shared.closing.cancelled() => {}
            () = work => {}
        }
    }
}

/// Sends an answer, and again if nobody knows whether it arrived: a server takes one answer to an ask, so sending it twice does no
/// harm, and not sending it again would leave the server waiting.
async fn deliver(shared: &Shared, session: &Session, text: Bytes) -> Result<(), Error> {
    let (mut failures, mut may_be_there) = (0, false);
    loop {
        let error = match legacy::post(shared, session, text.clone()).await {
            Ok(Incoming::Refusal { status, body, challenge }) => {
                // Whoever has the answer already does not want it again.
                if may_be_there && status.is_client_error() && !session.is_lost(status) {
                    return Ok(());
                }
                Error::refused(status, &body, challenge)
            }
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        may_be_there |= error.effect() == Effect::Unknown;
        failures += 1;
        let is_passing = match &error {
            Error::Connect(_) | Error::Broken(_) | Error::Timeout(_) => true,
            Error::Refused { status, .. } => matches!(status, 502..=504),
            _ => false,
        };
        if !is_passing || failures >= shared.link.backoff.attempts {
            return Err(error);
        }
        tokio::time::sleep(shared.link.backoff.wait(failures)).await;
    }
}

/// The asks in flight, by session and id.
#[derive(Debug, Default)]
struct Live(Mutex<HashMap<(u64, RequestId), CancellationToken>>);

impl Live {
    fn lock(&self) -> MutexGuard<'_, HashMap<(u64, RequestId), CancellationToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The entry of one ask, for as long as it is in flight.
#[derive(Debug)]
struct Place {
    live: Arc<Live>,
    key: (u64, RequestId),
    cancelled: CancellationToken,
}

impl Place {
    fn take(live: &Arc<Live>, generation: u64, id: RequestId) -> Option<Self> {
        let (key, cancelled) = ((generation, id), CancellationToken::new());
        let mut entries = live.lock();
        if entries.contains_key(&key) {
            return None;
        }
        entries.insert(key.clone(), cancelled.clone());
        Some(Self { live: Arc::clone(live), key, cancelled })
    }

    fn id(&self) -> &RequestId {
        &self.key.1
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.live.lock().remove(&self.key);
    }
}
