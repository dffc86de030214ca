//! Commands of a connection that reads a stream: attach, report progress, detach.

use crate::ids::{ConnNo, NodeId, StreamNo};
use crate::limits::Limit;

/// Attach a connection to a stream. The connection that was attached before is superseded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attach {
    pub at: Position,
    pub node: NodeId,
}

/// Where a connection starts to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Directly after an event that the client names.
    After { stream: StreamNo, seq: u64 },
    /// At the first undelivered event of a standalone stream without a connection. A stream with
    /// undelivered events is preferred, then the first standalone stream, then a new one.
    Standalone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attached {
    Attached {
        stream: StreamNo,
        connection: ConnNo,
        /// The connection reads the events after this sequence number.
        after: u64,
    },
    /// This session never had such an event.
    UnknownEvent,
    /// The stream has finished and was removed.
    Gone,
    OverLimit(Limit),
    NoSession,
}

/// Record that a connection was lost or closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detach {
    pub stream: StreamNo,
    pub connection: ConnNo,
    /// The last event that was written to the connection.
    pub through: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detached {
    Detached,
    /// The connection is not attached: it was superseded or already detached.
    Stale,
    NoSession,
}

/// Record that all events up to `through` were written to a connection, which stays attached.
///
/// When the session runs out of space, it drops delivered events first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deliver {
    pub stream: StreamNo,
    pub connection: ConnNo,
    pub through: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    Delivered,
    /// The connection is not attached: it was superseded or already detached.
    Stale,
    NoSession,
}
