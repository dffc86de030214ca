//! What networks do to connections.

use std::time::Duration;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Weather {
    #[default]
    Calm,
    /// Everything comes later.
    Delay(Duration),
    /// Nothing comes; what was sent meanwhile comes when it is over.
    Stall,
    /// Connections are reset, and new ones as well.
    Reset,
    /// One direction of each connection is closed while the other goes on.
    HalfClose(Way),
    /// What the server sends ends somewhere in the middle, and then the connection does.
    Truncate,
    /// A few bytes at a time.
    Drip,
}

/// From whoever connects, or to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Up,
    Down,
}

impl Weather {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::Delay(_) => "delay",
            Self::Stall => "stall",
            Self::Reset => "reset",
            Self::HalfClose(_) => "half-close",
            Self::Truncate => "truncate",
            Self::Drip => "drip",
        }
    }
}
