//! The lifecycle events of a session, and the reasons why a session closes.

use std::fmt;

/// A lifecycle event. The command that causes it reports it exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    Opened,
    /// The last connection was lost. The session closes after the grace time unless a client
    /// reattaches.
    Detached,
    /// A client attached a connection within the grace time.
    Reattached,
    Closed(CloseReason),
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CloseReason {
    /// The client sent DELETE.
    Deleted,
    /// The last connection was lost, and no client reattached within the grace time.
    GraceExpired,
    /// The session had no activity for the idle time.
    IdleExpired,
    /// The server ended it.
    ServerEnded,
    /// The store reached a limit, and the session was chosen to make room.
    Evicted,
}

impl CloseReason {
    pub const ALL: [Self; 5] =
        [Self::Deleted, Self::GraceExpired, Self::IdleExpired, Self::ServerEnded, Self::Evicted];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::GraceExpired => "grace_expired",
            Self::IdleExpired => "idle_expired",
            Self::ServerEnded => "server_ended",
            Self::Evicted => "evicted",
        }
    }

    /// Parses the result of [`CloseReason::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
