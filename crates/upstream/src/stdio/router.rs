//! Whose message it is. A program has one input and one output for all who use it: every request gets an id of its own
//! there, and whatever comes back gets the id and the token back that its sender knows.
//!
//! - An answer belongs to its request; progress to the request whose token it names; what names a subscription to that.
//! - Anything else belongs to the only request in flight if there is exactly one; else to the session that all requests
//!   in flight are of, or the only session there is; else, if it tells of lists or resources, to all sessions. What is left
//!   belongs to nobody: a notification is dropped, an ask is refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use steadfast_wire::listen;
use steadfast_wire::params::{META_SUBSCRIPTION_ID, cancelled_request};
use steadfast_wire::rpc::{ErrorObject, INTERNAL_ERROR, METHOD_NOT_FOUND};
use steadfast_wire::{Message, MessageKind, RequestId};

use super::mail::{End, Letter, Mailbox, Put};
use super::splice;

/// Requests that a program may have in hand, those included that nobody waits for any more.
pub(super) const MAX_CALLS: usize = 4096;
/// Asks of a program that wait for an answer.
const MAX_ASKS: usize = 1024;
/// Sessions that share a program. One more takes the place of that which was not used for the longest time.
pub(super) const MAX_SEATS: usize = 16_384;

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
}

/// So many requests are in flight already. Those who sent them are to blame, or the program that does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{MAX_CALLS} requests are in flight already")]
pub(super) struct TooManyCalls;

/// What became of a message of the program that had nowhere to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It answers nothing that we know.
    UnknownAnswer,
    /// Nobody wants it.
    Nobody,
    /// So many notifications were thrown away because nobody reads them.
    Missed(usize),
    /// The ask was refused.
    AskRefused(&'static str),
}

/// What to do about a message of the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Received {
    /// To be written to the program.
    pub(super) reply: Option<Bytes>,
    /// To be logged.
    pub(super) trouble: Option<Trouble>,
}

impl From<Trouble> for Received {
    fn from(trouble: Trouble) -> Self {
        Self { reply: None, trouble: Some(trouble) }
    }
}

/// Whom a message concerns.
enum Owner<'a> {
    Call(&'a Call),
    Seat(u64),
    Everybody,
    Nobody,
}

impl Router {
    /// A place for a session. Its number is never given again.
    pub(super) fn seat(&mut self) -> u64 {
        if self.seats.len() >= MAX_SEATS {
            let oldest = self.seats.iter().min_by_key(|(_, seat)| seat.used).map(|(number, _)| *number);
            if let Some(oldest) = oldest {
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
        };
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

    /// Hands a message of the process to whom it belongs.
    pub(super) fn receive(&mut self, message: &Message<'_>) -> Received {
        match &message.kind {
            MessageKind::Response(id) => self.receive_answer(message.text, id.as_ref()),
            MessageKind::Request(id) => self.receive_ask(message, id),
            MessageKind::Notification => match &*message.method {
                PROGRESS => self.receive_progress(message.text),
                CANCELLED => self.receive_cancellation(message),
                _ => self.receive_notification(message),
            },
        }
    }

    /// Hands on what is no message, if it looks like the answer to a request in flight: its sender shall see what came
    /// and need not wait for more.
    pub(super) fn receive_garbage(&mut self, text: &str) -> bool {
        let id = splice::find(text, &["id"]).and_then(|range| RequestId::from_json(&text[range]).ok());
        match id {
            Some(RequestId::Number(own)) if self.calls.contains_key(&own) => {
                self.receive_answer(text, Some(&RequestId::Number(own)));
                true
            }
            _ => false,
        }
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

    fn receive_answer(&mut self, text: &str, id: Option<&RequestId>) -> Received {
        let own = match id {
            Some(RequestId::Number(own)) => Some(*own),
            Some(RequestId::Text(_)) => None,
            // It could not read the id; if there is but one request, it is that.
            None => self.calls.first_key_value().map(|(own, _)| *own).filter(|_| self.calls.len() == 1),
        };
        let Some((own, call)) = own.and_then(|own| self.calls.remove_entry(&own)) else {
            return Trouble::UnknownAnswer.into();
        };
        let id_text = call.id.to_string();
        let mut edits = Vec::new();
        edits.extend(splice::find(text, &["id"]).map(|part| (part, id_text.as_str())));
        edits.extend(subscription(text, "result", own).map(|part| (part, id_text.as_str())));
        edits.sort_by_key(|(part, _)| part.start);
        call.mail.end(End::Answer(splice::replace(text, &edits)));
        Received::default()
    }

    fn receive_progress(&self, text: &str) -> Received {
        let part = splice::find(text, &["params", "progressToken"]);
        let own = part.as_ref().and_then(|part| text[part.clone()].parse::<i64>().ok());
        let call = own.and_then(|own| self.calls.get(&own)).filter(|call| !call.deaf);
        match (call, part) {
            (Some(Call { token: Some(token), mail, .. }), Some(part)) => {
                noted(mail.put(Letter::Notification(splice::replace(text, &[(part, token)]))))
            }
            _ => Trouble::Nobody.into(),
        }
    }

    fn receive_notification(&self, message: &Message<'_>) -> Received {
        let text = message.text;
        if let Some(part) = splice::find(text, &["params", "_meta", META_SUBSCRIPTION_ID])
            && let Some(call) = text[part.clone()].parse().ok().and_then(|own: i64| self.calls.get(&own))
        {
            let text = splice::replace(text, &[(part, &call.id.to_string())]);
            return noted(call.mail.put(Letter::Notification(text)));
        }
        let letter = || Letter::Notification(Bytes::copy_from_slice(text.as_bytes()));
        match self.owner(Some(&message.method)) {
            Owner::Call(call) => noted(call.mail.put(letter())),
            Owner::Seat(seat) => match self.seats.get(&seat) {
                Some(seat) => noted(seat.mail.put(letter())),
                None => Trouble::Nobody.into(),
            },
            Owner::Everybody => {
                let letter = letter();
                let missed = self.seats.values().map(|seat| match seat.mail.put(letter.clone()) {
                    Put::Instead(missed) => missed,
                    Put::Kept | Put::Refused => 0,
                });
                let missed: usize = missed.sum();
                noted(if missed == 0 { Put::Kept } else { Put::Instead(missed) })
            }
            Owner::Nobody => Trouble::Nobody.into(),
        }
    }

    fn receive_ask(&mut self, message: &Message<'_>, id: &RequestId) -> Received {
        if message.method == "ping" {
            let reply = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#).into();
            return Received { reply: Some(reply), trouble: None };
        }
        let refuse = |code, why| Received {
            reply: Some(refusal(id, code, why)),
            trouble: Some(Trouble::AskRefused(why)),
        };
        if self.asks.contains_key(id) {
            return Trouble::AskRefused("its id is in flight already").into();
        }
        if self.asks.len() >= MAX_ASKS {
            return refuse(INTERNAL_ERROR, "too many asks wait for an answer");
        }
        let (seat, mail) = match self.owner(None) {
            Owner::Call(Call { seat: Some(seat), mail, .. }) => (*seat, Arc::clone(mail)),
            Owner::Call(Call { seat: None, .. }) => {
                return refuse(METHOD_NOT_FOUND, "a stateless client is asked by a result, not by a request");
            }
            Owner::Seat(seat) => match self.seats.get(&seat) {
                Some(place) => (seat, Arc::clone(&place.mail)),
                None => return refuse(INTERNAL_ERROR, "the client has gone"),
            },
            Owner::Everybody | Owner::Nobody => {
                return refuse(INTERNAL_ERROR, "nobody can tell which client this concerns");
            }
        };
        match mail.put(Letter::Ask(Bytes::copy_from_slice(message.text.as_bytes()))) {
            Put::Refused => refuse(INTERNAL_ERROR, "nobody takes asks at the moment"),
            put => {
                self.asks.insert(id.clone(), Ask { seat, mail });
                noted(put)
            }
        }
    }

    /// The process wants no answer to an ask of its own any more, or ends a subscription.
    fn receive_cancellation(&mut self, message: &Message<'_>) -> Received {
        let id = message.params.and_then(cancelled_request);
        if let Some(ask) = id.as_ref().and_then(|id| self.asks.remove(id)) {
            let letter = || Letter::Notification(Bytes::copy_from_slice(message.text.as_bytes()));
            // On the same way, unless the request that it came with has ended since.
            return match (ask.mail.put(letter()), self.seats.get(&ask.seat)) {
                (Put::Refused, Some(seat)) => noted(seat.mail.put(letter())),
                (put, _) => noted(put),
            };
        }
        let Some(RequestId::Number(own)) = id else {
            return Trouble::Nobody.into();
        };
        match self.calls.remove(&own) {
            Some(call) if call.method == listen::METHOD => {
                let id = &call.id;
                let text = format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete","_meta":{{"{META_SUBSCRIPTION_ID}":{id}}}}}}}"#
                );
                call.mail.end(End::Answer(text.into()));
                Received::default()
            }
            Some(call) => {
                call.mail.end(End::Broken("the program gave the request up".to_owned()));
                Received::default()
            }
            None => Trouble::Nobody.into(),
        }
    }

    /// Whom a message concerns that does not say so.
    fn owner(&self, method: Option<&str>) -> Owner<'_> {
        let for_all =
            method.is_some_and(|method| method.ends_with("/list_changed") || method == RESOURCE_UPDATED);
        if for_all && self.seats.len() > 1 {
            return Owner::Everybody;
        }
        let mut calls = self.calls.values();
        match (calls.next(), calls.next()) {
            (Some(call), None) if !call.deaf => Owner::Call(call),
            (Some(call), _) => match call.seat {
                Some(seat) if self.calls.values().all(|other| other.seat == call.seat) => Owner::Seat(seat),
                _ => Owner::Nobody,
            },
            (None, _) => match self.seats.first_key_value() {
                Some((seat, _)) if self.seats.len() == 1 => Owner::Seat(*seat),
                _ => Owner::Nobody,
            },
        }
    }

    fn calls_of(&self, seat: u64) -> Vec<i64> {
        self.calls.iter().filter(|(_, call)| call.seat == Some(seat)).map(|(own, _)| *own).collect()
    }
}

fn noted(put: Put) -> Received {
    let trouble = match put {
        Put::Kept => None,
        Put::Instead(missed) => Some(Trouble::Missed(missed)),
        Put::Refused => Some(Trouble::Missed(1)),
    };
    Received { trouble, reply: None }
}

/// Where a message names the subscription that is this request.
fn subscription(text: &str, member: &str, own: i64) -> Option<std::ops::Range<usize>> {
    let part = splice::find(text, &[member, "_meta", META_SUBSCRIPTION_ID])?;
    (text[part.clone()] == own.to_string()).then_some(part)
}

fn cancellation(own: i64) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","method":"{CANCELLED}","params":{{"requestId":{own}}}}}"#).into()
}

fn refusal(id: &RequestId, code: i32, why: &str) -> Bytes {
    ErrorObject::new(code, why).to_message(Some(id)).into()
}
