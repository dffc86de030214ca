//! The calls of a client that are in flight, by their id on the wire.
//!
//! A server may send an answer or progress on a response that does not belong to the call, so both are looked up here. All ids
//! are made by this client, and no two calls of a client have the same.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use steadfast_wire::RequestId;
use tokio::sync::oneshot;

use crate::errand::Listener;
use crate::message::Answer;

/// Bounded by [`Limits::calls`](crate::Limits::calls).
#[derive(Default)]
pub(crate) struct InFlight(Mutex<HashMap<RequestId, Entry>>);

struct Entry {
    /// Gone when the call was answered through it.
    answer: Option<oneshot::Sender<Answer>>,
    /// Hears the progress of the call, if its owner wants progress.
    progress: Option<Arc<dyn Listener>>,
}

impl InFlight {
    /// Registers a call until the guard is dropped.
    pub(crate) fn enter(&self, id: &RequestId, progress: Option<Arc<dyn Listener>>) -> Registered<'_> {
        let (sender, answer) = oneshot::channel();
        self.lock().insert(id.clone(), Entry { answer: Some(sender), progress });
        Registered { in_flight: self, id: id.clone(), answer }
    }

    /// Answers a call, wherever its answer was found. Returns false if no call with this id waits for an answer.
    pub(crate) fn deliver(&self, id: &RequestId, answer: Answer) -> bool {
        let waiting = self.lock().get_mut(id).and_then(|entry| entry.answer.take());
        waiting.is_some_and(|waiting| waiting.send(answer).is_ok())
    }

    /// Whether the response to another call may still hold the answer to this one.
    pub(crate) fn has_others(&self) -> bool {
        self.lock().len() > 1
    }

    /// The listener for progress with this token: the token of a call is its id.
    pub(crate) fn listener(&self, token: &RequestId) -> Option<Arc<dyn Listener>> {
        self.lock().get(token)?.progress.clone()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RequestId, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call in the table of those in flight.
pub(crate) struct Registered<'a> {
    in_flight: &'a InFlight,
    id: RequestId,
    answer: oneshot::Receiver<Answer>,
}

impl Registered<'_> {
    /// Waits for an answer that comes on the response to another request.
    pub(crate) async fn answer(&mut self) -> Answer {
        match (&mut self.answer).await {
            Ok(answer) => answer,
            // The sender is in the table for as long as this guard lives.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.in_flight.lock().remove(&self.id);
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InFlight").field(&self.lock().len()).finish()
    }
}
