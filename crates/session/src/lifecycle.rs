//! What happens to a session as a whole.

use std::fmt;

/// A step in a session's life. Each is reported exactly once, by the command that caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    Opened,
    /// Its last connection broke. It waits for the grace time.
    Detached,
    /// Somebody attached again within the grace time.
    Reattached,
    Closed(CloseReason),
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CloseReason {
    /// The client sent DELETE.
    Deleted,
    /// Its connection broke and nobody came back within the grace time.
    GraceExpired,
    /// Nothing happened for the idle time.
    IdleExpired,
    /// The server ended it.
    ServerEnded,
}

impl CloseReason {
    pub const ALL: [Self; 4] = [Self::Deleted, Self::GraceExpired, Self::IdleExpired, Self::ServerEnded];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::GraceExpired => "grace_expired",
            Self::IdleExpired => "idle_expired",
            Self::ServerEnded => "server_ended",
        }
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
