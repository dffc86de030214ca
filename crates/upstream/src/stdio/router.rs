//! Whose message it is. A program has one input and one output for all who use it: every request gets an id of its own
//! there, and whatever comes back gets the id and the token back that its sender knows.
//!
//! - An answer belongs to its request; progress to the request whose token it names; what names a subscription to that.
//! - Anything else belongs to the only request in flight if there is exactly one; else to the session that all requests
//!   in flight are of, or the only session there is; else, if it tells of lists or resources, to all sessions. What is left
//!   belongs to nobody: a notification is dropped, an ask is refused.

mod receive;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use steadfast_wire::params::cancelled_request;
use steadfast_wire::rpc::{ErrorObject, INTERNAL_ERROR};
use steadfast_wire::{Message, RequestId};

use super::mail::{End, Mailbox};
use super::splice;

pub(super) use receive::{Received, Trouble};

/// Requests that a program may have in hand, those included that nobody waits for any more.
const MAX_CALLS: usize = 4096;
/// Asks of a program that wait for an answer.
const MAX_ASKS: usize = 1024;
/// Sessions that share a program. One more takes the place of that which was not used for the longest time.
const MAX_SEATS: usize = 16_384;

const CANCELLED: &str = "notifications/cancelled";
const PROGRESS: &str = "notifications/progress";
const INITIALIZED: &str = "notifications/initialized";
const RESOURCE_UPDATED: &str = "notifications/resources/updated";

/// The tables of one process.
#[derive(Debug, Default)]
pub(super) struct Router {
    last_id: i64,
    calls: BTreeMap<i64, Call>,
    asks: BTreeMap<RequestId, Ask>,
    seats: BTreeMap<u64, Seat>,
    last_seat: u64,
    uses: u64,
    initialized: bool,
    /// It was sent more than `server/discover`.
    is_stained: bool,
}

/// A request in flight.
#[derive(Debug)]
struct Call {
    /// Its session; a stateless request has none.
    seat: Option<u64>,
    /// What its sender calls it, and the JSON text of its progress token.
    id: RequestId,
    token: Option<String>,
    method: String,
    mail: Arc<Mailbox>,
    /// Its sender hears nothing but the answer.
    deaf: bool,
}

/// An ask that was handed to a session, and where.
#[derive(Debug)]
struct Ask {
    seat: u64,
    mail: Arc<Mailbox>,
}

/// A session that uses the process.
#[derive(Debug, Default)]
struct Seat {
    mail: Arc<Mailbox>,
    used: u64,
}

/// Who sends a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    Session(u64),
    /// A session that wants the answer alone, because it is being opened.
    Opening(u64),
    Stateless,
    /// Asks `server/discover` and wants the answer alone.
    Probe,
}

/// So many requests are in flight already. Those who sent them are to blame, or the program that does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{MAX_CALLS} requests are in flight already")]
pub(super) struct TooManyCalls;

impl Router {
    /// A place for a session. Its number is never given again.
    pub(super) fn seat(&mut self) -> u64 {
        if self.seats.len() >= MAX_SEATS {
            // There are more places than calls, so one of them has none.
            let busy: BTreeSet<u64> = self.calls.values().filter_map(|call| call.seat).collect();
            let idle = self.seats.iter().filter(|(number, _)| !busy.contains(number));
            if let Some(oldest) = idle.min_by_key(|(_, seat)| seat.used).map(|(number, _)| *number) {
                self.leave(oldest);
            }
        }
        self.last_seat += 1;
        self.uses += 1;
        self.seats.insert(self.last_seat, Seat { mail: Arc::default(), used: self.uses });
        self.last_seat
    }

    /// Ends a session: what it has in flight is cancelled, and what was asked of it is refused.
    pub(super) fn leave(&mut self, number: u64) -> Vec<Bytes> {
        let Some(seat) = self.seats.remove(&number) else { return Vec::new() };
        seat.mail.end(End::Over);
        let calls: Vec<i64> = self.calls_of(number);
        let asks: Vec<RequestId> =
            self.asks.iter().filter(|(_, ask)| ask.seat == number).map(|(id, _)| id.clone()).collect();
        let mut lines = Vec::new();
        for id in calls {
            if let Some(call) = self.calls.remove(&id) {
                call.mail.end(End::Broken("its session was ended".to_owned()));
            }
            lines.push(cancellation(id));
        }
        for id in asks {
            self.asks.remove(&id);
            lines.push(refusal(&id, INTERNAL_ERROR, "the client has gone"));
        }
        lines
    }

    /// What belongs to no request of a session. `None` if there is no such session.
    pub(super) fn mail_of(&mut self, seat: u64) -> Option<Arc<Mailbox>> {
        self.uses += 1;
        let seat = self.seats.get_mut(&seat)?;
        seat.used = self.uses;
        Some(Arc::clone(&seat.mail))
    }

    /// Takes a request: the id that it has in the process, and the line to write.
    pub(super) fn begin(
        &mut self,
        sender: Sender,
        message: &Message<'_>,
        id: &RequestId,
        mail: &Arc<Mailbox>,
    ) -> Result<(i64, Bytes), TooManyCalls> {
        if self.calls.len() >= MAX_CALLS {
            return Err(TooManyCalls);
        }
        self.last_id += 1;
        let own = self.last_id;
        let own_text = own.to_string();
        let mut edits = Vec::new();
        edits.extend(splice::find(message.text, &["id"]).map(|range| (range, own_text.as_str())));
        let token = splice::find(message.text, &["params", "_meta", "progressToken"]);
        edits.extend(token.clone().map(|range| (range, own_text.as_str())));
        edits.sort_by_key(|(range, _)| range.start);
        let line = splice::replace(message.text, &edits);
        let (seat, deaf) = match sender {
            Sender::Session(seat) => (Some(seat), false),
            Sender::Opening(seat) => (Some(seat), true),
            Sender::Stateless => (None, false),
            Sender::Probe => (None, true),
        };
        self.uses += 1;
        self.is_stained |= sender != Sender::Probe;
        let call = Call {
            seat,
            id: id.clone(),
            token: token.map(|range| message.text[range].to_owned()),
            method: message.method.clone().into_owned(),
            mail: Arc::clone(mail),
            deaf,
        };
        self.calls.insert(own, call);
        Ok((own, line))
    }

    /// Nobody waits for this request any more. A session says so itself if it wants the work to stop.
    pub(super) fn forsake(&mut self, own: i64) -> Option<Bytes> {
        let call = self.calls.get_mut(&own)?;
        call.deaf = true;
        if call.seat.is_some() {
            return None;
        }
        self.calls.remove(&own);
        Some(cancellation(own))
    }

    /// It was never written.
    pub(super) fn take_back(&mut self, own: i64) {
        self.calls.remove(&own);
    }

    /// The line to write for a notification of a client, if there is one.
    pub(super) fn notification(&mut self, seat: Option<u64>, message: &Message<'_>) -> Option<Bytes> {
        self.is_stained = true;
        match &*message.method {
            // The process is told once, whoever of those that share it comes first.
            INITIALIZED if std::mem::replace(&mut self.initialized, true) => None,
            CANCELLED => {
                let id = cancelled_request(message.params?)?;
                let own = self.calls.iter().find(|(_, call)| call.seat == seat && call.id == id);
                let own = *own?.0;
                self.calls.remove(&own);
                let part = splice::find(message.text, &["params", "requestId"])?;
                Some(splice::replace(message.text, &[(part, &own.to_string())]))
            }
            _ => Some(Bytes::copy_from_slice(message.text.as_bytes())),
        }
    }

    /// The line to write for an answer of a client. `None` if it was not asked.
    pub(super) fn answer(&mut self, seat: u64, message: &Message<'_>, id: &RequestId) -> Option<Bytes> {
        self.asks.get(id).filter(|ask| ask.seat == seat)?;
        self.asks.remove(id);
        Some(Bytes::copy_from_slice(message.text.as_bytes()))
    }

    /// The process is gone.
    pub(super) fn break_off(&mut self, why: &str) {
        for call in std::mem::take(&mut self.calls).into_values() {
            call.mail.end(End::Broken(why.to_owned()));
        }
        for seat in std::mem::take(&mut self.seats).into_values() {
            seat.mail.end(End::Over);
        }
        self.asks.clear();
    }

    /// Whether it has no session and no request in flight.
    pub(super) fn is_unused(&self) -> bool {
        self.calls.is_empty() && self.seats.is_empty()
    }

    /// Whether it is unused, and was sent nothing but `server/discover`.
    pub(super) fn is_fresh(&self) -> bool {
        self.is_unused() && !self.is_stained
    }

    /// Grows with each request and each session.
    pub(super) fn uses(&self) -> u64 {
        self.uses
    }

    fn calls_of(&self, seat: u64) -> Vec<i64> {
        self.calls.iter().filter(|(_, call)| call.seat == Some(seat)).map(|(own, _)| *own).collect()
    }
}

fn cancellation(own: i64) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","method":"{CANCELLED}","params":{{"requestId":{own}}}}}"#).into()
}

fn refusal(id: &RequestId, code: i32, why: &str) -> Bytes {
    ErrorObject::new(code, why).to_message(Some(id)).into()
}
