//! Drives sessions: runs calls, feeds streams, wakes readers, and does what time demands.
//!
//! The engine owns no session. It knows which calls run *here* and which connections are served *here*; all
//! else is in the store, and every change of a session is a command that the store applies. Only this crate
//! spawns tasks.
#![forbid(unsafe_code)]

mod admission;
mod asks;
pub mod backend;
mod begin;
mod calls;
mod census;
mod changes;
pub mod clock;
mod cursor;
mod drain;
mod engine;
pub mod entropy;
mod errands;
mod exchange;
mod handle;
mod jobs;
pub mod listener;
mod live;
mod looks;
mod notes;
mod openings;
pub mod options;
mod reconcile;
mod records;
pub mod refusal;
mod reminders;
mod rota;
mod sessions;
mod signals;
mod stateless;
mod sweeper;
mod tail;
mod tasks;

pub use asks::AskHandle;
pub use backend::{Backend, Denial, Incoming, Route, Routing, Unwelcome, Welcome};
pub use calls::{BegunCall, CallHandle, Unfinished};
pub use changes::{Change, ChangeFilter};
pub use clock::{Clock, ManualClock, SystemClock};
pub use cursor::{Cursor, CursorStatus, Event};
pub use engine::{Engine, OpenError, Posted};
pub use entropy::{Entropy, SystemEntropy};
pub use exchange::{Answer, Replies, Reply};
pub use handle::{SessionHandle, SessionRef, StateError};
pub use jobs::{JobStatus, StartedJob};
pub use listener::{SessionEvent, SessionEventKind};
pub use live::LiveSession;
pub use options::{AskOrder, Options};
pub use records::PrincipalRecord;
pub use refusal::Refusal;
pub use stateless::{ExchangeHandle, ExchangeObserver};

pub use bytes::Bytes;
pub use steadfast_session::command::{Duplicates, Fence};
pub use steadfast_session::{
    CallNo, Class, CloseReason, Facts, Limit, Limits, NodeId, Principal, Rules, SessionId, SessionToken,
    StreamNo, Time, Timing, Value,
};
