//! Random moves: what they may be, and what each means in a given situation.
//!
//! A move names things by picks ("the second of the calls in flight, or one that never was"), not by number, so
//! that most moves hit something and a sequence still makes sense when proptest leaves moves out to shrink it.

use bytes::Bytes;
use proptest::bool::weighted;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::sample::Index;
use steadfast_session::command::{
    Answer, Append, Attach, Begin, Cancel, Close, Collect, Deliver, Detach, Duplicates, FailNode, Fence,
    Finish, GetState, Heir, OpenAsk, Pass, Position, PutState, Release, Remind, Start, Target, Touch,
    Withdraw,
};
use steadfast_session::{
    AskNo, CallNo, Class, CloseReason, Command, ConnNo, Kept, NodeId, Principal, Request, Session, SessionId,
    Step, StreamNo,
};
use steadfast_wire::RequestId;

use super::model::Model;
use super::recorder::HEIR;

/// How many ids, nodes and names there are to pick from: few, so that they meet.
const SESSIONS: u8 = 4;
const NODES: u64 = 3;

#[derive(Clone, Debug)]
pub enum Move {
    /// Sent one after the other without waiting for answers, so that a store may do them together.
    Burst(Vec<Sent>),
    /// The clock goes on, or another node's clock is a little behind.
    Wait(i64),
    /// The store is closed and opened again.
    Reopen,
    /// The other handle of the same place is used from now on.
    Switch,
}

/// What is sent to a store.
#[derive(Clone, Debug)]
pub enum Sent {
    Open { session: u8, principal: u8 },
    Command(Index, Act),
    Sweep,
    Join(NodeId),
    Leave(NodeId),
    Bury,
}

/// A command, in picks.
#[derive(Clone, Debug)]
pub enum Act {
    Touch,
    Begin {
        ids: Vec<RequestId>,
        node: NodeId,
        owner: Option<NodeId>,
        kept: Option<(usize, bool)>,
        isolate: bool,
        answer_only: bool,
        delivered: Vec<Index>,
    },
    BeginAgain {
        call: Index,
    },
    Append {
        call: Option<Index>,
        class: Class,
        size: usize,
        fence: Option<(u8, bool)>,
    },
    Start {
        call: Index,
        node: NodeId,
    },
    Remind {
        node: NodeId,
    },
    Pass {
        call: Index,
        to: NodeId,
    },
    Release {
        name: u8,
        node: NodeId,
    },
    Finish {
        call: Index,
        size: usize,
    },
    Cancel {
        id: RequestId,
    },
    FailNode {
        node: NodeId,
        heir: Heir,
    },
    OpenAsk {
        call: Option<Index>,
        owner: NodeId,
        size: usize,
    },
    Answer {
        ask: Index,
        node: NodeId,
        size: usize,
    },
    AnswerAgain {
        ask: Index,
    },
    Collect {
        node: NodeId,
        asks: Vec<Index>,
    },
    Withdraw {
        ask: Index,
    },
    AttachAfter {
        stream: Index,
        seq: Index,
        node: NodeId,
    },
    AttachStandalone {
        node: NodeId,
    },
    Detach {
        stream: Index,
        stale: bool,
        through: Index,
    },
    Deliver {
        stream: Index,
        stale: bool,
        through: Index,
    },
    PutState {
        name: u8,
        stale: bool,
        value: Option<usize>,
    },
    GetState {
        name: u8,
    },
    Close {
        reason: CloseReason,
    },
}

pub fn moves(length: usize) -> impl Strategy<Value = Vec<Move>> {
    vec(one_move(), 1..=length)
}

fn one_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        12 => sent().prop_map(|sent| Move::Burst(vec![sent])),
        6 => vec(sent(), 2..8).prop_map(Move::Burst),
        3 => prop_oneof![8 => 0..40i64, 1 => 100..400i64, 1 => Just(1100i64), 1 => -15..0i64]
            .prop_map(Move::Wait),
        1 => Just(Move::Reopen),
        2 => Just(Move::Switch),
    ]
}

fn sent() -> impl Strategy<Value = Sent> {
    prop_oneof![
        2 => (0..SESSIONS, 0..2u8).prop_map(|(session, principal)| Sent::Open { session, principal }),
        28 => (any::<Index>(), act()).prop_map(|(session, act)| Sent::Command(session, act)),
        2 => Just(Sent::Sweep),
        2 => node().prop_map(Sent::Join),
        1 => node().prop_map(Sent::Leave),
        1 => Just(Sent::Bury),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let index = any::<Index>;
    prop_oneof![
        1 => Just(Act::Touch),
        8 => (
            vec(id(), 1..=3),
            (node(), option::weighted(0.2, node())),
            option::of((0..30usize, any::<bool>())),
            any::<bool>(),
            any::<bool>(),
            vec(index(), 0..3),
        )
            .prop_map(|(ids, (node, owner), kept, isolate, answer_only, delivered)| {
                Act::Begin { ids, node, owner, kept, isolate, answer_only, delivered }
            }),
        1 => index().prop_map(|call| Act::BeginAgain { call }),
        8 => (option::of(index()), class(), 0..90usize, option::weighted(0.1, (0..3u8, any::<bool>())))
            .prop_map(|(call, class, size, fence)| Act::Append { call, class, size, fence }),
        1 => (index(), node()).prop_map(|(call, node)| Act::Start { call, node }),
        1 => node().prop_map(|node| Act::Remind { node }),
        1 => (index(), node()).prop_map(|(call, to)| Act::Pass { call, to }),
        1 => (0..3u8, node()).prop_map(|(name, node)| Act::Release { name, node }),
        8 => (index(), prop_oneof![4 => 0..90usize, 1 => Just(1000usize)])
            .prop_map(|(call, size)| Act::Finish { call, size }),
        4 => id().prop_map(|id| Act::Cancel { id }),
        1 => (node(), heir()).prop_map(|(node, heir)| Act::FailNode { node, heir }),
        3 => (option::of(index()), node(), 0..40usize)
            .prop_map(|(call, owner, size)| Act::OpenAsk { call, owner, size }),
        5 => (index(), node(), 0..60usize).prop_map(|(ask, node, size)| Act::Answer { ask, node, size }),
        1 => index().prop_map(|ask| Act::AnswerAgain { ask }),
        2 => (node(), vec(index(), 1..3)).prop_map(|(node, asks)| Act::Collect { node, asks }),
        1 => index().prop_map(|ask| Act::Withdraw { ask }),
        5 => (index(), index(), node())
            .prop_map(|(stream, seq, node)| Act::AttachAfter { stream, seq, node }),
        3 => node().prop_map(|node| Act::AttachStandalone { node }),
        6 => (index(), weighted(0.25), index())
            .prop_map(|(stream, stale, through)| Act::Detach { stream, stale, through }),
        4 => (index(), weighted(0.25), index())
            .prop_map(|(stream, stale, through)| Act::Deliver { stream, stale, through }),
        6 => (0..3u8, weighted(0.25), option::of(0..30usize))
            .prop_map(|(name, stale, value)| Act::PutState { name, stale, value }),
        3 => (0..3u8).prop_map(|name| Act::GetState { name }),
        1 => (0..4usize).prop_map(|i| Act::Close { reason: CloseReason::ALL[i] }),
    ]
}

fn id() -> impl Strategy<Value = RequestId> {
    (1..5i64, any::<bool>())
        .prop_map(|(n, text)| if text { RequestId::text(n.to_string()) } else { RequestId::Number(n) })
}

fn node() -> impl Strategy<Value = NodeId> {
    (0..NODES).prop_map(nth_node)
}

/// Every node that moves name.
pub fn nodes() -> impl Iterator<Item = NodeId> {
    (0..NODES).map(nth_node).chain([HEIR])
}

fn nth_node(n: u64) -> NodeId {
    // Far apart, so that half of the id space that SQL knows as negative numbers is in use.
    NodeId(n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn heir() -> impl Strategy<Value = Heir> {
    prop_oneof![Just(Heir::Nobody), Just(Heir::Later), node().prop_map(Heir::Node)]
}

fn class() -> impl Strategy<Value = Class> {
    prop_oneof![3 => Just(Class::Chatter), 1 => Just(Class::Notice)]
}

pub fn session_id(n: u8) -> SessionId {
    SessionId::from_random([n.wrapping_mul(67); SessionId::BYTES])
}

pub fn principal(n: u8) -> Principal {
    Principal::new(format!("principal {n}"))
}

/// The session that a move is about: one of those that exist, or none such.
pub fn pick_session(model: &Model, pick: Index) -> SessionId {
    let known: Vec<SessionId> = model.sessions.keys().copied().collect();
    picked(&known, pick).unwrap_or_else(|| session_id(SESSIONS))
}

/// One of them; rarely, or if there are none, nothing.
fn picked<T: Copy>(all: &[T], pick: Index) -> Option<T> {
    all.get(pick.index(all.len() * 8 + 1) / 8).copied()
}

/// What an act means for a session as it is. `attempt` is a number not used before.
pub fn command(act: Act, session: Option<&Session>, attempt: u64) -> Command {
    let calls: Vec<CallNo> = session.into_iter().flat_map(|s| s.calls().keys().copied()).collect();
    let asks: Vec<AskNo> = session.into_iter().flat_map(|s| s.asks().keys().copied()).collect();
    let streams: Vec<StreamNo> = session.into_iter().flat_map(|s| s.streams().keys().copied()).collect();
    let call = |pick| picked(&calls, pick).unwrap_or(CallNo(1));
    let ask = |pick| picked(&asks, pick).unwrap_or(AskNo(1));
    let stream = |pick| picked(&streams, pick).unwrap_or(StreamNo(1));
    let target = |pick: Option<Index>| pick.map_or(Target::Standalone, |pick| Target::Call(call(pick)));
    match act {
        Act::Touch => Touch.into_command(),
        Act::Begin { ids, node, owner, kept, isolate, answer_only, delivered } => {
            let duplicates = if isolate { Duplicates::Isolate } else { Duplicates::Reject };
            let delivered = delivered.into_iter().map(stream).collect();
            let owner = owner.unwrap_or(node);
            // Nobody can run what it is not told.
            let kept = if owner == node { kept } else { kept.or(Some((9, false))) };
            let request = |(size, again)| Request { text: filler(attempt, size), again };
            let requests = match kept {
                Some(kept) => ids.iter().map(|_| Some(request(kept))).collect(),
                None => Vec::new(),
            };
            let begin = Begin::here(node, attempt, ids);
            Begin { owner, requests, duplicates, answer_only, delivered, ..begin }.into_command()
        }
        Act::BeginAgain { call: pick } => begin_again(session, call(pick), attempt).into_command(),
        Act::Append { call, class, size, fence } => {
            let fence = fence.map(|(name, stale)| {
                let key = state_name(name);
                let there = session.and_then(|session| session.state().get(&key));
                let version = there.map_or(1, |value| value.version) + u64::from(stale);
                Fence { key: key.into(), version }
            });
            Append { target: target(call), class, payload: filler(attempt, size), fence }.into_command()
        }
        Act::Start { call: pick, node } => {
            Start { call: call(pick), node, again: false, fence: None }.into_command()
        }
        Act::Remind { node } => Remind { node }.into_command(),
        Act::Pass { call: pick, to } => {
            let call = call(pick);
            // By whoever has it.
            let owner = session.and_then(|session| session.calls().get(&call)).map(|call| call.owner);
            Pass { call, node: owner.unwrap_or(to), to, fence: None }.into_command()
        }
        Act::Release { name, node } => {
            let key = state_name(name);
            let there = session.and_then(|session| session.state().get(&key));
            let version = there.map_or(1, |value| value.version);
            Release { node, fence: Fence { key: key.into(), version } }.into_command()
        }
        Act::Finish { call: pick, size } => {
            Finish { call: call(pick), payload: filler(attempt, size) }.into_command()
        }
        Act::Cancel { id } => Cancel { id }.into_command(),
        Act::FailNode { node, heir } => FailNode { node, heir }.into_command(),
        Act::OpenAsk { call, owner, size } => {
            OpenAsk { target: target(call), owner, rest: filler(attempt, size), fence: None }.into_command()
        }
        Act::Answer { ask: pick, node, size } => {
            Answer { ask: ask(pick), node, attempt, message: filler(attempt, size) }.into_command()
        }
        Act::AnswerAgain { ask: pick } => answer_again(session, ask(pick), attempt).into_command(),
        Act::Collect { node, asks } => {
            Collect { node, asks: asks.into_iter().map(ask).collect() }.into_command()
        }
        Act::Withdraw { ask: pick } => Withdraw { ask: ask(pick) }.into_command(),
        Act::AttachAfter { stream: pick, seq, node } => {
            let stream = stream(pick);
            let last = session.and_then(|s| s.streams().get(&stream)).map_or(0, |s| s.last_seq());
            // Up to one beyond the end.
            let seq = seq.index(usize::try_from(last).unwrap_or(0) + 2) as u64;
            Attach { at: Position::After { stream, seq }, node }.into_command()
        }
        Act::AttachStandalone { node } => Attach { at: Position::Standalone, node }.into_command(),
        Act::Detach { stream: pick, stale, through } => {
            detach(session, stream(pick), stale, through).into_command()
        }
        Act::Deliver { stream: pick, stale, through } => {
            let Detach { stream, connection, through } = detach(session, stream(pick), stale, through);
            Deliver { stream, connection, through }.into_command()
        }
        Act::PutState { name, stale, value } => put_state(session, name, stale, value).into_command(),
        Act::GetState { name } => GetState { key: state_name(name) }.into_command(),
        Act::Close { reason } => Close { reason }.into_command(),
    }
}

/// The same command once more, as its owner would send it after an unknown outcome.
fn begin_again(session: Option<&Session>, call: CallNo, attempt: u64) -> Begin {
    let known = session.and_then(|session| session.calls().get(&call).map(|call| (session, call)));
    let ids_of = |session: &Session, attempt| {
        let same = session.calls().values().filter(move |call| call.attempt == attempt);
        same.map(|call| call.id.clone()).collect()
    };
    let ids = known.map_or_else(|| vec![1.into()], |(session, call)| ids_of(session, call.attempt));
    let (node, owner, attempt) =
        known.map_or((NodeId(0), NodeId(0), attempt), |(_, call)| (call.from, call.owner, call.attempt));
    Begin { owner, again: true, ..Begin::here(node, attempt, ids) }
}

/// The same for an answer that is kept.
fn answer_again(session: Option<&Session>, ask: AskNo, attempt: u64) -> Answer {
    let kept = session.and_then(|session| session.asks().get(&ask)?.answer.clone());
    let Kept { by: (node, attempt), message } =
        kept.unwrap_or(Kept { by: (NodeId(0), attempt), message: Bytes::new() });
    Answer { ask, node, attempt, message }
}

fn detach(session: Option<&Session>, stream: StreamNo, stale: bool, through: Index) -> Detach {
    let log = session.and_then(|session| session.streams().get(&stream));
    let connection = log.and_then(|log| log.attached).map_or(ConnNo(0), |(connection, _)| connection);
    let connection = if stale { ConnNo(connection.0.wrapping_sub(1)) } else { connection };
    let through = through.index(log.map_or(0, |log| usize::try_from(log.last_seq()).unwrap_or(0)) + 1) as u64;
    Detach { stream, connection, through }
}

fn put_state(session: Option<&Session>, name: u8, stale: bool, value: Option<usize>) -> PutState {
    let key = state_name(name);
    let version = session.and_then(|session| session.state().get(&key)).map(|value| value.version);
    let expected = if stale { version.map_or(Some(1), |_| None) } else { version };
    PutState { key, expected, value: value.map(|size| filler(u64::from(name), size)) }
}

fn state_name(n: u8) -> Box<str> {
    format!("name {n}").into()
}

/// A payload that tells where it comes from.
fn filler(tag: u64, size: usize) -> Bytes {
    let mut text = format!("<{tag}>").into_bytes();
    text.resize(text.len().max(size), b'.');
    text.into()
}
