#![doc = include_str!("docs/manual.md")]
#![forbid(unsafe_code)]

mod adapter;
mod builder;
mod call;
mod declared;
mod questions;
mod seal;
mod server;
mod session;
mod store_url;
mod tasks;

pub use builder::{Builder, StartError};
pub use call::Call;
pub use questions::{Answers, Questions, Repeatable};
pub use seal::StateKey;
pub use server::Server;
pub use session::{Session, StateError};
pub use store_url::{Durability, StoreUrl, StoreUrlError};
pub use tasks::{TaskContext, TaskError, TaskOptions, Tasks};

pub use steadfast_engine::{
    AskOrder, Clock, CloseReason, Duplicates, Entropy, Facts, Limit, Limits, ManualClock, Principal, Refusal,
    Rules, SessionEvent, SessionEventKind, SessionId, SessionToken, SystemClock, SystemEntropy, Time, Timing,
};
pub use steadfast_http::{
    Denied, Endpoint, Hosts, Identified, Identify, Origins, ResponseBody, ResponseMode,
};
pub use steadfast_store as store;
pub use steadfast_wire::{RequestId, Revision};
