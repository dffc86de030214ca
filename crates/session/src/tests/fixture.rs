//! The test fixture: a session with a clock and rules, and short functions for its commands.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use steadfast_wire::{RequestId, Revision};

use crate::command::{
    Answer, Answered, Append, AppendOutcome, Attach, Attached, Begin, Begun, Cancel, Cancelled, Close,
    Closed, Deliver, Delivered, Detach, Detached, Duplicates, FailNode, Finish, Finished, NodeFailed,
    OpenServerRequest, Position, PutState, ServerRequestOpened, StatePut, Successor, Sweep, Swept, Target,
    Touch, Withdraw, Withdrawn,
};
use crate::{
    CallNo, Changes, Class, CloseReason, ConnNo, Facts, Lifecycle, NodeId, Principal, Read, Request, Rules,
    ServerRequestNo, Session, SessionId, SharedUsage, Slice, Step, StreamNo, Time,
};

pub(super) const NODE: NodeId = NodeId(7);
pub(super) const OTHER: NodeId = NodeId(8);
pub(super) const START: Time = Time(1_000_000);

/// What an event costs beyond its payload.
pub(super) const OVERHEAD: u64 = 64;

/// A session under test.
pub(super) struct Fixture {
    pub(super) session: Session,
    pub(super) rules: Rules,
    pub(super) now: Time,
    /// The changes of the last command.
    pub(super) changes: Changes,
    /// The lifecycle events of all commands.
    pub(super) lifecycle: Vec<Lifecycle>,
    pub(super) duplicates: Duplicates,
    /// Whether new connections deliver only responses.
    pub(super) response_only: bool,
    /// Fully delivered streams, sent with the next `Begin`.
    pub(super) delivered: Vec<StreamNo>,
    /// The bytes of other sessions: those of the same principal, and those of other principals.
    pub(super) other_usage: (u64, u64),
    attempts: u64,
}

/// An action on a session, for tables of test cases.
pub(super) type Action = fn(&mut Fixture);

/// A POST whose calls have begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Post {
    pub(super) stream: StreamNo,
    pub(super) call: CallNo,
    pub(super) connection: ConnNo,
}

impl Post {
    /// Returns the number of its nth call.
    pub(super) fn nth(self, n: u64) -> CallNo {
        CallNo(self.call.0 + n)
    }
}

/// Returns the rules for tests. Times in seconds: idle 100, grace 50, retention 30, linger 10,
/// touch 2.
pub(super) fn rules() -> Rules {
    let mut rules = Rules::default();
    rules.timing.idle = Duration::from_secs(100);
    rules.timing.grace = Duration::from_secs(50);
    rules.timing.retention = Duration::from_secs(30);
    rules.timing.linger = Duration::from_secs(10);
    rules.timing.touch = Duration::from_secs(2);
    rules
}

pub(super) fn facts() -> Arc<Facts> {
    Arc::new(Facts {
        id: SessionId::from_random([9; 24]),
        principal: Principal::anonymous(),
        revision: Revision::V2025_11_25,
        initialize: Bytes::from_static(b"{}"),
        opened_at: START,
    })
}

/// Parses ids in JSON notation, separated by spaces: `1 "1" "a"`.
pub(super) fn ids(text: &str) -> Vec<RequestId> {
    text.split_whitespace().map(|id| RequestId::from_json(id).unwrap()).collect()
}

/// A stored request of a call that may be reassigned.
pub(super) fn reassignable(text: &str) -> Request {
    Request { text: text.to_owned().into(), reassignable: true }
}

/// A stored request of a call that must not be reassigned.
pub(super) fn not_reassignable(text: &str) -> Request {
    Request { text: text.to_owned().into(), reassignable: false }
}

impl Fixture {
    pub(super) fn new() -> Self {
        Self::with(|_| ())
    }

    pub(super) fn with(edit: impl FnOnce(&mut Rules)) -> Self {
        let mut rules = rules();
        edit(&mut rules);
        Self {
            session: Session::open(facts()),
            rules,
            now: START,
            changes: Changes::default(),
            lifecycle: vec![],
            duplicates: Duplicates::Reject,
            response_only: false,
            delivered: vec![],
            other_usage: (0, 0),
            attempts: 0,
        }
    }

    /// An internal session about `subject`.
    pub(super) fn internal(subject: &str) -> Self {
        let principal = facts().principal.about(subject);
        let facts = Facts { principal, revision: Revision::V2026_07_28, ..Facts::clone(&facts()) };
        Self { session: Session::open(Arc::new(facts)), ..Self::new() }
    }

    pub(super) fn run<S: Step>(&mut self, step: S) -> S::Outcome {
        self.changes.clear();
        let (own, others) = self.other_usage;
        let shared_usage = SharedUsage { store_bytes: Some(own + others), principal_bytes: Some(own) }
            .plus(self.session.held_bytes());
        let (command, now) = (step.into_command(), self.now);
        let outcome =
            self.session.apply_with_usage(command, now, &self.rules, shared_usage, &mut self.changes);
        self.lifecycle.extend(&self.changes.lifecycle);
        S::outcome(outcome).unwrap()
    }

    pub(super) fn wait(&mut self, seconds: u64) -> &mut Self {
        self.wait_ms(seconds * 1000)
    }

    pub(super) fn wait_ms(&mut self, ms: u64) -> &mut Self {
        self.now.0 += ms;
        self
    }

    pub(super) fn begin(&mut self, client_ids: &str) -> Begun {
        self.attempts += 1;
        let delivered = std::mem::take(&mut self.delivered);
        let (duplicates, response_only) = (self.duplicates, self.response_only);
        let begin = Begin::local(NODE, self.attempts, ids(client_ids));
        self.run(Begin { duplicates, response_only, delivered, ..begin })
    }

    /// Begins a POST that `NODE` receives and `owner` runs. `request` is stored with each of its
    /// calls.
    pub(super) fn begin_at(&mut self, owner: NodeId, client_ids: &str, request: Request) -> Begun {
        self.attempts += 1;
        let ids = ids(client_ids);
        let requests = ids.iter().map(|_| Some(request.clone())).collect();
        let (duplicates, response_only) = (self.duplicates, self.response_only);
        let begin = Begin::local(NODE, self.attempts, ids);
        self.run(Begin { owner, requests, duplicates, response_only, ..begin })
    }

    pub(super) fn post_at(&mut self, owner: NodeId, client_ids: &str, request: Request) -> Post {
        match self.begin_at(owner, client_ids, request) {
            Begun::Begun { stream, first, connection } => Post { stream, call: first, connection },
            refused => panic!("{client_ids}: {refused:?}"),
        }
    }

    pub(super) fn post(&mut self, client_ids: &str) -> Post {
        match self.begin(client_ids) {
            Begun::Begun { stream, first, connection } => Post { stream, call: first, connection },
            refused => panic!("{client_ids}: {refused:?}"),
        }
    }

    pub(super) fn finish(&mut self, call: CallNo, payload: &'static str) -> Finished {
        self.run(Finish { call, payload: payload.into() })
    }

    pub(super) fn cancel(&mut self, id: &str) -> Cancelled {
        self.run(Cancel { id: ids(id).remove(0) })
    }

    pub(super) fn append(&mut self, target: Target, class: Class, payload: &str) -> AppendOutcome {
        self.run(Append { target, class, payload: payload.to_owned().into(), fence: None })
    }

    /// Appends a notification and returns its stream.
    pub(super) fn notify(&mut self, target: Target, payload: &str) -> StreamNo {
        match self.append(target, Class::Notification, payload) {
            AppendOutcome::Appended { stream, .. } => stream,
            refused => panic!("{payload}: {refused:?}"),
        }
    }

    pub(super) fn open_server_request(&mut self, target: Target) -> ServerRequestOpened {
        let rest = br#""method":"sampling/createMessage"}"#;
        self.run(OpenServerRequest { target, owner: NODE, rest: Bytes::from_static(rest), fence: None })
    }

    pub(super) fn opened_server_request(&mut self, target: Target) -> ServerRequestNo {
        match self.open_server_request(target) {
            ServerRequestOpened::Opened { server_request, .. } => server_request,
            refused => panic!("{refused:?}"),
        }
    }

    pub(super) fn answer(&mut self, server_request: ServerRequestNo) -> Answered {
        self.answer_at(NODE, server_request, "answer")
    }

    /// Answers a server request through `node`.
    pub(super) fn answer_at(
        &mut self,
        node: NodeId,
        server_request: ServerRequestNo,
        message: &'static str,
    ) -> Answered {
        self.attempts += 1;
        self.run(Answer { server_request, node, attempt: self.attempts, message: message.into() })
    }

    pub(super) fn withdraw(&mut self, server_request: ServerRequestNo) -> Withdrawn {
        self.run(Withdraw { server_request })
    }

    /// Attaches a connection to a standalone stream, as a GET without `Last-Event-ID` does. Returns
    /// the stream, the connection and the position.
    pub(super) fn get(&mut self) -> (StreamNo, ConnNo, u64) {
        match self.run(Attach { at: Position::Standalone, node: NODE }) {
            Attached::Attached { stream, connection, after } => (stream, connection, after),
            refused => panic!("{refused:?}"),
        }
    }

    pub(super) fn resume(&mut self, stream: StreamNo, seq: u64) -> Attached {
        self.run(Attach { at: Position::After { stream, seq }, node: NODE })
    }

    pub(super) fn resumed(&mut self, stream: StreamNo, seq: u64) -> ConnNo {
        match self.resume(stream, seq) {
            Attached::Attached { connection, .. } => connection,
            refused => panic!("{refused:?}"),
        }
    }

    pub(super) fn detach(&mut self, stream: StreamNo, connection: ConnNo, through: u64) -> Detached {
        self.run(Detach { stream, connection, through })
    }

    pub(super) fn deliver(&mut self, stream: StreamNo, connection: ConnNo, through: u64) -> Delivered {
        self.run(Deliver { stream, connection, through })
    }

    pub(super) fn touch(&mut self) -> crate::command::Touched {
        self.run(Touch)
    }

    pub(super) fn close(&mut self) -> Closed {
        self.run(Close { reason: CloseReason::Deleted })
    }

    pub(super) fn sweep(&mut self) -> Swept {
        self.run(Sweep)
    }

    pub(super) fn fail_node(&mut self, node: NodeId) -> NodeFailed {
        self.run(FailNode { node, successor: Successor::None })
    }

    pub(super) fn put(&mut self, key: &str, expected: Option<u64>, value: Option<&str>) -> StatePut {
        let value = value.map(|value| Bytes::from(value.to_owned()));
        self.run(PutState { key: key.into(), expected, value })
    }

    pub(super) fn slice(&self, stream: StreamNo, after: u64, budget: u64) -> Slice {
        match self.session.read(stream, after, budget) {
            Read::Slice(slice) => slice,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the whole stream as text: `1:hello 3:answer missing=1 end`.
    pub(super) fn log(&self, stream: StreamNo) -> String {
        let slice = self.slice(stream, 0, u64::MAX);
        let mut words: Vec<String> = slice
            .events
            .iter()
            .map(|event| format!("{}:{}", event.seq, summarize(event.payload.as_deref().unwrap())))
            .collect();
        if slice.missing > 0 {
            words.push(format!("missing={}", slice.missing));
        }
        if slice.ended {
            words.push("end".into());
        }
        words.join(" ")
    }

    #[track_caller]
    pub(super) fn check_log(&self, stream: StreamNo, expect: &str) {
        assert_eq!(self.log(stream), expect, "stream {stream}");
    }

    /// Runs a function and asserts that it does not change the session.
    #[track_caller]
    pub(super) fn unchanged<T>(&mut self, run: impl FnOnce(&mut Self) -> T) -> T {
        let before = format!("{:?}", self.session);
        let outcome = run(self);
        assert_eq!(format!("{:?}", self.session), before);
        outcome
    }

    /// Returns when and why the session will expire if no command follows, in seconds from now.
    pub(super) fn ends_in(&self) -> Option<(u64, CloseReason)> {
        let (at, reason) = self.session.deadline(&self.rules)?;
        Some((seconds(self.now, at), reason))
    }
}

/// Shortens the messages that the session itself writes. Returns other messages as they are.
fn summarize(payload: &[u8]) -> String {
    let text = String::from_utf8(payload.to_vec()).unwrap();
    let between = |from: &str, to: &str| {
        let rest = text.split_once(from)?.1;
        Some(rest.split_once(to)?.0.to_owned())
    };
    if let Some(server_request) = between(r#"notifications/cancelled","params":{"requestId":""#, "\"") {
        format!("withdrawn({server_request})")
    } else if let Some(server_request) = between(r#"{"jsonrpc":"2.0","id":"ask-"#, "\"") {
        format!("ask-{server_request}")
    } else if let Some(reason) = between(r#""data":{"reason":""#, "\"") {
        let id = between(r#""id":"#, r#","error""#).unwrap();
        format!("{reason}({id})")
    } else {
        text
    }
}

/// Returns the whole seconds from one time to another.
pub(super) fn seconds(from: Time, to: Time) -> u64 {
    to.0.saturating_sub(from.0) / 1000
}
