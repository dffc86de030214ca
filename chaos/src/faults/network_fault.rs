//! Faults that a proxy causes on the connections of one link.

use std::time::Duration;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum NetworkFault {
    #[default]
    None,
    /// All bytes arrive later by this time.
    Delay(Duration),
    /// No bytes arrive. The bytes that were sent meanwhile arrive when the fault ends.
    Stall,
    /// All connections are reset, and new ones too.
    Reset,
    /// One direction of each connection is closed, and the other direction stays open.
    HalfClose(Direction),
    /// The connection ends in the middle of the bytes that the server sends.
    Truncate,
    /// Only a few bytes arrive at a time.
    Drip,
}

/// A direction of a connection. The client is the side that opened the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToServer,
    ToClient,
}

impl NetworkFault {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Delay(_) => "delay",
            Self::Stall => "stall",
            Self::Reset => "reset",
            Self::HalfClose(_) => "half-close",
            Self::Truncate => "truncate",
            Self::Drip => "drip",
        }
    }
}
