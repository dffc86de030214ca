//! What becomes of the messages of a process.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use steadfast_wire::listen;
use steadfast_wire::params::{META_SUBSCRIPTION_ID, cancelled_request};
use steadfast_wire::rpc::{INTERNAL_ERROR, METHOD_NOT_FOUND};
use steadfast_wire::{Message, MessageKind, RequestId};

use super::super::mail::{End, Letter, Put};
use super::super::splice;
use super::{Ask, CANCELLED, Call, MAX_ASKS, PROGRESS, RESOURCE_UPDATED, Router, refusal};

/// What became of a message of the program that had nowhere to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Trouble {
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
pub(in super::super) struct Received {
    /// To be written to the program.
    pub(in super::super) reply: Option<Bytes>,
    /// To be logged.
    pub(in super::super) trouble: Option<Trouble>,
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
    /// Hands a message of the process to whom it belongs.
    pub(in super::super) fn receive(&mut self, message: &Message<'_>) -> Received {
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
    pub(in super::super) fn receive_garbage(&mut self, text: &str) -> bool {
        let id = splice::find(text, &["id"]).and_then(|range| RequestId::from_json(&text[range]).ok());
        match id {
            Some(RequestId::Number(own)) if self.calls.contains_key(&own) => {
                self.receive_answer(text, Some(&RequestId::Number(own)));
                true
            }
            _ => false,
        }
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
fn subscription(text: &str, member: &str, own: i64) -> Option<Range<usize>> {
    let part = splice::find(text, &[member, "_meta", META_SUBSCRIPTION_ID])?;
    (text[part.clone()] == own.to_string()).then_some(part)
}
