//! A session on a bench: a clock, rules, and terse words for what is done to it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use steadfast_wire::{RequestId, Revision};

use crate::command::{
    Answer, Answered, Append, AppendOutcome, AskOpened, Attach, Attached, Begin, Begun, Cancel, Cancelled,
    Close, Closed, Deliver, Delivered, Detach, Detached, Duplicates, FailNode, Finish, Finished, Heir,
    NodeFailed, OpenAsk, Position, PutState, StatePut, Sweep, Swept, Target, Touch, Withdraw, Withdrawn,
};
use crate::{
    AskNo, CallNo, Changes, Class, CloseReason, ConnNo, Crowd, Facts, Lifecycle, NodeId, Principal, Read,
    Request, Rules, Session, SessionId, Slice, Step, StreamNo, Time,
};

pub(super) const NODE: NodeId = NodeId(7);
pub(super) const OTHER: NodeId = NodeId(8);
pub(super) const START: Time = Time(1_000_000);

/// What an event costs beyond its payload.
pub(super) const OVERHEAD: u64 = 64;

pub(super) struct Bench {
    pub(super) session: Session,
    pub(super) rules: Rules,
    pub(super) now: Time,
    /// Of the last command.
    pub(super) changes: Changes,
    pub(super) lifecycle: Vec<Lifecycle>,
    pub(super) duplicates: Duplicates,
    /// Whether connections get nothing but answers.
    pub(super) answer_only: bool,
    /// Passed on with the next begin.
    pub(super) delivered: Vec<StreamNo>,
    /// Bytes that other sessions hold, of the same principal and of others.
    pub(super) beside: (u64, u64),
    attempts: u64,
}

/// Something that is done to a session.
pub(super) type Act = fn(&mut Bench);

/// A POST that was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Post {
    pub(super) stream: StreamNo,
    pub(super) call: CallNo,
    pub(super) connection: ConnNo,
}

impl Post {
    pub(super) fn nth(self, n: u64) -> CallNo {
        CallNo(self.call.0 + n)
    }
}

/// Times in seconds: idle 100, grace 50, retention 30, linger 10, touch 2.
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

/// Ids as they stand in JSON, with blanks between: `1 "1" "a"`.
pub(super) fn ids(text: &str) -> Vec<RequestId> {
    text.split_whitespace().map(|id| RequestId::from_json(id).unwrap()).collect()
}

impl Bench {
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
            answer_only: false,
            delivered: vec![],
            beside: (0, 0),
            attempts: 0,
        }
    }

    pub(super) fn run<S: Step>(&mut self, step: S) -> S::Outcome {
        self.changes.clear();
        let (own, others) = self.beside;
        let crowd = Crowd { store_bytes: Some(own + others), principal_bytes: Some(own) }
            .and(self.session.held_bytes());
        let (command, now) = (step.into_command(), self.now);
        let outcome = self.session.apply_among(command, now, &self.rules, crowd, &mut self.changes);
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
        let (duplicates, answer_only) = (self.duplicates, self.answer_only);
        let begin = Begin::here(NODE, self.attempts, ids(client_ids));
        self.run(Begin { duplicates, answer_only, delivered, ..begin })
    }

    /// A POST that comes to this node, is run by `owner`, and asks for `text`, which is kept.
    pub(super) fn begin_at(&mut self, owner: NodeId, client_ids: &str, text: &str, again: bool) -> Begun {
        self.attempts += 1;
        let ids = ids(client_ids);
        let request = Request { text: text.to_owned().into(), again };
        let requests = ids.iter().map(|_| Some(request.clone())).collect();
        let (duplicates, answer_only) = (self.duplicates, self.answer_only);
        let begin = Begin::here(NODE, self.attempts, ids);
        self.run(Begin { owner, requests, duplicates, answer_only, ..begin })
    }

    pub(super) fn post_at(&mut self, owner: NodeId, client_ids: &str, text: &str, again: bool) -> Post {
        match self.begin_at(owner, client_ids, text, again) {
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

    /// Appends a message and gives the stream that took it.
    pub(super) fn say(&mut self, target: Target, payload: &str) -> StreamNo {
        match self.append(target, Class::Notice, payload) {
            AppendOutcome::Appended { stream, .. } => stream,
            refused => panic!("{payload}: {refused:?}"),
        }
    }

    pub(super) fn ask(&mut self, target: Target) -> AskOpened {
        let rest = br#""method":"sampling/createMessage"}"#;
        self.run(OpenAsk { target, owner: NODE, rest: Bytes::from_static(rest), fence: None })
    }

    pub(super) fn asked(&mut self, target: Target) -> AskNo {
        match self.ask(target) {
            AskOpened::Opened { ask, .. } => ask,
            refused => panic!("{refused:?}"),
        }
    }

    pub(super) fn answer(&mut self, ask: AskNo) -> Answered {
        self.answer_at(NODE, ask, "heard")
    }

    /// An answer that comes to some node.
    pub(super) fn answer_at(&mut self, node: NodeId, ask: AskNo, message: &'static str) -> Answered {
        self.attempts += 1;
        self.run(Answer { ask, node, attempt: self.attempts, message: message.into() })
    }

    pub(super) fn withdraw(&mut self, ask: AskNo) -> Withdrawn {
        self.run(Withdraw { ask })
    }

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

    pub(super) fn fail(&mut self, node: NodeId) -> NodeFailed {
        self.run(FailNode { node, heir: Heir::Nobody })
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

    /// The whole log as text: `1:hello 3:answer missing=1 end`.
    pub(super) fn log(&self, stream: StreamNo) -> String {
        let slice = self.slice(stream, 0, u64::MAX);
        let mut words: Vec<String> = slice
            .entries
            .iter()
            .map(|entry| format!("{}:{}", entry.seq, in_short(entry.payload.as_deref().unwrap())))
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

    /// Runs something that must leave every table as it was.
    #[track_caller]
    pub(super) fn unchanged<T>(&mut self, run: impl FnOnce(&mut Self) -> T) -> T {
        let before = format!("{:?}", self.session);
        let outcome = run(self);
        assert_eq!(format!("{:?}", self.session), before);
        outcome
    }

    /// Whether the session would end at some time if nothing more happened, in seconds from now.
    pub(super) fn ends_in(&self) -> Option<(u64, CloseReason)> {
        let (at, reason) = self.session.deadline(&self.rules)?;
        Some((seconds(self.now, at), reason))
    }
}

/// Messages that the session writes itself, by what they mean.
fn in_short(payload: &[u8]) -> String {
    let text = String::from_utf8(payload.to_vec()).unwrap();
    let between = |from: &str, to: &str| {
        let rest = text.split_once(from)?.1;
        Some(rest.split_once(to)?.0.to_owned())
    };
    if let Some(ask) = between(r#"notifications/cancelled","params":{"requestId":""#, "\"") {
        format!("withdrawn({ask})")
    } else if let Some(ask) = between(r#"{"jsonrpc":"2.0","id":"ask-"#, "\"") {
        format!("ask-{ask}")
    } else if let Some(reason) = between(r#""data":{"reason":""#, "\"") {
        let id = between(r#""id":"#, r#","error""#).unwrap();
        format!("{reason}({id})")
    } else {
        text
    }
}

/// Whole seconds from one time to another.
pub(super) fn seconds(from: Time, to: Time) -> u64 {
    to.0.saturating_sub(from.0) / 1000
}
