//! The reasons for which the engine refuses a request.

use steadfast_session::Limit;
use steadfast_store::StoreError;
use steadfast_wire::RequestId;

/// The reason for which the engine refused a request. A refused request has changed nothing, except
/// where a variant says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The session never existed, has ended, or belongs to another principal. The client cannot
    /// tell these cases apart, so that it learns nothing about sessions of other principals.
    #[error("no such session")]
    NoSession,
    /// The client used the id of a request that is in flight.
    #[error("a request with id {0} is in flight already")]
    Duplicate(RequestId),
    /// The client named an event that the server never sent on any stream of this session.
    #[error("no such event in this session")]
    UnknownEvent,
    /// The client resumed too late: the store no longer keeps the stream.
    #[error("the stream of that event is not kept any more")]
    Gone,
    /// The client answered a request that the server never sent, or that was answered before.
    #[error("no request of the server with that id waits for an answer")]
    UnknownServerRequest,
    /// The client did not answer a request of the server before its deadline.
    #[error("the client did not answer in time")]
    ServerRequestDeadline,
    /// The call or the session that needed the client's answer has ended. The engine notifies the
    /// client.
    #[error("the request to the client was withdrawn because its call or its session has ended")]
    ServerRequestWithdrawn,
    /// The client used the idempotency key of another request.
    #[error("the idempotency key belongs to another request")]
    KeyReused,
    /// The request would exceed this limit.
    #[error("the limit `{0}` is reached")]
    OverLimit(Limit),
    /// Another node has taken over the session or the call. The fencing token of this node is
    /// outdated.
    #[error("another process of the server serves this session now")]
    Fenced,
    /// The store does not answer whether another node was given the call. That node may run it.
    #[error("whether another process of the server runs this call is not known")]
    InDoubt,
    /// This node is shutting down.
    #[error("the server is shutting down")]
    Draining,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
