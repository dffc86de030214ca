//! What has happened, as an outsider knows it: from commands, their outcomes, and what was delivered.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use steadfast_wire::RequestId;

use crate::command::{Answer, Begin, Fence, Target};
use crate::{
    AskNo, CallNo, Changes, Class, Command, ConnNo, Crowd, Lifecycle, NodeId, Outcome, Request, Rules,
    Session, StreamNo, Time,
};

use super::super::bench::{OVERHEAD, START};

#[derive(Debug)]
pub(super) struct History {
    pub(super) rules: Rules,
    /// What all sessions held before the step.
    pub(super) crowd: Crowd,
    pub(super) calls: BTreeMap<CallNo, CallStory>,
    pub(super) asks: BTreeMap<AskNo, AskStory>,
    pub(super) streams: BTreeMap<StreamNo, StreamStory>,
    pub(super) state: BTreeMap<Box<str>, (u64, Bytes)>,
    pub(super) last_version: u64,
    pub(super) begun: Option<(Begin, CallNo, StreamNo)>,
    /// How many answers have come, and the last of them.
    pub(super) answers: u64,
    pub(super) last_answer: Option<Answer>,
    /// To the millisecond.
    pub(super) active: Time,
    pub(super) detached: Option<Time>,
    pub(super) closed: Option<Time>,
}

#[derive(Debug)]
pub(super) struct CallStory {
    pub(super) id: RequestId,
    pub(super) stream: StreamNo,
    pub(super) owner: NodeId,
    pub(super) from: NodeId,
    pub(super) answer_only: bool,
    pub(super) request: Option<Request>,
    pub(super) over: bool,
    /// Somebody took it from the node that had it under this number.
    pub(super) taken: bool,
}

#[derive(Debug)]
pub(super) struct AskStory {
    pub(super) call: Option<CallNo>,
    pub(super) stream: StreamNo,
    pub(super) seq: u64,
    pub(super) owner: NodeId,
    /// The answer that is kept for its owner.
    pub(super) kept: Option<Answer>,
    pub(super) over: bool,
}

#[derive(Debug, Default)]
pub(super) struct StreamStory {
    pub(super) standalone: bool,
    pub(super) events: BTreeMap<u64, (Class, Bytes)>,
    pub(super) last: u64,
    pub(super) delivered: u64,
    pub(super) reader: Option<(ConnNo, NodeId)>,
    pub(super) ended: Option<Time>,
    pub(super) gone: bool,
    /// What it must hold.
    pub(super) kept: BTreeSet<u64>,
}

/// What a step must bring about, by the outcome that it had.
#[derive(Debug, Default)]
pub(super) struct Expected {
    /// Calls that end, and the answer that each gets: its own, an error, or none.
    pub(super) ends: Vec<(CallNo, End)>,
    pub(super) withdrawn: BTreeSet<AskNo>,
    /// The ask whose answer is kept.
    pub(super) kept: Option<AskNo>,
    /// Calls that others than their owner have ended.
    pub(super) stopped: Vec<CallNo>,
    /// Calls that somebody has to run to whom they did not come.
    pub(super) errands: Vec<(CallNo, NodeId)>,
    pub(super) lifecycle: Vec<Lifecycle>,
    /// The message that is appended or dropped: its stream, class and payload.
    pub(super) message: Option<(StreamNo, Class, Bytes)>,
    pub(super) superseded: Vec<(StreamNo, ConnNo)>,
    /// The ask that the message is.
    pub(super) opened: Option<AskNo>,
}

#[derive(Clone, Debug)]
pub(super) enum End {
    Answer(Bytes),
    Error,
    Silence,
}

impl CallStory {
    /// Whether another node has given it to its owner.
    pub(super) fn is_errand(&self) -> bool {
        self.from != self.owner && self.request.is_some()
    }
}

impl AskStory {
    /// Whether the client may still answer it.
    pub(super) fn is_open(&self) -> bool {
        !self.over && self.kept.is_none()
    }
}

impl StreamStory {
    pub(super) fn is_spent(&self) -> bool {
        self.ended.is_some() && self.delivered >= self.last
    }

    pub(super) fn size(&self, seq: u64) -> u64 {
        self.events[&seq].1.len() as u64 + OVERHEAD
    }
}

impl History {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            crowd: Crowd::default(),
            calls: BTreeMap::new(),
            asks: BTreeMap::new(),
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

    /// The last begin that took effect, while the connection that it made is there.
    pub(super) fn last_begin(&self) -> Option<Begin> {
        let (begin, _, stream) = self.begun.as_ref()?;
        self.streams[stream].reader?;
        Some(begin.clone())
    }

    pub(super) fn in_flight(&self) -> impl Iterator<Item = (CallNo, &CallStory)> {
        self.calls.iter().filter(|(_, call)| !call.over).map(|(no, call)| (*no, call))
    }

    /// Whether a command comes under a lease that is somebody else's.
    pub(super) fn is_fenced(&self, fence: Option<&Fence>) -> bool {
        fence.is_some_and(|fence| {
            self.state.get(&*fence.key).map(|(version, _)| *version) != Some(fence.version)
        })
    }

    /// Bytes of requests that are kept.
    pub(super) fn kept_requests(&self) -> u64 {
        self.in_flight().filter_map(|(_, call)| Some(call.request.as_ref()?.text.len() as u64)).sum()
    }

    pub(super) fn named(&self, id: &RequestId) -> Vec<CallNo> {
        self.in_flight().filter(|(_, call)| call.id == *id).map(|(no, _)| no).collect()
    }

    pub(super) fn held(&self) -> impl Iterator<Item = (StreamNo, &StreamStory)> {
        self.streams.iter().filter(|(_, stream)| !stream.gone).map(|(no, stream)| (*no, stream))
    }

    pub(super) fn somebody_reads(&self) -> bool {
        self.held().any(|(_, stream)| stream.ended.is_none() && stream.reader.is_some())
    }

    /// The one stream that a message belongs to.
    pub(super) fn route(&self, target: Target) -> StreamNo {
        if let Target::Call(no) = target
            && let Some(call) = self.calls.get(&no)
            && !call.over
            && !call.answer_only
        {
            return call.stream;
        }
        let attached = self.held().filter(|(_, stream)| stream.standalone);
        let newest = attached.filter_map(|(no, stream)| Some((stream.reader?.0, no))).max();
        newest.map_or(StreamNo(0), |(_, no)| no)
    }

    pub(super) fn standalone(&mut self, no: StreamNo) -> &mut StreamStory {
        self.streams.entry(no).or_insert_with(|| StreamStory { standalone: true, ..StreamStory::default() })
    }

    pub(super) fn witness(
        &mut self,
        command: &Command,
        outcome: &Outcome,
        now: Time,
        changes: &Changes,
        session: &Session,
    ) {
        let expected = self.judge(command, outcome, now, session);
        assert_eq!(changes.lifecycle, expected.lifecycle);
        assert_eq!(changes.superseded, expected.superseded);
        let stopped: Vec<CallNo> = changes.stopped.iter().map(|(call, _)| *call).collect();
        assert_eq!(stopped, expected.stopped);
        assert_eq!(changes.errands, expected.errands);
        let withdrawn: BTreeSet<(AskNo, NodeId)> = changes.withdrawn.iter().copied().collect();
        assert_eq!(withdrawn.len(), changes.withdrawn.len());
        let owner = |ask: &AskNo| (*ask, self.asks[ask].owner);
        assert_eq!(withdrawn, expected.withdrawn.iter().map(owner).collect());
        assert_eq!(changes.kept, expected.kept.iter().map(owner).collect::<Vec<_>>());
        self.note_room(changes, &expected);
        self.note_appended(changes, expected);
        self.note_ended(changes, now);
        self.note_removed(command, now, session);
    }

    fn note_appended(&mut self, changes: &Changes, expected: Expected) {
        let mut answers = expected.ends.iter().filter(|(_, end)| !matches!(end, End::Silence));
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
                    End::Answer(payload) => assert_eq!(event.payload, payload),
                    _ => assert!(event.payload.starts_with(error.as_bytes())),
                }
            } else if let Some(message) = &expected.message
                && message.2 == event.payload
            {
                assert_eq!((event.stream, event.class), (message.0, message.1));
            } else {
                let ask = withdrawn_by(&event.payload).unwrap();
                assert_eq!(event.stream, self.asks[&ask].stream);
                assert!(withdrawals.insert(ask));
            }
        }
        assert!(answers.next().is_none(), "a call got no answer");
        let untold = |ask: &AskNo| {
            let ask = &self.asks[ask];
            ask.kept.is_some() || (self.closed.is_some() && ask.call.is_none())
        };
        assert_eq!(withdrawals, expected.withdrawn.into_iter().filter(|ask| !untold(ask)).collect());
        if let Some((no, Class::Chatter, payload)) = expected.message
            && !changes.appended.iter().any(|event| event.payload == payload)
        {
            self.streams.get_mut(&no).unwrap().last += 1;
        }
    }

    fn note_ended(&mut self, changes: &Changes, now: Time) {
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

    fn note_removed(&mut self, command: &Command, now: Time, session: &Session) {
        let retention = self.rules.timing.retention;
        for (no, stream) in &mut self.streams {
            let gone = !session.streams().contains_key(no);
            assert!(gone || !stream.gone, "stream {no} did not give way");
            if gone && !stream.gone {
                let old = stream.ended.is_some_and(|ended| now >= ended.plus(retention));
                match command {
                    Command::Begin(_) => assert!(stream.is_spent(), "stream {no} was not read"),
                    Command::Sweep(_) => assert!(old, "stream {no} was forgotten early"),
                    other => panic!("{other:?} removed stream {no}"),
                }
            }
            stream.gone = gone;
        }
    }
}

/// The ask that a message takes back.
pub(super) fn withdrawn_by(payload: &[u8]) -> Option<AskNo> {
    let text = std::str::from_utf8(payload).ok()?;
    let (method, rest) = text.split_once(r#""requestId":""#)?;
    assert!(method.contains("notifications/cancelled"));
    AskNo::from_wire_id(&RequestId::text(rest.split_once('"')?.0))
}
