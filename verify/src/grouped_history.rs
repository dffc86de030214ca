//! A history grouped by session, call and connection, as the checkers need it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use steadfast_wire::EventId;

use crate::history::{Entry, Seen};

#[derive(Debug, Default)]
pub struct Digest<'a> {
    pub sessions: BTreeMap<&'a str, Session<'a>>,
    pub calls: BTreeMap<&'a str, Call<'a>>,
    pub connections: BTreeMap<u64, Connection<'a>>,
    pub not_resumed: Vec<NotResumed<'a>>,
    pub replies: Vec<Reply<'a>>,
    /// By the server: when and in which upstream session it executed each call.
    pub executed: BTreeMap<&'a str, Vec<(u64, &'a str)>>,
    /// By the server: when it finished each execution.
    pub done: BTreeMap<&'a str, Vec<(u64, &'a str)>>,
    /// The concurrency limit per session, if there is one.
    pub limit: Option<usize>,
    /// By the server: the responses to server requests that each call has received.
    pub received_replies: BTreeMap<&'a str, Vec<(u64, &'a str)>>,
    /// When the last fault was over. 0 if the history has no faults.
    pub calm: u64,
    /// When the run was over.
    pub over: u64,
}

#[derive(Debug, Default)]
pub struct Session<'a> {
    pub deleted: Option<u64>,
    /// When the server responded that the session does not exist, and to which request.
    pub lost: Vec<(u64, &'a str)>,
}

#[derive(Debug)]
pub struct Call<'a> {
    pub sent: u64,
    pub session: &'a str,
    pub id: i64,
    pub tool: &'a str,
    pub safe: bool,
    pub fate: Fate<'a>,
    pub cancelled: bool,
    pub abandoned: bool,
    /// The distinct answers. An answer that was read twice counts once.
    pub answers: Vec<Answer<'a>>,
}

/// What the client knows of a call before its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate<'a> {
    /// Nothing: the history ends before.
    Open,
    Accepted(u64),
    Refused {
        status: u16,
        reason: &'a str,
    },
    /// It is unknown whether the call arrived.
    Unheard,
}

#[derive(Debug)]
pub struct Answer<'a> {
    pub at: u64,
    pub connection: u64,
    pub event: Option<&'a str>,
    pub data: &'a str,
    pub said: Said,
}

/// The outcome of a call, from its JSON-RPC response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The JSON text of the result.
    Result(String),
    /// The `data.reason` of the gateway, or the code of an error of the server.
    Error(String),
}

impl Said {
    /// Returns a word for tables.
    pub fn kind(&self) -> &str {
        match self {
            Self::Result(_) => "answer",
            Self::Error(reason) => reason,
        }
    }
}

#[derive(Debug)]
pub struct Connection<'a> {
    pub at: u64,
    pub session: &'a str,
    /// The call whose stream it reads; `None` for a standalone stream.
    pub of: Option<&'a str>,
    pub after: Option<&'a str>,
    pub events: Vec<Event<'a>>,
    /// When the response ended regularly.
    pub ended: Option<u64>,
    /// When the connection broke, or its client closed it.
    pub broken: Option<u64>,
}

#[derive(Debug)]
pub struct Event<'a> {
    pub at: u64,
    pub id: Option<&'a str>,
    pub data: &'a str,
}

impl Event<'_> {
    pub fn position(&self) -> Option<EventId> {
        EventId::parse(self.id?)
    }
}

#[derive(Debug)]
pub struct NotResumed<'a> {
    pub at: u64,
    pub session: &'a str,
    pub of: Option<&'a str>,
    pub after: &'a str,
    pub status: u16,
    pub reason: &'a str,
}

#[derive(Debug)]
pub struct Reply<'a> {
    pub at: u64,
    pub session: &'a str,
    pub call: &'a str,
    pub ask: &'a str,
    pub reply: &'a str,
    pub status: u16,
}

impl<'a> Digest<'a> {
    pub fn of(history: &'a [Entry]) -> Self {
        let mut digest = Self { over: u64::MAX, ..Self::default() };
        for Entry { at, seen } in history {
            digest.add(*at, seen);
        }
        digest
    }

    /// Returns the session that a call belongs to.
    pub fn session_of(&self, call: &str) -> Option<&'a str> {
        self.calls.get(call).map(|call| call.session)
    }

    fn add(&mut self, at: u64, seen: &'a Seen) {
        match seen {
            Seen::Opened { session } => drop(self.session(session)),
            Seen::Deleted { session } => {
                self.session(session).deleted.get_or_insert(at);
            }
            Seen::Lost { session, on } => self.session(session).lost.push((at, on)),
            Seen::Sent { call, session, id, tool, safe } => {
                let call_of = Call {
                    sent: at,
                    session,
                    id: *id,
                    tool,
                    safe: *safe,
                    fate: Fate::Open,
                    cancelled: false,
                    abandoned: false,
                    answers: Vec::new(),
                };
                self.calls.insert(call, call_of);
            }
            Seen::Refused { call, status, reason } => {
                self.call(call, |call| call.fate = Fate::Refused { status: *status, reason });
            }
            Seen::Unheard { call, .. } => self.call(call, |call| call.fate = Fate::Unheard),
            Seen::Accepted { call } => self.call(call, |call| call.fate = Fate::Accepted(at)),
            Seen::Cancelled { call } => self.call(call, |call| call.cancelled = true),
            Seen::Abandoned { call } => self.call(call, |call| call.abandoned = true),
            Seen::Connected { connection, session, of, after } => {
                let (of, after) = (of.as_deref(), after.as_deref());
                let new =
                    Connection { at, session, of, after, events: Vec::new(), ended: None, broken: None };
                self.connections.insert(*connection, new);
            }
            Seen::Event { connection, id, data } => self.event(at, *connection, id.as_deref(), data),
            Seen::Broken { connection } => self.connection(*connection, |it| it.broken = Some(at)),
            Seen::Ended { connection } => self.connection(*connection, |it| it.ended = Some(at)),
            Seen::NotResumed { session, of, after, status, reason } => {
                let (of, status) = (of.as_deref(), *status);
                self.not_resumed.push(NotResumed { at, session, of, after, status, reason });
            }
            Seen::Replied { session, call, ask, reply, status } => {
                self.replies.push(Reply { at, session, call, ask, reply, status: *status });
            }
            Seen::Fault { .. } => {}
            Seen::Calm => self.calm = at,
            Seen::Over => self.over = at,
            Seen::Executed { call, place, .. } => self.executed.entry(call).or_default().push((at, place)),
            Seen::Limited { calls } => self.limit = Some(*calls),
            Seen::Done { call, place } => self.done.entry(call).or_default().push((at, place)),
            Seen::Heard { call, reply } => self.received_replies.entry(call).or_default().push((at, reply)),
        }
    }

    fn event(&mut self, at: u64, no: u64, id: Option<&'a str>, data: &'a str) {
        let Some(connection) = self.connections.get_mut(&no) else { return };
        connection.events.push(Event { at, id, data });
        let Some(call) = connection.of.and_then(|call| self.calls.get_mut(call)) else { return };
        let Some((to, said)) = answer(data) else { return };
        let is_known = |known: &Answer<'_>| known.event.is_some() && known.event == id && known.data == data;
        if to == call.id.to_string() && !call.answers.iter().any(is_known) {
            call.answers.push(Answer { at, connection: no, event: id, data, said });
        }
    }

    fn session(&mut self, name: &'a str) -> &mut Session<'a> {
        self.sessions.entry(name).or_default()
    }

    fn call(&mut self, name: &'a str, change: impl FnOnce(&mut Call<'a>)) {
        if let Some(call) = self.calls.get_mut(name) {
            change(call);
        }
    }

    fn connection(&mut self, no: u64, change: impl FnOnce(&mut Connection<'a>)) {
        if let Some(connection) = self.connections.get_mut(&no) {
            change(connection);
        }
    }
}

/// Reads a JSON-RPC response: its id as JSON text, and the outcome. Returns `None` for other
/// messages.
pub(crate) fn answer(data: &str) -> Option<(String, Said)> {
    #[derive(Deserialize)]
    struct Message<'a> {
        #[serde(borrow)]
        id: Option<&'a RawValue>,
        #[serde(borrow)]
        method: Option<&'a RawValue>,
        #[serde(borrow)]
        result: Option<&'a RawValue>,
        error: Option<Error>,
    }
    #[derive(Deserialize)]
    struct Error {
        code: i64,
        data: Option<serde_json::Value>,
    }
    let message: Message<'_> = serde_json::from_str(data).ok()?;
    if message.method.is_some() {
        return None;
    }
    let id = message.id.map_or("null", RawValue::get).to_owned();
    let said = match (message.result, message.error) {
        (Some(result), _) => Said::Result(result.get().to_owned()),
        (None, Some(Error { code, data })) => {
            let reason = data.as_ref().and_then(|data| data.get("reason")?.as_str());
            Said::Error(reason.map_or_else(|| format!("error {code}"), str::to_owned))
        }
        (None, None) => return None,
    };
    Some((id, said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_distinguished_from_other_messages() {
        let check = |data: &str, expect: Option<(&str, Said)>| {
            let expect = expect.map(|(id, said)| (id.to_owned(), said));
            assert_eq!(answer(data), expect, "{data}");
        };
        check(r#"{"jsonrpc":"2.0","id":3,"result":{"a":1}}"#, Some(("3", Said::Result(r#"{"a":1}"#.into()))));
        check(
            r#"{"id":"x","error":{"code":-1,"message":"","data":{"reason":"gone"}}}"#,
            Some(("\"x\"", Said::Error("gone".into()))),
        );
        check(
            r#"{"id":4,"error":{"code":-32000,"message":"","data":"x"}}"#,
            Some(("4", Said::Error("error -32000".into()))),
        );
        check(r#"{"id":3,"method":"ping"}"#, None);
        check(r#"{"method":"notifications/progress"}"#, None);
        check("", None);
    }
}
