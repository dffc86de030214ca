//! The router of one process: its requests, server requests and sessions. This file routes messages
//! to the process; `receive.rs` routes messages from the process.
//!
//! A process has one input and one output for all requests and sessions. In the process each
//! request has its *own id*, which the router assigns. Messages of the process get the client's id
//! and progress token back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use steadfast_wire::params::cancelled_request;
use steadfast_wire::rpc::{ErrorObject, INTERNAL_ERROR};
use steadfast_wire::{Message, RequestId};

use crate::stdio::routing::outbox::{End, Outbox};
use steadfast_wire::raw_json;

/// The maximum number of requests in flight, including those whose sender no longer waits.
pub(super) const MAX_CALLS: usize = 4096;
/// The maximum number of server requests that wait for an answer.
pub(super) const MAX_SERVER_REQUESTS: usize = 1024;
/// The maximum number of sessions of a process. A further session replaces the session without
/// requests that has been unused for the longest time.
pub(super) const MAX_SESSIONS: usize = 16_384;

pub(super) const CANCELLED: &str = "notifications/cancelled";
pub(super) const PROGRESS: &str = "notifications/progress";
const INITIALIZED: &str = "notifications/initialized";
pub(super) const RESOURCE_UPDATED: &str = "notifications/resources/updated";

/// The requests, server requests and sessions of one process.
#[derive(Debug, Default)]
pub(crate) struct Router {
    pub(super) last_id: i64,
    pub(super) calls: BTreeMap<i64, Call>,
    pub(super) server_requests: BTreeMap<RequestId, ServerRequest>,
    pub(super) sessions: BTreeMap<u64, Session>,
    pub(super) last_session: u64,
    /// Counts uses of the process. Serves as a clock for `Session::last_used`.
    pub(super) use_count: u64,
    pub(super) initialized: bool,
    /// The process has received a message other than `server/discover`.
    pub(super) was_used: bool,
}

#[derive(Debug)]
pub(super) struct Call {
    /// Its session. A stateless request has none.
    pub(super) session: Option<u64>,
    /// The id that the sender has given the request.
    pub(super) id: RequestId,
    /// The JSON text of the sender's progress token.
    pub(super) token: Option<String>,
    pub(super) method: String,
    pub(super) outbox: Arc<Outbox>,
    /// The request gets no messages but its answer: its sender wants no others, or no longer waits.
    pub(super) wants_answer_only: bool,
}

/// A server request that was delivered, and the outbox that it went to.
#[derive(Debug)]
pub(super) struct ServerRequest {
    pub(super) session: u64,
    pub(super) outbox: Arc<Outbox>,
}

#[derive(Debug, Default)]
pub(super) struct Session {
    pub(super) outbox: Arc<Outbox>,
    pub(super) last_used: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    Session(u64),
    /// A session that is being opened and wants the answer only.
    Opening(u64),
    Stateless,
    /// The gateway itself with `server/discover`. It wants the answer only.
    Probe,
}

/// Too many requests are in flight: clients send too many, or the program does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{MAX_CALLS} requests are in flight already")]
pub(crate) struct TooManyCalls;

impl Router {
    /// Adds a session. Returns its number, which is never used again, and the lines to write for a
    /// session that had to make room.
    pub(crate) fn add_session(&mut self) -> (u64, Vec<Bytes>) {
        let mut lines = Vec::new();
        if self.sessions.len() >= MAX_SESSIONS {
            // There are more sessions than requests, so at least one session has no request.
            let busy: BTreeSet<u64> = self.calls.values().filter_map(|call| call.session).collect();
            let idle = self.sessions.iter().filter(|(number, _)| !busy.contains(number));
            let oldest = idle.min_by_key(|(_, session)| session.last_used).map(|(number, _)| *number);
            lines = oldest.map(|oldest| self.remove_session(oldest)).unwrap_or_default();
        }
        self.last_session += 1;
        self.use_count += 1;
        let session = Session { outbox: Arc::default(), last_used: self.use_count };
        self.sessions.insert(self.last_session, session);
        (self.last_session, lines)
    }

    /// Removes a session. Returns the lines to write: its requests are cancelled, and the server
    /// requests that it has not answered are refused.
    #[must_use]
    pub(crate) fn remove_session(&mut self, number: u64) -> Vec<Bytes> {
        let Some(session) = self.sessions.remove(&number) else { return Vec::new() };
        session.outbox.end(End::Closed);
        let calls: Vec<i64> = self.calls_of(number);
        let server_requests: Vec<RequestId> = self
            .server_requests
            .iter()
            .filter(|(_, server_request)| server_request.session == number)
            .map(|(id, _)| id.clone())
            .collect();
        let mut lines = Vec::new();
        for id in calls {
            if let Some(call) = self.calls.remove(&id) {
                call.outbox.end(End::Broken("the session was closed".to_owned()));
            }
            lines.push(cancellation(id));
        }
        for id in server_requests {
            self.server_requests.remove(&id);
            lines.push(refusal(&id, INTERNAL_ERROR, "the client is gone"));
        }
        lines
    }

    /// Returns the outbox of a session for messages that belong to none of its requests, and marks
    /// the session as used. `None` if the session does not exist.
    pub(crate) fn outbox_of(&mut self, session: u64) -> Option<Arc<Outbox>> {
        self.use_count += 1;
        let session = self.sessions.get_mut(&session)?;
        session.last_used = self.use_count;
        Some(Arc::clone(&session.outbox))
    }

    /// Adds a request. Returns its id in the process and the line to write.
    pub(crate) fn begin_request(
        &mut self,
        sender: Sender,
        message: &Message<'_>,
        id: &RequestId,
        outbox: &Arc<Outbox>,
    ) -> Result<(i64, Bytes), TooManyCalls> {
        if self.calls.len() >= MAX_CALLS {
            return Err(TooManyCalls);
        }
        self.last_id += 1;
        let own_id = self.last_id;
        let own_text = own_id.to_string();
        let mut edits = Vec::new();
        edits.extend(raw_json::find(message.text, &["id"]).map(|range| (range, own_text.as_str())));
        let token = raw_json::find(message.text, &["params", "_meta", "progressToken"]);
        edits.extend(token.clone().map(|range| (range, own_text.as_str())));
        edits.sort_by_key(|(range, _)| range.start);
        let line = raw_json::replace(message.text, &edits);
        let (session, wants_answer_only) = match sender {
            Sender::Session(session) => (Some(session), false),
            Sender::Opening(session) => (Some(session), true),
            Sender::Stateless => (None, false),
            Sender::Probe => (None, true),
        };
        self.use_count += 1;
        self.was_used |= sender != Sender::Probe;
        let call = Call {
            session,
            id: id.clone(),
            token: token.map(|range| message.text[range].to_owned()),
            method: message.method.clone().into_owned(),
            outbox: Arc::clone(outbox),
            wants_answer_only,
        };
        self.calls.insert(own_id, call);
        Ok((own_id, line))
    }

    /// Records that the sender no longer waits for the answer. Removes a stateless request and
    /// returns the cancellation to write. The request of a session stays until the process answers
    /// it or the client cancels it.
    pub(crate) fn abandon(&mut self, own_id: i64) -> Option<Bytes> {
        let call = self.calls.get_mut(&own_id)?;
        call.wants_answer_only = true;
        if call.session.is_some() {
            return None;
        }
        self.calls.remove(&own_id);
        Some(cancellation(own_id))
    }

    /// Removes a request that was not written.
    pub(crate) fn remove_unsent(&mut self, own_id: i64) {
        self.calls.remove(&own_id);
    }

    /// Returns the line to write for a client's notification, if any.
    pub(crate) fn notification(&mut self, session: Option<u64>, message: &Message<'_>) -> Option<Bytes> {
        self.was_used = true;
        match &*message.method {
            // Only the first session that shares a process initializes it.
            INITIALIZED if std::mem::replace(&mut self.initialized, true) => None,
            CANCELLED => {
                let id = cancelled_request(message.params?)?;
                let own_id = self.calls.iter().find(|(_, call)| call.session == session && call.id == id);
                let own_id = *own_id?.0;
                self.calls.remove(&own_id);
                let part = raw_json::find(message.text, &["params", "requestId"])?;
                Some(raw_json::replace(message.text, &[(part, &own_id.to_string())]))
            }
            _ => Some(Bytes::copy_from_slice(message.text.as_bytes())),
        }
    }

    /// Returns the line to write for a client's answer. `None` if this session has no server
    /// request with that id.
    pub(crate) fn answer(&mut self, session: u64, message: &Message<'_>, id: &RequestId) -> Option<Bytes> {
        self.server_requests.get(id).filter(|server_request| server_request.session == session)?;
        self.server_requests.remove(id);
        Some(Bytes::copy_from_slice(message.text.as_bytes()))
    }

    /// Fails all requests, closes all sessions and discards all server requests, because the
    /// process has ended.
    pub(crate) fn end_all(&mut self, why: &str) {
        for call in std::mem::take(&mut self.calls).into_values() {
            call.outbox.end(End::Broken(why.to_owned()));
        }
        for session in std::mem::take(&mut self.sessions).into_values() {
            session.outbox.end(End::Closed);
        }
        self.server_requests.clear();
    }

    /// Returns true if there is no session and no request in flight.
    pub(crate) fn is_unused(&self) -> bool {
        self.calls.is_empty() && self.sessions.is_empty()
    }

    /// Returns true if no request is in flight, in either direction.
    pub(crate) fn is_idle(&self) -> bool {
        self.calls.is_empty() && self.server_requests.is_empty()
    }

    /// Returns true if the process is unused and has received nothing but `server/discover`.
    pub(crate) fn is_fresh(&self) -> bool {
        self.is_unused() && !self.was_used
    }

    /// Returns a number that grows with each new session, each request and each use of a session.
    pub(crate) fn use_count(&self) -> u64 {
        self.use_count
    }

    fn calls_of(&self, session: u64) -> Vec<i64> {
        self.calls
            .iter()
            .filter(|(_, call)| call.session == Some(session))
            .map(|(own_id, _)| *own_id)
            .collect()
    }
}

fn cancellation(own_id: i64) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","method":"{CANCELLED}","params":{{"requestId":{own_id}}}}}"#).into()
}

pub(super) fn refusal(id: &RequestId, code: i32, why: &str) -> Bytes {
    ErrorObject::new(code, why).to_message(Some(id)).into()
}
