//! What a node holds in a session: calls, server requests, stored answers and connections.
//!
//! A node compares the answer with its own memory, and so finds calls and answers that it missed a
//! hint for.

use bytes::Bytes;
use steadfast_wire::RequestId;

use crate::ids::{CallNo, ConnNo, NodeId, ServerRequestNo, StreamNo, Time};
use crate::rows::{Call, Request};
use crate::session::Session;

/// What a node holds in a session, each list in the order of its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holdings {
    Held {
        calls: Vec<(CallNo, RequestId)>,
        /// Those of `calls` that were forwarded or reassigned to the node. It must run them, unless
        /// it already does.
        forwarded: Vec<ForwardedCall>,
        /// The server requests that the node waits for.
        server_requests: Vec<ServerRequestNo>,
        /// Answers to some of `server_requests`, which other nodes received.
        answers: Vec<(ServerRequestNo, Bytes)>,
        /// The connections that the node serves. Connections to finished streams are left out,
        /// because they do not keep the session attached.
        connections: Vec<(StreamNo, ConnNo)>,
        /// When the session lost its last connection, at any node. `None` while a connection is
        /// attached.
        detached_at: Option<Time>,
    },
    NoSession,
}

/// A call whose owner did not receive it itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardedCall {
    pub call: CallNo,
    pub id: RequestId,
    pub stream: StreamNo,
    /// The connection delivers only the answer.
    pub response_only: bool,
    /// The encoded request, see [`Request::text`].
    pub request: Bytes,
    /// Another node may execute the call if this node is gone, see [`Request::reassignable`].
    pub reassignable: bool,
}

impl ForwardedCall {
    fn of(no: CallNo, call: &Call) -> Option<Self> {
        let Request { text, reassignable } = call.request.as_deref().filter(|_| call.is_forwarded())?.clone();
        let Call { stream, response_only, .. } = *call;
        Some(Self { call: no, id: call.id.clone(), stream, response_only, request: text, reassignable })
    }
}

impl Session {
    /// Returns what `node` holds in this session.
    pub fn held_by(&self, node: NodeId) -> Holdings {
        if !self.is_open() {
            return Holdings::NoSession;
        }
        let calls = || self.calls.iter().filter(|(_, call)| call.owner == node);
        let server_requests =
            || self.server_requests.iter().filter(|(_, server_request)| server_request.owner == node);
        let open = self.streams.iter().filter(|(_, stream)| stream.is_open());
        let connections = open.filter_map(|(no, stream)| Some((*no, stream.attached?)));
        Holdings::Held {
            calls: calls().map(|(no, call)| (*no, call.id.clone())).collect(),
            forwarded: calls().filter_map(|(no, call)| ForwardedCall::of(*no, call)).collect(),
            server_requests: server_requests().map(|(no, _)| *no).collect(),
            answers: server_requests()
                .filter_map(|(no, server_request)| {
                    Some((*no, server_request.answer.as_ref()?.message.clone()))
                })
                .collect(),
            connections: connections
                .filter(|(_, (_, owner))| *owner == node)
                .map(|(stream, (connection, _))| (stream, connection))
                .collect(),
            detached_at: self.meta.detached_at,
        }
    }
}
