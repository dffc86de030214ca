//! What may happen next, in numbers relative to what is there, so that most moves hit something.

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use steadfast_wire::RequestId;

use super::history::History;
use crate::command::{
    Answer, Append, Attach, Begin, Cancel, Close, Collect, Deliver, Detach, Duplicates, FailNode, Fence,
    Finish, GetState, Heir, OpenAsk, Pass, Position, PutState, Release, Remind, Start, Sweep, Target, Touch,
    Withdraw,
};
use crate::{AskNo, CallNo, Class, CloseReason, Command, ConnNo, NodeId, Request, Session, StreamNo, Time};

#[derive(Clone, Debug)]
pub(super) enum Move {
    Wait(u64),
    Touch,
    Close,
    Begin {
        ids: Vec<u8>,
        node: u64,
        owner: u64,
        kept: Option<(usize, bool)>,
        isolate: bool,
        answer_only: bool,
        delivered: Vec<u64>,
        fence: Option<(u8, bool)>,
    },
    BeginAgain,
    Append {
        of_call: Option<u64>,
        class: Class,
        len: usize,
        fence: Option<(u8, bool)>,
    },
    Finish {
        call: u64,
        live: bool,
    },
    Cancel(u8),
    FailNode {
        node: u64,
        heir: Heir,
    },
    OpenAsk {
        of_call: Option<u64>,
        owner: u64,
        fence: Option<(u8, bool)>,
    },
    Answer {
        ask: u64,
        node: u64,
        len: usize,
    },
    AnswerAgain,
    Collect {
        node: u64,
        asks: Vec<u64>,
    },
    Withdraw(u64),
    Start {
        call: u64,
        node: u64,
        again: bool,
        fence: Option<(u8, bool)>,
    },
    Pass {
        call: u64,
        node: u64,
        to: u64,
        fence: Option<(u8, bool)>,
    },
    Release {
        node: u64,
        key: u8,
        right: bool,
    },
    Remind(u64),
    Get(u64),
    Resume {
        stream: u64,
        back: u64,
        node: u64,
    },
    Detach {
        which: usize,
        back: u64,
        stale: bool,
    },
    Deliver {
        which: usize,
        back: u64,
        stale: bool,
    },
    Put {
        key: u8,
        right: bool,
        value: Option<usize>,
    },
    Read(u8),
    Sweep,
}

pub(super) fn any_move() -> impl Strategy<Value = Move> {
    let recent = || 0..5u64;
    let node = || 0..2u64;
    // An entry of state, and whether its version is known.
    let fence = || prop::option::weighted(0.1, (0..3u8, any::<bool>()));
    let heir =
        || prop_oneof![1 => Just(Heir::Nobody), 2 => Just(Heir::Node(NodeId(2))), 1 => Just(Heir::Later)];
    let of_call = || prop::option::weighted(0.7, recent());
    let class = prop_oneof![Just(Class::Chatter), Just(Class::Notice)];
    let begin = (
        prop_oneof![3 => prop::collection::vec(0..6u8, 1), 1 => prop::collection::vec(0..6u8, 2..4)],
        (node(), prop_oneof![4 => Just(None), 1 => node().prop_map(Some)]),
        prop::option::weighted(0.5, (0..9usize, any::<bool>())),
        any::<bool>(),
        prop::bool::weighted(0.2),
        prop::collection::vec(recent(), 0..3),
        fence(),
    );
    prop_oneof![
        5 => (0..25u64).prop_map(Move::Wait),
        1 => (0..90u64).prop_map(Move::Wait),
        1 => Just(Move::Touch),
        1 => prop::bool::weighted(0.3).prop_map(|close| if close { Move::Close } else { Move::Sweep }),
        12 => begin.prop_map(|(ids, (node, owner), kept, isolate, answer_only, delivered, fence)| {
            let owner = owner.unwrap_or(node);
            // Nobody can run what it is not told.
            let kept = if owner == node { kept } else { kept.or(Some((3, false))) };
            Move::Begin { ids, node, owner, kept, isolate, answer_only, delivered, fence }
        }),
        1 => Just(Move::BeginAgain),
        10 => (of_call(), class, 0..60usize, fence())
            .prop_map(|(of_call, class, len, fence)| Move::Append { of_call, class, len, fence }),
        10 => (recent(), prop::bool::weighted(0.7)).prop_map(|(call, live)| Move::Finish { call, live }),
        4 => (0..6u8).prop_map(Move::Cancel),
        2 => (0..3u64, heir()).prop_map(|(node, heir)| Move::FailNode { node, heir }),
        5 => (of_call(), node(), fence())
            .prop_map(|(of_call, owner, fence)| Move::OpenAsk { of_call, owner, fence }),
        6 => (recent(), node(), 0..9usize).prop_map(|(ask, node, len)| Move::Answer { ask, node, len }),
        1 => Just(Move::AnswerAgain),
        2 => (node(), prop::collection::vec(recent(), 0..3))
            .prop_map(|(node, asks)| Move::Collect { node, asks }),
        2 => recent().prop_map(Move::Withdraw),
        3 => (recent(), node(), prop::bool::weighted(0.3), fence())
            .prop_map(|(call, node, again, fence)| Move::Start { call, node, again, fence }),
        2 => (recent(), node(), node(), fence())
            .prop_map(|(call, node, to, fence)| Move::Pass { call, node, to, fence }),
        1 => (node(), 0..3u8, prop::bool::weighted(0.8))
            .prop_map(|(node, key, right)| Move::Release { node, key, right }),
        2 => node().prop_map(Move::Remind),
        4 => node().prop_map(Move::Get),
        5 => (recent(), 0..4u64, node())
            .prop_map(|(stream, back, node)| Move::Resume { stream, back, node }),
        7 => (0..6usize, 0..3u64, prop::bool::weighted(0.2))
            .prop_map(|(which, back, stale)| Move::Detach { which, back, stale }),
        6 => (0..6usize, 0..3u64, prop::bool::weighted(0.1))
            .prop_map(|(which, back, stale)| Move::Deliver { which, back, stale }),
        3 => (0..3u8, prop::bool::weighted(0.8), prop::option::weighted(0.7, 0..9usize))
            .prop_map(|(key, right, value)| Move::Put { key, right, value }),
        1 => (0..3u8).prop_map(Move::Read),
        4 => Just(Move::Sweep),
    ]
}

/// Half of the ids are numbers, half the same digits as text.
fn id(no: u8) -> RequestId {
    let digit = no / 2;
    if no.is_multiple_of(2) { RequestId::from(i64::from(digit)) } else { RequestId::text(digit.to_string()) }
}

fn key(no: u8) -> Box<str> {
    ["", "a", "key"][usize::from(no)].into()
}

/// A stream that is read, its reader or one that is not, and a position near the end or beyond.
fn reader(session: &Session, which: usize, back: u64, stale: bool) -> Option<(StreamNo, ConnNo, u64)> {
    let read: Vec<_> = session
        .streams()
        .iter()
        .filter_map(|(no, stream)| Some((*no, stream.attached?.0, stream.next_seq)))
        .collect();
    let (stream, connection, next) = *read.get(which % read.len().max(1))?;
    let connection = if stale { ConnNo(connection.0.saturating_sub(1)) } else { connection };
    Some((stream, connection, next.saturating_sub(back)))
}

impl Move {
    pub(super) fn command(&self, now: &mut Time, session: &Session, history: &History) -> Option<Command> {
        let meta = session.meta();
        let call = |back: u64| CallNo(meta.next_call.saturating_sub(1 + back));
        let ask = |back: u64| AskNo(meta.next_ask.saturating_sub(1 + back));
        let stream = |back: u64| StreamNo(meta.next_stream.saturating_sub(1 + back));
        let target =
            |of_call: Option<u64>| of_call.map_or(Target::Standalone, |back| Target::Call(call(back)));
        let fence = |fence: Option<(u8, bool)>| {
            let (no, right) = fence?;
            let there = session.state().get(&key(no)).map_or(1, |value| value.version);
            Some(Fence { key: Arc::from(&*key(no)), version: if right { there } else { there + 1 } })
        };
        Some(match *self {
            Self::Wait(ms) => {
                now.0 += ms;
                return None;
            }
            Self::Touch => Command::Touch(Touch),
            Self::Close => Command::Close(Close { reason: CloseReason::Deleted }),
            Self::Begin { ref ids, node, owner, kept, isolate, answer_only, ref delivered, fence: under } => {
                let ids: Vec<RequestId> = ids.iter().map(|no| id(*no)).collect();
                let request = |(len, again)| Request { text: "r".repeat(len).into(), again };
                let requests = match kept {
                    Some(kept) => ids.iter().map(|_| Some(request(kept))).collect(),
                    None => Vec::new(),
                };
                Command::Begin(Begin {
                    owner: NodeId(owner),
                    requests,
                    duplicates: if isolate { Duplicates::Isolate } else { Duplicates::Reject },
                    answer_only,
                    delivered: delivered.iter().map(|back| stream(*back)).collect(),
                    fence: fence(under),
                    ..Begin::here(NodeId(node), meta.next_stream, ids)
                })
            }
            Self::BeginAgain => Command::Begin(Begin { again: true, ..history.last_begin()? }),
            Self::Append { of_call, class, len, fence: under } => {
                let payload = format!("{:.<len$}", meta.next_connection).into();
                Command::Append(Append { target: target(of_call), class, payload, fence: fence(under) })
            }
            Self::Finish { call: back, live } => {
                let open = session.calls().keys().rev().cycle().nth(back as usize).filter(|_| live);
                let call = open.copied().unwrap_or_else(|| call(back));
                Command::Finish(Finish { call, payload: format!("answer to {call}").into() })
            }
            Self::Cancel(no) => Command::Cancel(Cancel { id: id(no) }),
            Self::FailNode { node, heir } => Command::FailNode(FailNode { node: NodeId(node), heir }),
            Self::OpenAsk { of_call, owner, fence: under } => {
                let rest = Bytes::from_static(br#""method":"ping"}"#);
                let (target, owner, fence) = (target(of_call), NodeId(owner), fence(under));
                Command::OpenAsk(OpenAsk { target, owner, rest, fence })
            }
            Self::Answer { ask: back, node, len } => {
                let (ask, attempt) = (ask(back), history.answers);
                let message = format!("{attempt:.<len$}").into();
                Command::Answer(Answer { ask, node: NodeId(node), attempt, message })
            }
            Self::AnswerAgain => Command::Answer(history.last_answer.clone()?),
            Self::Collect { node, ref asks } => {
                let asks = asks.iter().map(|back| ask(*back)).collect();
                Command::Collect(Collect { node: NodeId(node), asks })
            }
            Self::Withdraw(back) => Command::Withdraw(Withdraw { ask: ask(back) }),
            Self::Start { call: back, node, again, fence: under } => {
                let open = session.calls().keys().rev().cycle().nth(back as usize);
                let call = open.copied().unwrap_or_else(|| call(back));
                Command::Start(Start { call, node: NodeId(node), again, fence: fence(under) })
            }
            Self::Pass { call: back, node, to, fence: under } => {
                let open = session.calls().keys().rev().cycle().nth(back as usize);
                let call = open.copied().unwrap_or_else(|| call(back));
                Command::Pass(Pass { call, node: NodeId(node), to: NodeId(to), fence: fence(under) })
            }
            Self::Release { node, key, right } => {
                let fence = fence(Some((key, right)))?;
                Command::Release(Release { node: NodeId(node), fence })
            }
            Self::Remind(node) => Command::Remind(Remind { node: NodeId(node) }),
            Self::Get(node) => Command::Attach(Attach { at: Position::Standalone, node: NodeId(node) }),
            Self::Resume { stream: back, back: events, node } => {
                let stream = stream(back);
                let last = session.streams().get(&stream).map_or(1, |stream| stream.next_seq);
                let at = Position::After { stream, seq: last.saturating_sub(events) };
                Command::Attach(Attach { at, node: NodeId(node) })
            }
            Self::Detach { which, back, stale } => {
                let (stream, connection, through) = reader(session, which, back, stale)?;
                Command::Detach(Detach { stream, connection, through })
            }
            Self::Deliver { which, back, stale } => {
                let (stream, connection, through) = reader(session, which, back, stale)?;
                Command::Deliver(Deliver { stream, connection, through })
            }
            Self::Put { key: no, right, value } => {
                let there = session.state().get(&key(no)).map(|value| value.version);
                let expected = if right { there } else { Some(there.unwrap_or(0).saturating_sub(1)) };
                let value = value.map(|len| "x".repeat(len).into());
                Command::PutState(PutState { key: key(no), expected, value })
            }
            Self::Read(no) => Command::GetState(GetState { key: key(no) }),
            Self::Sweep => Command::Sweep(Sweep),
        })
    }
}
