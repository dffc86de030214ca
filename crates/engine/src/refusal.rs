//! Why the engine did not do what it was asked.

use steadfast_session::Limit;
use steadfast_store::StoreError;
use steadfast_wire::RequestId;

/// A request that changed nothing, and who is to blame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The client: it never opened this session, or the session has ended, or it is somebody else's. These are
    /// one answer on purpose.
    #[error("no such session")]
    NoSession,
    /// The client: a request with this id is in flight.
    #[error("a request with id {0} is in flight already")]
    Duplicate(RequestId),
    /// The client: it names an event that was never sent on any stream of this session.
    #[error("no such event in this session")]
    UnknownEvent,
    /// The client came too late: the stream is not kept any more.
    #[error("the stream of that event is not kept any more")]
    Gone,
    /// The client: nothing was asked under this id, or it has been answered.
    #[error("no request of the server with that id waits for an answer")]
    UnknownAsk,
    /// The client: it did not answer a request of the server in time.
    #[error("the client did not answer in time")]
    AskDeadline,
    /// Nobody: what the answer was for is over. The client is told.
    #[error("the request to the client was withdrawn because its call or its session has ended")]
    AskWithdrawn,
    /// Whoever sends too much.
    #[error("the limit `{0}` is reached")]
    OverLimit(Limit),
    /// Nobody: another process does what this one thought that it does.
    #[error("another process of the server serves this session now")]
    Fenced,
    /// Nobody: the store does not say whether another process was given the call.
    #[error("whether another process of the server runs this call is not known")]
    InDoubt,
    /// Nobody: this node is shutting down.
    #[error("the server is shutting down")]
    Draining,
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}
