//! Routes the messages that a process writes to the requests and sessions that they belong to.
//!
//! - An answer belongs to its request, progress to the request whose token it carries, and a
//!   message with a subscription id to that subscription.
//! - Notifications about lists and resources go to all sessions if there are several.
//! - Any other message belongs to the only request in flight. If there are several, it belongs to
//!   the session that all of them belong to. If there is none, it belongs to the only session.
//! - Otherwise a message has no recipient: a server request is refused, other messages are dropped.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use steadfast_engine::Class;
use steadfast_wire::params::{META_SUBSCRIPTION_ID, cancelled_request};
use steadfast_wire::rpc::{INTERNAL_ERROR, METHOD_NOT_FOUND};
use steadfast_wire::{Message, MessageKind, RequestId, raw_json, subscriptions};

use super::router::{
    CANCELLED, Call, MAX_SERVER_REQUESTS, PROGRESS, RESOURCE_UPDATED, Router, ServerRequest, refusal,
};
use crate::stdio::routing::outbox::{End, Outbox, PushResult};

/// Why a message of the process was not delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// An answer to an unknown request.
    UnknownAnswer,
    /// No request or session is concerned.
    NoRecipient,
    /// This many notifications were dropped, because no client reads them.
    Dropped(usize),
    /// The server request was refused.
    ServerRequestRefused(&'static str),
}

/// What to do about a message of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Received {
    /// A line to write to the process.
    pub(crate) reply: Option<Bytes>,
    pub(crate) problem: Option<Problem>,
}

impl From<Problem> for Received {
    fn from(problem: Problem) -> Self {
        Self { reply: None, problem: Some(problem) }
    }
}

/// Where a message goes.
enum Recipient<'a> {
    Call(&'a Call),
    Session(u64),
    AllSessions,
    None,
}

impl Router {
    /// Routes a message of the process.
    pub(crate) fn receive(&mut self, message: &Message<'_>) -> Received {
        match &message.kind {
            MessageKind::Response(id) => self.receive_answer(message.text, id.as_ref()),
            MessageKind::Request(id) => self.receive_server_request(message, id),
            MessageKind::Notification => match &*message.method {
                PROGRESS => self.receive_progress(message.text),
                CANCELLED => self.receive_cancellation(message),
                _ => self.receive_notification(message),
            },
        }
    }

    /// Routes a line that is not a valid message, if it looks like the answer to a request in
    /// flight. Its sender then gets it and does not wait any longer. Returns false if it does not.
    pub(crate) fn receive_invalid(&mut self, text: &str) -> bool {
        let id = raw_json::get(text, &["id"]).and_then(|id| RequestId::from_json(id).ok());
        match id {
            Some(RequestId::Number(own_id)) if self.calls.contains_key(&own_id) => {
                self.receive_answer(text, Some(&RequestId::Number(own_id)));
                true
            }
            _ => false,
        }
    }

    fn receive_answer(&mut self, text: &str, id: Option<&RequestId>) -> Received {
        let own_id = match id {
            Some(RequestId::Number(own_id)) => Some(*own_id),
            Some(RequestId::Text(_)) => None,
            // The process could not read the id. If there is only one request, it is that.
            None => self.calls.first_key_value().map(|(own_id, _)| *own_id).filter(|_| self.calls.len() == 1),
        };
        let Some((own_id, call)) = own_id.and_then(|own_id| self.calls.remove_entry(&own_id)) else {
            return Problem::UnknownAnswer.into();
        };
        let id_text = call.id.to_string();
        let mut edits = Vec::new();
        edits.extend(raw_json::find(text, &["id"]).map(|part| (part, id_text.as_str())));
        edits.extend(subscription(text, "result", own_id).map(|part| (part, id_text.as_str())));
        edits.sort_by_key(|(part, _)| part.start);
        call.outbox.end(End::Answer(raw_json::replace(text, &edits)));
        Received::default()
    }

    fn receive_progress(&self, text: &str) -> Received {
        let part = raw_json::find(text, &["params", "progressToken"]);
        let own_id = part.as_ref().and_then(|part| text[part.clone()].parse::<i64>().ok());
        let call = own_id.and_then(|own_id| self.calls.get(&own_id)).filter(|call| !call.wants_answer_only);
        match (call, part) {
            (Some(Call { token: Some(token), outbox, .. }), Some(part)) => {
                received(outbox.push(Class::Droppable, raw_json::replace(text, &[(part, token)])))
            }
            _ => Problem::NoRecipient.into(),
        }
    }

    fn receive_notification(&self, message: &Message<'_>) -> Received {
        let text = message.text;
        if let Some(part) = raw_json::find(text, &["params", "_meta", META_SUBSCRIPTION_ID])
            && let Some(call) =
                text[part.clone()].parse().ok().and_then(|own_id: i64| self.calls.get(&own_id))
        {
            let text = raw_json::replace(text, &[(part, &call.id.to_string())]);
            return received(call.outbox.push(Class::Droppable, text));
        }
        let text = Bytes::copy_from_slice(text.as_bytes());
        let push = |outbox: &Outbox| outbox.push(Class::Droppable, text.clone());
        match self.recipient(Some(&message.method)) {
            Recipient::Call(call) => received(push(&call.outbox)),
            Recipient::Session(session) => match self.sessions.get(&session) {
                Some(session) => received(push(&session.outbox)),
                None => Problem::NoRecipient.into(),
            },
            Recipient::AllSessions => {
                let displaced = self.sessions.values().map(|session| match push(&session.outbox) {
                    PushResult::Displaced(count) => count,
                    PushResult::Queued | PushResult::Refused => 0,
                });
                let displaced: usize = displaced.sum();
                received(if displaced == 0 { PushResult::Queued } else { PushResult::Displaced(displaced) })
            }
            Recipient::None => Problem::NoRecipient.into(),
        }
    }

    fn receive_server_request(&mut self, message: &Message<'_>, id: &RequestId) -> Received {
        if message.method == "ping" {
            let reply = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#).into();
            return Received { reply: Some(reply), problem: None };
        }
        let refuse = |code, why| Received {
            reply: Some(refusal(id, code, why)),
            problem: Some(Problem::ServerRequestRefused(why)),
        };
        if self.server_requests.contains_key(id) {
            return Problem::ServerRequestRefused("its id is in flight already").into();
        }
        if self.server_requests.len() >= MAX_SERVER_REQUESTS {
            return refuse(INTERNAL_ERROR, "too many server requests wait for an answer");
        }
        let (session, outbox) = match self.recipient(None) {
            Recipient::Call(Call { session: Some(session), outbox, .. }) => (*session, Arc::clone(outbox)),
            Recipient::Call(Call { session: None, .. }) => {
                return refuse(
                    METHOD_NOT_FOUND,
                    "a stateless client accepts no server requests: ask for input in the result",
                );
            }
            Recipient::Session(session) => match self.sessions.get(&session) {
                Some(found) => (session, Arc::clone(&found.outbox)),
                None => return refuse(INTERNAL_ERROR, "the client is gone"),
            },
            Recipient::AllSessions | Recipient::None => {
                return refuse(INTERNAL_ERROR, "the gateway cannot tell which client this request concerns");
            }
        };
        match outbox.push(Class::ServerRequest, Bytes::copy_from_slice(message.text.as_bytes())) {
            PushResult::Refused => {
                refuse(INTERNAL_ERROR, "the client does not accept server requests at the moment")
            }
            push => {
                self.server_requests.insert(id.clone(), ServerRequest { session, outbox });
                received(push)
            }
        }
    }

    /// The process cancels its own server request, or ends a subscription.
    fn receive_cancellation(&mut self, message: &Message<'_>) -> Received {
        let id = message.params.and_then(cancelled_request);
        if let Some(server_request) = id.as_ref().and_then(|id| self.server_requests.remove(id)) {
            let text = Bytes::copy_from_slice(message.text.as_bytes());
            let push = |outbox: &Outbox| outbox.push(Class::Droppable, text.clone());
            // On the same stream, unless the request that it belongs to has ended since.
            return match (push(&server_request.outbox), self.sessions.get(&server_request.session)) {
                (PushResult::Refused, Some(session)) => received(push(&session.outbox)),
                (push, _) => received(push),
            };
        }
        let Some(RequestId::Number(own_id)) = id else {
            return Problem::NoRecipient.into();
        };
        match self.calls.remove(&own_id) {
            Some(call) if call.method == subscriptions::METHOD => {
                let id = &call.id;
                let text = format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete","_meta":{{"{META_SUBSCRIPTION_ID}":{id}}}}}}}"#
                );
                call.outbox.end(End::Answer(text.into()));
                Received::default()
            }
            Some(call) => {
                call.outbox.end(End::Broken("the program cancelled the request".to_owned()));
                Received::default()
            }
            None => Problem::NoRecipient.into(),
        }
    }

    /// Returns the recipient of a message that names none.
    fn recipient(&self, method: Option<&str>) -> Recipient<'_> {
        let is_for_all =
            method.is_some_and(|method| method.ends_with("/list_changed") || method == RESOURCE_UPDATED);
        if is_for_all && self.sessions.len() > 1 {
            return Recipient::AllSessions;
        }
        let mut calls = self.calls.values();
        match (calls.next(), calls.next()) {
            (Some(call), None) if !call.wants_answer_only => Recipient::Call(call),
            (Some(call), _) => match call.session {
                Some(session) if self.calls.values().all(|other| other.session == call.session) => {
                    Recipient::Session(session)
                }
                _ => Recipient::None,
            },
            (None, _) => match self.sessions.first_key_value() {
                Some((session, _)) if self.sessions.len() == 1 => Recipient::Session(*session),
                _ => Recipient::None,
            },
        }
    }
}

fn received(push: PushResult) -> Received {
    let problem = match push {
        PushResult::Queued => None,
        PushResult::Displaced(count) => Some(Problem::Dropped(count)),
        PushResult::Refused => Some(Problem::Dropped(1)),
    };
    Received { problem, reply: None }
}

/// Returns the position of the subscription id, if it is the id of this request.
fn subscription(text: &str, member: &str, own_id: i64) -> Option<Range<usize>> {
    let part = raw_json::find(text, &[member, "_meta", META_SUBSCRIPTION_ID])?;
    (text[part.clone()] == own_id.to_string()).then_some(part)
}
