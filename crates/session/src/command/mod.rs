//! The commands that change a session, and the outcomes of each command.
//!
//! Each command is a struct, and each outcome is an enum. [`Command`] and [`Outcome`] are the
//! unions of all of them. Every outcome enum has a variant `NoSession`, which means that the
//! session is closed or unknown.

mod call_owner;
mod calls;
mod connections;
mod server_requests;
mod state;
mod touch_close_sweep;

use std::sync::Arc;

use crate::ids::CallNo;

pub use call_owner::{
    FailNode, Forward, Forwarded, NodeFailed, Renotified, Renotify, Start, Started, Successor,
};
pub use calls::{
    Append, AppendOutcome, Begin, BeginMode, Begun, Cancel, Cancelled, Duplicates, Finish, Finished,
};
pub use connections::{Attach, Attached, Deliver, Delivered, Detach, Detached, Position};
pub use server_requests::{
    Answer, Answered, Collect, Collected, OpenServerRequest, ServerRequestOpened, Withdraw, Withdrawn,
};
pub use state::{GetState, PutState, Release, Released, StateGot, StatePut};
pub use touch_close_sweep::{Close, Closed, Evict, Evicted, Sweep, Swept, Touch, Touched};

/// A command together with the type of its outcome.
///
/// A store is called with a `Step`, so that the caller gets the outcome type that belongs to its
/// command.
pub trait Step: Sized {
    type Outcome;
    fn into_command(self) -> Command;
    /// Returns `None` if the outcome belongs to another command. No correct store returns such an
    /// outcome.
    fn outcome(outcome: Outcome) -> Option<Self::Outcome>;
}

macro_rules! commands {
    ($($name:ident => $outcome:ident),+ $(,)?) => {
        /// One atomic change of one session.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Command { $($name($name)),+ }

        /// The result of a [`Command`].
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Outcome { $($name($outcome)),+ }

        $(impl Step for $name {
            type Outcome = $outcome;
            fn into_command(self) -> Command { Command::$name(self) }
            fn outcome(outcome: Outcome) -> Option<$outcome> {
                match outcome { Outcome::$name(outcome) => Some(outcome), _ => None }
            }
        })+
    };
}

commands! {
    Touch => Touched,
    Close => Closed,
    Begin => Begun,
    Start => Started,
    Renotify => Renotified,
    Forward => Forwarded,
    Append => AppendOutcome,
    Finish => Finished,
    Cancel => Cancelled,
    FailNode => NodeFailed,
    OpenServerRequest => ServerRequestOpened,
    Answer => Answered,
    Collect => Collected,
    Withdraw => Withdrawn,
    Attach => Attached,
    Detach => Detached,
    Deliver => Delivered,
    PutState => StatePut,
    Release => Released,
    GetState => StateGot,
    Evict => Evicted,
    Sweep => Swept,
}

/// Proof that the sender of a command holds a lease.
///
/// A lease is an entry of the session state. The version of that entry is the fencing token. A
/// command with a fence takes effect only while the entry still has this version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    pub key: Arc<str>,
    pub version: u64,
}

/// Selects the stream that a message is appended to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The stream of this call. Once the call has ended, a standalone stream. Messages about a call
    /// that was revoked from its node ([`Meta::revoked_calls`](crate::Meta::revoked_calls)) are
    /// refused.
    Call(CallNo),
    /// The standalone stream with the newest connection. If none is connected, the first standalone
    /// stream.
    Standalone,
}
