//! Commands about the session as a whole: record activity, close, expire.

use crate::ids::Time;
use crate::lifecycle_events::CloseReason;
use crate::limits::Limit;
use crate::session_eviction::LastUse;

/// Record that the client sent a message that is not a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touch;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touched {
    Touched,
    /// The activity was recorded, but the store is over this limit. The caller should refuse the
    /// message.
    OverLimit(Limit),
    NoSession,
}

/// Close the session. Each call in flight is answered with an error, and each open stream ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    pub reason: CloseReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    Closed,
    NoSession,
}

/// Close the session to make room for others, unless it is in use or was used since `seen`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evict {
    /// The last use of the session when it was chosen.
    pub seen: LastUse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evicted {
    Evicted,
    /// The session has a call, a connection, a server request or an answer that its client has not
    /// received; or it was used after it was chosen.
    InUse,
    NoSession,
}

/// Apply everything that depends on time: remove finished streams whose retention is over, and
/// close the session if it has expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swept {
    /// When to sweep next. `None` while only another command can change the session.
    Next(Option<Time>),
    /// The session was closed long enough ago: the store can delete it.
    Remove,
}
