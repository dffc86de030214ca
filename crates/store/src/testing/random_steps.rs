//! Random test steps: their types, how they are generated, and what each means for a given session.
//!
//! A step refers to things by picks ("the second of the calls in flight, or one that does not
//! exist") and not by number. So most steps affect something, and a sequence still makes sense when
//! proptest removes steps to shrink it.

use bytes::Bytes;
use proptest::bool::weighted;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::sample::Index;
use steadfast_session::command::{
    Answer, Append, Attach, Begin, BeginMode, Cancel, Close, Collect, Deliver, Detach, Duplicates, Evict,
    FailNode, Fence, Finish, Forward, GetState, OpenServerRequest, Position, PutState, Release, Renotify,
    Start, Successor, Target, Touch, Withdraw,
};
use steadfast_session::{
    CallNo, Class, CloseReason, Command, ConnNo, LastUse, NodeId, Principal, Request, ServerRequestNo,
    Session, SessionId, Step, StoredAnswer, StreamNo, Time,
};
use steadfast_wire::RequestId;

use super::model::Model;
use super::signal_recorder::SUCCESSOR;

/// How many sessions and nodes there are to pick from: few, so that steps collide.
const SESSIONS: u8 = 4;
const NODES: u64 = 3;

#[derive(Clone, Debug)]
pub enum TestStep {
    /// Operations that are sent one after the other without waiting for replies, so that a store
    /// may group them.
    Burst(Vec<StoreCall>),
    /// Moves the clock forward, or a little back, as the clock of another node might be.
    AdvanceClock(i64),
    /// Closes the store and opens it again.
    Reopen,
    /// Uses the other handle to the same sessions from now on.
    SwitchHandle,
}

/// An operation of the store.
#[derive(Clone, Debug)]
pub enum StoreCall {
    Open { session: u8, principal: u8 },
    Command(Index, RandomCommand),
    Sweep,
    Join(NodeId),
    Leave(NodeId),
    Reap,
}

/// A command with picks in place of numbers.
#[derive(Clone, Debug)]
pub enum RandomCommand {
    Touch,
    /// `stale`: the session was used since it was chosen.
    Evict {
        stale: bool,
    },
    Begin {
        ids: Vec<RequestId>,
        node: NodeId,
        owner: Option<NodeId>,
        kept: Option<(usize, bool)>,
        isolate: bool,
        response_only: bool,
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
    Renotify {
        node: NodeId,
    },
    Forward {
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
        successor: Successor,
    },
    OpenServerRequest {
        call: Option<Index>,
        owner: NodeId,
        size: usize,
    },
    Answer {
        server_request: Index,
        node: NodeId,
        size: usize,
    },
    AnswerAgain {
        server_request: Index,
    },
    Collect {
        node: NodeId,
        server_requests: Vec<Index>,
    },
    Withdraw {
        server_request: Index,
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

pub fn random_steps(length: usize) -> impl Strategy<Value = Vec<TestStep>> {
    vec(test_step(), 1..=length)
}

fn test_step() -> impl Strategy<Value = TestStep> {
    prop_oneof![
        12 => store_call().prop_map(|store_call| TestStep::Burst(vec![store_call])),
        6 => vec(store_call(), 2..8).prop_map(TestStep::Burst),
        3 => prop_oneof![8 => 0..40i64, 1 => 100..400i64, 1 => Just(1100i64), 1 => -15..0i64]
            .prop_map(TestStep::AdvanceClock),
        1 => Just(TestStep::Reopen),
        2 => Just(TestStep::SwitchHandle),
    ]
}

fn store_call() -> impl Strategy<Value = StoreCall> {
    prop_oneof![
        2 => (0..SESSIONS, 0..2u8).prop_map(|(session, principal)| StoreCall::Open { session, principal }),
        28 => (any::<Index>(), random_command()).prop_map(|(session, random_command)| StoreCall::Command(session, random_command)),
        2 => Just(StoreCall::Sweep),
        2 => node().prop_map(StoreCall::Join),
        1 => node().prop_map(StoreCall::Leave),
        1 => Just(StoreCall::Reap),
    ]
}

fn random_command() -> impl Strategy<Value = RandomCommand> {
    let index = any::<Index>;
    prop_oneof![
        1 => Just(RandomCommand::Touch),
        2 => weighted(0.2).prop_map(|stale| RandomCommand::Evict { stale }),
        8 => (
            vec(id(), 1..=3),
            (node(), option::weighted(0.2, node())),
            option::of((0..30usize, any::<bool>())),
            any::<bool>(),
            any::<bool>(),
            vec(index(), 0..3),
        )
            .prop_map(|(ids, (node, owner), kept, isolate, response_only, delivered)| {
                RandomCommand::Begin { ids, node, owner, kept, isolate, response_only, delivered }
            }),
        1 => index().prop_map(|call| RandomCommand::BeginAgain { call }),
        8 => (option::of(index()), class(), 0..90usize, option::weighted(0.1, (0..3u8, any::<bool>())))
            .prop_map(|(call, class, size, fence)| RandomCommand::Append { call, class, size, fence }),
        1 => (index(), node()).prop_map(|(call, node)| RandomCommand::Start { call, node }),
        1 => node().prop_map(|node| RandomCommand::Renotify { node }),
        1 => (index(), node()).prop_map(|(call, to)| RandomCommand::Forward { call, to }),
        1 => (0..3u8, node()).prop_map(|(name, node)| RandomCommand::Release { name, node }),
        8 => (index(), prop_oneof![4 => 0..90usize, 1 => Just(1000usize)])
            .prop_map(|(call, size)| RandomCommand::Finish { call, size }),
        4 => id().prop_map(|id| RandomCommand::Cancel { id }),
        1 => (node(), successor()).prop_map(|(node, successor)| RandomCommand::FailNode { node, successor }),
        3 => (option::of(index()), node(), 0..40usize)
            .prop_map(|(call, owner, size)| RandomCommand::OpenServerRequest { call, owner, size }),
        5 => (index(), node(), 0..60usize).prop_map(|(server_request, node, size)| RandomCommand::Answer { server_request, node, size }),
        1 => index().prop_map(|server_request| RandomCommand::AnswerAgain { server_request }),
        2 => (node(), vec(index(), 1..3)).prop_map(|(node, server_requests)| RandomCommand::Collect { node, server_requests }),
        1 => index().prop_map(|server_request| RandomCommand::Withdraw { server_request }),
        5 => (index(), index(), node())
            .prop_map(|(stream, seq, node)| RandomCommand::AttachAfter { stream, seq, node }),
        3 => node().prop_map(|node| RandomCommand::AttachStandalone { node }),
        6 => (index(), weighted(0.25), index())
            .prop_map(|(stream, stale, through)| RandomCommand::Detach { stream, stale, through }),
        4 => (index(), weighted(0.25), index())
            .prop_map(|(stream, stale, through)| RandomCommand::Deliver { stream, stale, through }),
        6 => (0..3u8, weighted(0.25), option::of(0..30usize))
            .prop_map(|(name, stale, value)| RandomCommand::PutState { name, stale, value }),
        3 => (0..3u8).prop_map(|name| RandomCommand::GetState { name }),
        1 => (0..4usize).prop_map(|i| RandomCommand::Close { reason: CloseReason::ALL[i] }),
    ]
}

fn id() -> impl Strategy<Value = RequestId> {
    (1..5i64, any::<bool>())
        .prop_map(|(n, text)| if text { RequestId::text(n.to_string()) } else { RequestId::Number(n) })
}

fn node() -> impl Strategy<Value = NodeId> {
    (0..NODES).prop_map(nth_node)
}

/// Returns every node that steps refer to.
pub fn nodes() -> impl Iterator<Item = NodeId> {
    (0..NODES).map(nth_node).chain([SUCCESSOR])
}

fn nth_node(n: u64) -> NodeId {
    // Far apart, so that some ids are negative numbers in SQL.
    NodeId(n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn successor() -> impl Strategy<Value = Successor> {
    prop_oneof![Just(Successor::None), Just(Successor::Reaper), node().prop_map(Successor::Node)]
}

fn class() -> impl Strategy<Value = Class> {
    prop_oneof![3 => Just(Class::Droppable), 1 => Just(Class::Notification)]
}

pub fn session_id(n: u8) -> SessionId {
    SessionId::from_random([n.wrapping_mul(67); SessionId::BYTES])
}

pub fn principal(n: u8) -> Principal {
    Principal::new(format!("principal {n}"))
}

/// Returns the session that a step is about: an existing one, or rarely one that does not exist.
pub fn pick_session(model: &Model, pick: Index) -> SessionId {
    let known: Vec<SessionId> = model.sessions.keys().copied().collect();
    picked(&known, pick).unwrap_or_else(|| session_id(SESSIONS))
}

/// Returns one of the items. Rarely, or if there are none, returns `None`.
fn picked<T: Copy>(all: &[T], pick: Index) -> Option<T> {
    all.get(pick.index(all.len() * 8 + 1) / 8).copied()
}

/// Returns the command for a session in its current state. `attempt` is a number that was not used
/// before.
pub fn command(random_command: RandomCommand, session: Option<&Session>, attempt: u64) -> Command {
    let calls: Vec<CallNo> = session.into_iter().flat_map(|s| s.calls().keys().copied()).collect();
    let server_requests: Vec<ServerRequestNo> =
        session.into_iter().flat_map(|s| s.server_requests().keys().copied()).collect();
    let streams: Vec<StreamNo> = session.into_iter().flat_map(|s| s.streams().keys().copied()).collect();
    let call = |pick| picked(&calls, pick).unwrap_or(CallNo(1));
    let server_request = |pick| picked(&server_requests, pick).unwrap_or(ServerRequestNo(1));
    let stream = |pick| picked(&streams, pick).unwrap_or(StreamNo(1));
    let target = |pick: Option<Index>| pick.map_or(Target::Standalone, |pick| Target::Call(call(pick)));
    match random_command {
        RandomCommand::Touch => Touch.into_command(),
        RandomCommand::Evict { stale } => {
            let seen = session.map(|session| session.meta().last_use());
            let seen = seen.unwrap_or(LastUse { calls: 0, at: Time(0) });
            Evict { seen: LastUse { calls: seen.calls + u64::from(stale), ..seen } }.into_command()
        }
        RandomCommand::Begin { ids, node, owner, kept, isolate, response_only, delivered } => {
            let duplicates = if isolate { Duplicates::Isolate } else { Duplicates::Reject };
            let delivered = delivered.into_iter().map(stream).collect();
            let owner = owner.unwrap_or(node);
            // A node can only run a forwarded call if the request is stored.
            let kept = if owner == node { kept } else { kept.or(Some((9, false))) };
            let request = |(size, reassignable)| Request { text: filler(attempt, size), reassignable };
            let requests = match kept {
                Some(kept) => ids.iter().map(|_| Some(request(kept))).collect(),
                None => Vec::new(),
            };
            let begin = Begin::local(node, attempt, ids);
            Begin { owner, requests, duplicates, response_only, delivered, ..begin }.into_command()
        }
        RandomCommand::BeginAgain { call: pick } => begin_again(session, call(pick), attempt).into_command(),
        RandomCommand::Append { call, class, size, fence } => {
            let fence = fence.map(|(name, stale)| {
                let key = state_name(name);
                let there = session.and_then(|session| session.state().get(&key));
                let version = there.map_or(1, |value| value.version) + u64::from(stale);
                Fence { key: key.into(), version }
            });
            Append { target: target(call), class, payload: filler(attempt, size), fence }.into_command()
        }
        RandomCommand::Start { call: pick, node } => {
            Start { call: call(pick), node, idempotent: false, fence: None }.into_command()
        }
        RandomCommand::Renotify { node } => Renotify { node }.into_command(),
        RandomCommand::Forward { call: pick, to } => {
            let call = call(pick);
            // Sent by the node that owns the call.
            let owner = session.and_then(|session| session.calls().get(&call)).map(|call| call.owner);
            Forward { call, node: owner.unwrap_or(to), to, fence: None }.into_command()
        }
        RandomCommand::Release { name, node } => {
            let key = state_name(name);
            let there = session.and_then(|session| session.state().get(&key));
            let version = there.map_or(1, |value| value.version);
            Release { node, fence: Fence { key: key.into(), version } }.into_command()
        }
        RandomCommand::Finish { call: pick, size } => {
            Finish { call: call(pick), payload: filler(attempt, size) }.into_command()
        }
        RandomCommand::Cancel { id } => Cancel { id }.into_command(),
        RandomCommand::FailNode { node, successor } => FailNode { node, successor }.into_command(),
        RandomCommand::OpenServerRequest { call, owner, size } => {
            OpenServerRequest { target: target(call), owner, rest: filler(attempt, size), fence: None }
                .into_command()
        }
        RandomCommand::Answer { server_request: pick, node, size } => {
            Answer { server_request: server_request(pick), node, attempt, message: filler(attempt, size) }
                .into_command()
        }
        RandomCommand::AnswerAgain { server_request: pick } => {
            answer_again(session, server_request(pick), attempt).into_command()
        }
        RandomCommand::Collect { node, server_requests } => {
            Collect { node, server_requests: server_requests.into_iter().map(server_request).collect() }
                .into_command()
        }
        RandomCommand::Withdraw { server_request: pick } => {
            Withdraw { server_request: server_request(pick) }.into_command()
        }
        RandomCommand::AttachAfter { stream: pick, seq, node } => {
            let stream = stream(pick);
            let last = session.and_then(|s| s.streams().get(&stream)).map_or(0, |s| s.last_seq());
            // Up to one beyond the last event.
            let seq = seq.index(usize::try_from(last).unwrap_or(0) + 2) as u64;
            Attach { at: Position::After { stream, seq }, node }.into_command()
        }
        RandomCommand::AttachStandalone { node } => Attach { at: Position::Standalone, node }.into_command(),
        RandomCommand::Detach { stream: pick, stale, through } => {
            detach(session, stream(pick), stale, through).into_command()
        }
        RandomCommand::Deliver { stream: pick, stale, through } => {
            let Detach { stream, connection, through } = detach(session, stream(pick), stale, through);
            Deliver { stream, connection, through }.into_command()
        }
        RandomCommand::PutState { name, stale, value } => {
            put_state(session, name, stale, value).into_command()
        }
        RandomCommand::GetState { name } => GetState { key: state_name(name) }.into_command(),
        RandomCommand::Close { reason } => Close { reason }.into_command(),
    }
}

/// Returns the command once more, as its sender would repeat it after an unknown outcome.
fn begin_again(session: Option<&Session>, call: CallNo, attempt: u64) -> Begin {
    let known = session.and_then(|session| session.calls().get(&call).map(|call| (session, call)));
    let ids_of = |session: &Session, attempt| {
        let same = session.calls().values().filter(move |call| call.attempt == attempt);
        same.map(|call| call.id.clone()).collect()
    };
    let ids = known.map_or_else(|| vec![1.into()], |(session, call)| ids_of(session, call.attempt));
    let (node, owner, attempt) = known
        .map_or((NodeId(0), NodeId(0), attempt), |(_, call)| (call.assigned_by, call.owner, call.attempt));
    Begin { owner, mode: BeginMode::Retry, ..Begin::local(node, attempt, ids) }
}

/// Returns an answer once more, if it is kept.
fn answer_again(session: Option<&Session>, server_request: ServerRequestNo, attempt: u64) -> Answer {
    let kept = session.and_then(|session| session.server_requests().get(&server_request)?.answer.clone());
    let StoredAnswer { by: (node, attempt), message } =
        kept.unwrap_or(StoredAnswer { by: (NodeId(0), attempt), message: Bytes::new() });
    Answer { server_request, node, attempt, message }
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

/// Returns a payload that identifies its origin.
fn filler(tag: u64, size: usize) -> Bytes {
    let mut text = format!("<{tag}>").into_bytes();
    text.resize(text.len().max(size), b'.');
    text.into()
}
