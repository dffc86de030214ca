//! What a node holds of a session: the node compares it with what it knows of.

use bytes::Bytes;
use steadfast_wire::RequestId;

use crate::ids::{AskNo, CallNo, ConnNo, NodeId, StreamNo};
use crate::session::Session;
use crate::tables::{Call, Request};

/// What a node holds of a session, in the order of the numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holdings {
    Held {
        calls: Vec<(CallNo, RequestId)>,
        /// Those of these calls that others have given to the node. It has to run them unless it does already.
        errands: Vec<Errand>,
        asks: Vec<AskNo>,
        /// The answers to some of these asks, which came to other nodes.
        answers: Vec<(AskNo, Bytes)>,
        /// To open streams: a connection to one that has ended keeps nobody busy.
        connections: Vec<(StreamNo, ConnNo)>,
    },
    NoSession,
}

/// A call that did not come to the node that runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errand {
    pub call: CallNo,
    pub id: RequestId,
    pub stream: StreamNo,
    pub answer_only: bool,
    /// The text of what it asks for.
    pub request: Bytes,
    /// If the node goes, another one may do it.
    pub again: bool,
}

impl Errand {
    fn of(no: CallNo, call: &Call) -> Option<Self> {
        let Request { text, again } = call.request.as_deref().filter(|_| call.is_errand())?.clone();
        let Call { stream, answer_only, .. } = *call;
        Some(Self { call: no, id: call.id.clone(), stream, answer_only, request: text, again })
    }
}

impl Session {
    pub fn held_by(&self, node: NodeId) -> Holdings {
        if !self.is_open() {
            return Holdings::NoSession;
        }
        let calls = || self.calls.iter().filter(|(_, call)| call.owner == node);
        let asks = || self.asks.iter().filter(|(_, ask)| ask.owner == node);
        let open = self.streams.iter().filter(|(_, stream)| stream.is_open());
        let connections = open.filter_map(|(no, stream)| Some((*no, stream.attached?)));
        Holdings::Held {
            calls: calls().map(|(no, call)| (*no, call.id.clone())).collect(),
            errands: calls().filter_map(|(no, call)| Errand::of(*no, call)).collect(),
            asks: asks().map(|(no, _)| *no).collect(),
            answers: asks()
                .filter_map(|(no, ask)| Some((*no, ask.answer.as_ref()?.message.clone())))
                .collect(),
            connections: connections
                .filter(|(_, (_, owner))| *owner == node)
                .map(|(stream, (connection, _))| (stream, connection))
                .collect(),
        }
    }
}
