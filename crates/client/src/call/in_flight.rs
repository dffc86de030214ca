//! The table of calls in flight, by request id.
//!
//! A server may send an answer or progress in a response that does not belong to the call. The
//! client finds the call of such a message here. The client assigns all ids, so no two of its calls
//! share an id.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use steadfast_wire::{Mutex, RequestId};
use tokio::sync::oneshot;

use crate::call::CallObserver;
use crate::peer::Answer;

/// The calls in flight. Bounded by [`Limits::calls`](crate::Limits::calls).
#[derive(Default)]
pub(crate) struct InFlight(Mutex<HashMap<RequestId, Entry>>);

struct Entry {
    /// `None` once an answer was delivered through the table.
    answer: Option<oneshot::Sender<Answer>>,
    /// Receives progress of the call, if the call requested progress.
    progress: Option<Arc<dyn CallObserver>>,
}

impl InFlight {
    /// Registers a call until the guard is dropped.
    pub(crate) fn register(&self, id: &RequestId, progress: Option<Arc<dyn CallObserver>>) -> Registered<'_> {
        let (sender, answer) = oneshot::channel();
        self.0.lock().insert(id.clone(), Entry { answer: Some(sender), progress });
        Registered { in_flight: self, id: id.clone(), answer }
    }

    /// Delivers an answer to the call with this id. Returns false if no such call waits for an
    /// answer.
    pub(crate) fn deliver(&self, id: &RequestId, answer: Answer) -> bool {
        let waiting = self.0.lock().get_mut(id).and_then(|entry| entry.answer.take());
        waiting.is_some_and(|waiting| waiting.send(answer).is_ok())
    }

    /// Returns true if more than one call is in flight.
    pub(crate) fn has_others(&self) -> bool {
        self.0.lock().len() > 1
    }

    /// The observer of the call with this progress token. The progress token of a call is its id.
    pub(crate) fn observer(&self, token: &RequestId) -> Option<Arc<dyn CallObserver>> {
        self.0.lock().get(token)?.progress.clone()
    }
}

/// An entry of the table. Dropping it removes the entry.
pub(crate) struct Registered<'a> {
    in_flight: &'a InFlight,
    id: RequestId,
    answer: oneshot::Receiver<Answer>,
}

impl Registered<'_> {
    /// Waits for an answer that arrives in the response to another request. Never returns if none
    /// arrives.
    pub(crate) async fn misrouted_answer(&mut self) -> Answer {
        match (&mut self.answer).await {
            Ok(answer) => answer,
            // The sender is in the table for as long as this guard lives.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.in_flight.0.lock().remove(&self.id);
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InFlight").field(&self.0.lock().len()).finish()
    }
}
