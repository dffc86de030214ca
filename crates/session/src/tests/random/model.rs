//! A simple model of a session. It is built from commands, their outcomes and the reported changes,
//! without a look at the session's own logic.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use steadfast_wire::RequestId;

use crate::command::{Answer, Begin, Fence, Target};
use crate::{
    CallNo, Changes, Class, Command, ConnNo, Lifecycle, NodeId, Outcome, Request, Rules, ServerRequestNo,
    Session, SharedUsage, StreamNo, Time,
};

use super::super::fixture::{OVERHEAD, START};

#[derive(Debug)]
pub(super) struct Model {
    pub(super) rules: Rules,
    /// The shared usage before the current command.
    pub(super) shared_usage: SharedUsage,
    pub(super) calls: BTreeMap<CallNo, ModelCall>,
    pub(super) server_requests: BTreeMap<ServerRequestNo, ModelServerRequest>,
    pub(super) streams: BTreeMap<StreamNo, ModelStream>,
    pub(super) state: BTreeMap<Box<str>, (u64, Bytes)>,
    pub(super) last_version: u64,
    pub(super) begun: Option<(Begin, CallNo, StreamNo)>,
    /// The number of answers to server requests so far.
    pub(super) answers: u64,
    pub(super) last_answer: Option<Answer>,
    /// The last activity, to the millisecond.
    pub(super) active: Time,
    pub(super) detached: Option<Time>,
    pub(super) closed: Option<Time>,
}

#[derive(Debug)]
pub(super) struct ModelCall {
    pub(super) id: RequestId,
    pub(super) stream: StreamNo,
    pub(super) owner: NodeId,
    pub(super) assigned_by: NodeId,
    pub(super) response_only: bool,
    pub(super) request: Option<Request>,
    pub(super) over: bool,
    /// This number was revoked from the node that ran the call.
    pub(super) revoked: bool,
}

#[derive(Debug)]
pub(super) struct ModelServerRequest {
    pub(super) call: Option<CallNo>,
    pub(super) stream: StreamNo,
    pub(super) seq: u64,
    pub(super) owner: NodeId,
    /// The answer that is stored for the owner.
    pub(super) stored: Option<Answer>,
    pub(super) over: bool,
}

#[derive(Debug, Default)]
pub(super) struct ModelStream {
    pub(super) standalone: bool,
    pub(super) events: BTreeMap<u64, (Class, Bytes)>,
    pub(super) last: u64,
    pub(super) delivered: u64,
    pub(super) reader: Option<(ConnNo, NodeId)>,
    pub(super) ended: Option<Time>,
    pub(super) gone: bool,
    /// The sequence numbers of the events that were not dropped.
    pub(super) kept: BTreeSet<u64>,
}

/// The changes that a command must cause, given its outcome.
#[derive(Debug, Default)]
pub(super) struct Expected {
    /// The calls that end, and how.
    pub(super) ends: Vec<(CallNo, Ending)>,
    pub(super) withdrawn: BTreeSet<ServerRequestNo>,
    /// The server request whose answer is stored.
    pub(super) stored: Option<ServerRequestNo>,
    /// The calls that end although their owner did not finish them.
    pub(super) stopped: Vec<CallNo>,
    /// The calls that are forwarded or reassigned, with the new owner.
    pub(super) forwarded: Vec<(CallNo, NodeId)>,
    pub(super) lifecycle: Vec<Lifecycle>,
    /// The message that is appended or dropped, with its stream, class and payload.
    pub(super) message: Option<(StreamNo, Class, Bytes)>,
    pub(super) superseded: Vec<(StreamNo, ConnNo)>,
    /// The server request that `message` contains.
    pub(super) opened: Option<ServerRequestNo>,
}

#[derive(Clone, Debug)]
pub(super) enum Ending {
    /// The owner finished the call with this response.
    Answer(Bytes),
    /// The session answered the call with an error.
    Error,
    /// The call was cancelled, and got no response.
    NoAnswer,
}

impl ModelCall {
    /// Returns true if the owner did not receive the call itself.
    pub(super) fn is_forwarded(&self) -> bool {
        self.assigned_by != self.owner && self.request.is_some()
    }
}

impl ModelServerRequest {
    /// Returns true if the client can still answer the server request.
    pub(super) fn is_open(&self) -> bool {
        !self.over && self.stored.is_none()
    }
}

impl ModelStream {
    pub(super) fn is_fully_delivered(&self) -> bool {
        self.ended.is_some() && self.delivered >= self.last
    }

    pub(super) fn size(&self, seq: u64) -> u64 {
        self.events[&seq].1.len() as u64 + OVERHEAD
    }
}

impl Model {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            shared_usage: SharedUsage::default(),
            calls: BTreeMap::new(),
            server_requests: BTreeMap::new(),
            streams: BTreeMap::new(),
            state: BTreeMap::new(),
            last_version: 0,
            begun: None,
            answers: 0,
            last_answer: None,
            active: START,
            detached: None,
            closed: None,
        }
    }

    /// Returns the last `Begin` that took effect, if its connection is still attached.
    pub(super) fn last_begin(&self) -> Option<Begin> {
        let (begin, _, stream) = self.begun.as_ref()?;
        self.streams[stream].reader?;
        Some(begin.clone())
    }

    pub(super) fn in_flight(&self) -> impl Iterator<Item = (CallNo, &ModelCall)> {
        self.calls.iter().filter(|(_, call)| !call.over).map(|(no, call)| (*no, call))
    }

    /// Returns true if the fence of a command is outdated.
    pub(super) fn is_fenced(&self, fence: Option<&Fence>) -> bool {
        fence.is_some_and(|fence| {
            self.state.get(&*fence.key).map(|(version, _)| *version) != Some(fence.version)
        })
    }

    /// Returns the bytes of stored requests.
    pub(super) fn stored_request_bytes(&self) -> u64 {
        self.in_flight().filter_map(|(_, call)| Some(call.request.as_ref()?.text.len() as u64)).sum()
    }

    pub(super) fn calls_with_id(&self, id: &RequestId) -> Vec<CallNo> {
        self.in_flight().filter(|(_, call)| call.id == *id).map(|(no, _)| no).collect()
    }

    pub(super) fn held(&self) -> impl Iterator<Item = (StreamNo, &ModelStream)> {
        self.streams.iter().filter(|(_, stream)| !stream.gone).map(|(no, stream)| (*no, stream))
    }

    pub(super) fn has_reader(&self) -> bool {
        self.held().any(|(_, stream)| stream.ended.is_none() && stream.reader.is_some())
    }

    /// Returns the stream that a message belongs to.
    pub(super) fn route(&self, target: Target) -> StreamNo {
        if let Target::Call(no) = target
            && let Some(call) = self.calls.get(&no)
            && !call.over
            && !call.response_only
        {
            return call.stream;
        }
        let attached = self.held().filter(|(_, stream)| stream.standalone);
        let newest = attached.filter_map(|(no, stream)| Some((stream.reader?.0, no))).max();
        newest.map_or(StreamNo(0), |(_, no)| no)
    }

    pub(super) fn standalone(&mut self, no: StreamNo) -> &mut ModelStream {
        self.streams.entry(no).or_insert_with(|| ModelStream { standalone: true, ..ModelStream::default() })
    }

    /// Checks the outcome and the changes of a command, and updates the model.
    pub(super) fn observe(
        &mut self,
        command: &Command,
        outcome: &Outcome,
        now: Time,
        changes: &Changes,
        session: &Session,
    ) {
        let expected = self.check_outcome(command, outcome, now, session);
        assert_eq!(changes.lifecycle, expected.lifecycle);
        assert_eq!(changes.superseded, expected.superseded);
        let stopped: Vec<CallNo> = changes.stopped.iter().map(|(call, _)| *call).collect();
        assert_eq!(stopped, expected.stopped);
        assert_eq!(changes.forwarded, expected.forwarded);
        let withdrawn: BTreeSet<(ServerRequestNo, NodeId)> = changes.withdrawn.iter().copied().collect();
        assert_eq!(withdrawn.len(), changes.withdrawn.len());
        let owner =
            |server_request: &ServerRequestNo| (*server_request, self.server_requests[server_request].owner);
        assert_eq!(withdrawn, expected.withdrawn.iter().map(owner).collect());
        assert_eq!(changes.answers_stored, expected.stored.iter().map(owner).collect::<Vec<_>>());
        self.observe_evictions(changes, &expected);
        self.observe_appended(changes, expected);
        self.observe_ended(changes, now);
        self.observe_removed(command, now, session);
    }

    fn observe_appended(&mut self, changes: &Changes, expected: Expected) {
        let mut answers = expected.ends.iter().filter(|(_, end)| !matches!(end, Ending::NoAnswer));
        let mut withdrawals = BTreeSet::new();
        for event in &changes.appended {
            let stream = self.streams.get_mut(&event.stream).unwrap();
            assert!(stream.ended.is_none() && event.seq == stream.last + 1);
            stream.last = event.seq;
            if event.class == Class::Response {
                let (call, end) = answers.next().unwrap();
                let call = &self.calls[call];
                assert_eq!(event.stream, call.stream);
                let error = format!(r#"{{"jsonrpc":"2.0","id":{},"error":"#, call.id);
                match end {
                    Ending::Answer(payload) => assert_eq!(event.payload, payload),
                    _ => assert!(event.payload.starts_with(error.as_bytes())),
                }
            } else if let Some(message) = &expected.message
                && message.2 == event.payload
            {
                assert_eq!((event.stream, event.class), (message.0, message.1));
            } else {
                let server_request = withdrawn_by(&event.payload).unwrap();
                assert_eq!(event.stream, self.server_requests[&server_request].stream);
                assert!(withdrawals.insert(server_request));
            }
        }
        assert!(answers.next().is_none(), "a call got no answer");
        let is_silent = |server_request: &ServerRequestNo| {
            let server_request = &self.server_requests[server_request];
            server_request.stored.is_some() || (self.closed.is_some() && server_request.call.is_none())
        };
        assert_eq!(
            withdrawals,
            expected.withdrawn.into_iter().filter(|server_request| !is_silent(server_request)).collect()
        );
        if let Some((no, Class::Droppable, payload)) = expected.message
            && !changes.appended.iter().any(|event| event.payload == payload)
        {
            self.streams.get_mut(&no).unwrap().last += 1;
        }
    }

    fn observe_ended(&mut self, changes: &Changes, now: Time) {
        for no in &changes.ended {
            let stream = self.streams.get_mut(no).unwrap();
            assert!(stream.ended.replace(now).is_none(), "stream {no} ended twice");
        }
        for (no, stream) in self.held() {
            let waits = self.in_flight().any(|(_, call)| call.stream == no);
            let over = self.closed.is_some() || !(waits || stream.standalone);
            assert_eq!(stream.ended.is_some(), over, "stream {no}");
        }
    }

    fn observe_removed(&mut self, command: &Command, now: Time, session: &Session) {
        let retention = self.rules.timing.retention;
        for (no, stream) in &mut self.streams {
            let gone = !session.streams().contains_key(no);
            assert!(gone || !stream.gone, "stream {no} was not removed");
            if gone && !stream.gone {
                let old = stream.ended.is_some_and(|ended| now >= ended.plus(retention));
                match command {
                    Command::Begin(_) => assert!(
                        stream.is_fully_delivered(),
                        "stream {no} was removed before it was delivered"
                    ),
                    Command::Sweep(_) => assert!(old, "stream {no} was removed before its retention ended"),
                    other => panic!("{other:?} removed stream {no}"),
                }
            }
            stream.gone = gone;
        }
    }
}

/// Returns the server request that a message withdraws.
pub(super) fn withdrawn_by(payload: &[u8]) -> Option<ServerRequestNo> {
    let text = std::str::from_utf8(payload).ok()?;
    let (method, rest) = text.split_once(r#""requestId":""#)?;
    assert!(method.contains("notifications/cancelled"));
    ServerRequestNo::from_wire_id(&RequestId::text(rest.split_once('"')?.0))
}
