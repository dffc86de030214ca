//! Commands of the session state: compare-and-set, read, release a lease.

use bytes::Bytes;

use super::Fence;
use crate::ids::NodeId;
use crate::limits::Limit;
use crate::rows::StateEntry;

/// Write or delete one entry of the session state, if it still has the expected version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutState {
    pub key: Box<str>,
    /// The version that the entry must have. `None` means that there must be no entry.
    pub expected: Option<u64>,
    /// The new value. `None` deletes the entry.
    pub value: Option<Bytes>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatePut {
    /// The new version of the entry, or `None` after a deletion.
    Put {
        version: Option<u64>,
    },
    /// The entry does not have the expected version. `current` is the entry as it is.
    Conflict {
        current: Option<StateEntry>,
    },
    OverLimit(Limit),
    NoSession,
}

/// Release a lease: delete its entry, unless the holder has calls that it runs or may run.
///
/// Forwarded calls that are still reassignable do not count: the next holder can run them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    pub node: NodeId,
    pub fence: Fence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    Released,
    /// The holder still has calls.
    Busy,
    /// The fence is outdated: the lease has changed hands.
    Fenced,
    NoSession,
}

/// Read one entry of the session state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetState {
    pub key: Box<str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateGot {
    /// The entry of an open session.
    SessionOpen(Option<StateEntry>),
    /// The entry that a closed session has left. The node that releases the session's resources
    /// reads it.
    SessionClosed(Option<StateEntry>),
    NoSession,
}
