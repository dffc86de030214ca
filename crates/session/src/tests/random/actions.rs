//! Random commands. Their numbers are relative to the current state of the session, so that most
//! commands refer to existing calls, streams and server requests.

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use steadfast_wire::RequestId;

use super::model::Model;
use crate::command::{
    Answer, Append, Attach, Begin, BeginMode, Cancel, Close, Collect, Deliver, Detach, Duplicates, FailNode,
    Fence, Finish, Forward, GetState, OpenServerRequest, Position, PutState, Release, Renotify, Start,
    Successor, Sweep, Target, Touch, Withdraw,
};
use crate::{
    CallNo, Class, CloseReason, Command, ConnNo, NodeId, Request, ServerRequestNo, Session, StreamNo, Time,
};

#[derive(Clone, Debug)]
pub(super) enum Action {
    Wait(u64),
    Touch,
    Close,
    Begin {
        ids: Vec<u8>,
        node: u64,
        owner: u64,
        /// The length of the stored request, and whether the call is reassignable.
        stored: Option<(usize, bool)>,
        isolate: bool,
        response_only: bool,
        delivered: Vec<u64>,
        fence: Option<(u8, bool)>,
    },
    RetryBegin,
    Append {
        of_call: Option<u64>,
        class: Class,
        len: usize,
        fence: Option<(u8, bool)>,
    },
    Finish {
        call: u64,
        in_flight: bool,
    },
    Cancel(u8),
    FailNode {
        node: u64,
        successor: Successor,
    },
    OpenServerRequest {
        of_call: Option<u64>,
        owner: u64,
        fence: Option<(u8, bool)>,
    },
    Answer {
        server_request: u64,
        node: u64,
        len: usize,
    },
    RetryAnswer,
    Collect {
        node: u64,
        server_requests: Vec<u64>,
    },
    Withdraw(u64),
    Start {
        call: u64,
        node: u64,
        idempotent: bool,
        fence: Option<(u8, bool)>,
    },
    Forward {
        call: u64,
        node: u64,
        to: u64,
        fence: Option<(u8, bool)>,
    },
    Release {
        node: u64,
        key: u8,
        is_current: bool,
    },
    Renotify(u64),
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
        is_current: bool,
        value: Option<usize>,
    },
    Read(u8),
    Sweep,
}

pub(super) fn any_action() -> impl Strategy<Value = Action> {
    let recent = || 0..5u64;
    let node = || 0..2u64;
    // The key of a state entry, and whether the fence has its current version.
    let fence = || prop::option::weighted(0.1, (0..3u8, any::<bool>()));
    let successor = || prop_oneof![1 => Just(Successor::None), 2 => Just(Successor::Node(NodeId(2))), 1 => Just(Successor::Reaper)];
    let of_call = || prop::option::weighted(0.7, recent());
    let class = prop_oneof![Just(Class::Droppable), Just(Class::Notification)];
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
        5 => (0..25u64).prop_map(Action::Wait),
        1 => (0..90u64).prop_map(Action::Wait),
        1 => Just(Action::Touch),
        1 => prop::bool::weighted(0.3).prop_map(|close| if close { Action::Close } else { Action::Sweep }),
        12 => begin.prop_map(|(ids, (node, owner), stored, isolate, response_only, delivered, fence)| {
            let owner = owner.unwrap_or(node);
            // Another owner needs the request.
            let stored = if owner == node { stored } else { stored.or(Some((3, false))) };
            Action::Begin { ids, node, owner, stored, isolate, response_only, delivered, fence }
        }),
        1 => Just(Action::RetryBegin),
        10 => (of_call(), class, 0..60usize, fence())
            .prop_map(|(of_call, class, len, fence)| Action::Append { of_call, class, len, fence }),
        10 => (recent(), prop::bool::weighted(0.7)).prop_map(|(call, in_flight)| Action::Finish { call, in_flight }),
        4 => (0..6u8).prop_map(Action::Cancel),
        2 => (0..3u64, successor()).prop_map(|(node, successor)| Action::FailNode { node, successor }),
        5 => (of_call(), node(), fence())
            .prop_map(|(of_call, owner, fence)| Action::OpenServerRequest { of_call, owner, fence }),
        6 => (recent(), node(), 0..9usize).prop_map(|(server_request, node, len)| Action::Answer { server_request, node, len }),
        1 => Just(Action::RetryAnswer),
        2 => (node(), prop::collection::vec(recent(), 0..3))
            .prop_map(|(node, server_requests)| Action::Collect { node, server_requests }),
        2 => recent().prop_map(Action::Withdraw),
        3 => (recent(), node(), prop::bool::weighted(0.3), fence())
            .prop_map(|(call, node, idempotent, fence)| Action::Start { call, node, idempotent, fence }),
        2 => (recent(), node(), node(), fence())
            .prop_map(|(call, node, to, fence)| Action::Forward { call, node, to, fence }),
        1 => (node(), 0..3u8, prop::bool::weighted(0.8))
            .prop_map(|(node, key, is_current)| Action::Release { node, key, is_current }),
        2 => node().prop_map(Action::Renotify),
        4 => node().prop_map(Action::Get),
        5 => (recent(), 0..4u64, node())
            .prop_map(|(stream, back, node)| Action::Resume { stream, back, node }),
        7 => (0..6usize, 0..3u64, prop::bool::weighted(0.2))
            .prop_map(|(which, back, stale)| Action::Detach { which, back, stale }),
        6 => (0..6usize, 0..3u64, prop::bool::weighted(0.1))
            .prop_map(|(which, back, stale)| Action::Deliver { which, back, stale }),
        3 => (0..3u8, prop::bool::weighted(0.8), prop::option::weighted(0.7, 0..9usize))
            .prop_map(|(key, is_current, value)| Action::Put { key, is_current, value }),
        1 => (0..3u8).prop_map(Action::Read),
        4 => Just(Action::Sweep),
    ]
}

/// Half of the ids are numbers, the other half are strings of the same digits.
fn id(no: u8) -> RequestId {
    let digit = no / 2;
    if no.is_multiple_of(2) { RequestId::from(i64::from(digit)) } else { RequestId::text(digit.to_string()) }
}

fn key(no: u8) -> Box<str> {
    ["", "a", "key"][usize::from(no)].into()
}

/// Returns an attached stream, its connection (or an older one, if `stale`), and a position near or
/// beyond its end.
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

impl Action {
    pub(super) fn command(&self, now: &mut Time, session: &Session, model: &Model) -> Option<Command> {
        let meta = session.meta();
        let call = |back: u64| CallNo(meta.next_call.saturating_sub(1 + back));
        let server_request = |back: u64| ServerRequestNo(meta.next_server_request.saturating_sub(1 + back));
        let stream = |back: u64| StreamNo(meta.next_stream.saturating_sub(1 + back));
        let target =
            |of_call: Option<u64>| of_call.map_or(Target::Standalone, |back| Target::Call(call(back)));
        let fence = |fence: Option<(u8, bool)>| {
            let (no, is_current) = fence?;
            let current = session.state().get(&key(no)).map_or(1, |value| value.version);
            Some(Fence { key: Arc::from(&*key(no)), version: if is_current { current } else { current + 1 } })
        };
        Some(match *self {
            Self::Wait(ms) => {
                now.0 += ms;
                return None;
            }
            Self::Touch => Command::Touch(Touch),
            Self::Close => Command::Close(Close { reason: CloseReason::Deleted }),
            Self::Begin {
                ref ids,
                node,
                owner,
                stored,
                isolate,
                response_only,
                ref delivered,
                fence: under,
            } => {
                let ids: Vec<RequestId> = ids.iter().map(|no| id(*no)).collect();
                let request = |(len, reassignable)| Request { text: "r".repeat(len).into(), reassignable };
                let requests = match stored {
                    Some(stored) => ids.iter().map(|_| Some(request(stored))).collect(),
                    None => Vec::new(),
                };
                Command::Begin(Begin {
                    owner: NodeId(owner),
                    requests,
                    duplicates: if isolate { Duplicates::Isolate } else { Duplicates::Reject },
                    response_only,
                    delivered: delivered.iter().map(|back| stream(*back)).collect(),
                    fence: fence(under),
                    ..Begin::local(NodeId(node), meta.next_stream, ids)
                })
            }
            Self::RetryBegin => Command::Begin(Begin { mode: BeginMode::Retry, ..model.last_begin()? }),
            Self::Append { of_call, class, len, fence: under } => {
                let payload = format!("{:.<len$}", meta.next_connection).into();
                Command::Append(Append { target: target(of_call), class, payload, fence: fence(under) })
            }
            Self::Finish { call: back, in_flight } => {
                let open = session.calls().keys().rev().cycle().nth(back as usize).filter(|_| in_flight);
                let call = open.copied().unwrap_or_else(|| call(back));
                Command::Finish(Finish { call, payload: format!("answer to {call}").into() })
            }
            Self::Cancel(no) => Command::Cancel(Cancel { id: id(no) }),
            Self::FailNode { node, successor } => {
                Command::FailNode(FailNode { node: NodeId(node), successor })
            }
            Self::OpenServerRequest { of_call, owner, fence: under } => {
                let rest = Bytes::from_static(br#""method":"ping"}"#);
                let (target, owner, fence) = (target(of_call), NodeId(owner), fence(under));
                Command::OpenServerRequest(OpenServerRequest { target, owner, rest, fence })
            }
            Self::Answer { server_request: back, node, len } => {
                let (server_request, attempt) = (server_request(back), model.answers);
                let message = format!("{attempt:.<len$}").into();
                Command::Answer(Answer { server_request, node: NodeId(node), attempt, message })
            }
            Self::RetryAnswer => Command::Answer(model.last_answer.clone()?),
            Self::Collect { node, ref server_requests } => {
                let server_requests = server_requests.iter().map(|back| server_request(*back)).collect();
                Command::Collect(Collect { node: NodeId(node), server_requests })
            }
            Self::Withdraw(back) => Command::Withdraw(Withdraw { server_request: server_request(back) }),
            Self::Start { call: back, node, idempotent, fence: under } => {
                let open = session.calls().keys().rev().cycle().nth(back as usize);
                let call = open.copied().unwrap_or_else(|| call(back));
                Command::Start(Start { call, node: NodeId(node), idempotent, fence: fence(under) })
            }
            Self::Forward { call: back, node, to, fence: under } => {
                let open = session.calls().keys().rev().cycle().nth(back as usize);
                let call = open.copied().unwrap_or_else(|| call(back));
                Command::Forward(Forward { call, node: NodeId(node), to: NodeId(to), fence: fence(under) })
            }
            Self::Release { node, key, is_current } => {
                let fence = fence(Some((key, is_current)))?;
                Command::Release(Release { node: NodeId(node), fence })
            }
            Self::Renotify(node) => Command::Renotify(Renotify { node: NodeId(node) }),
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
            Self::Put { key: no, is_current, value } => {
                let current = session.state().get(&key(no)).map(|value| value.version);
                let expected =
                    if is_current { current } else { Some(current.unwrap_or(0).saturating_sub(1)) };
                let value = value.map(|len| "x".repeat(len).into());
                Command::PutState(PutState { key: key(no), expected, value })
            }
            Self::Read(no) => Command::GetState(GetState { key: key(no) }),
            Self::Sweep => Command::Sweep(Sweep),
        })
    }
}
