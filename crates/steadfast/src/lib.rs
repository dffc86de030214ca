#![doc = include_str!("docs/manual.md")]
#![forbid(unsafe_code)]

mod adapter;
mod builder;
mod call;
mod capability_check;
mod input_requests;
mod request_state;
mod server;
mod session;
mod store_url;
mod tasks;

pub use builder::{Builder, StartError};
pub use call::Call;
pub use input_requests::{AcceptsInput, Answers, InputRequests};
pub use request_state::StateKey;
pub use server::Server;
pub use session::{Session, StateError};
pub use store_url::{Durability, StoreUrl, StoreUrlError};
pub use tasks::{TaskContext, TaskError, TaskOptions, Tasks};

pub use steadfast_engine::{
    Clock, CloseReason, Entropy, Facts, Limit, Limits, ManualClock, Principal, Refusal, Rules,
    ServerRequestOrder, SessionEvent, SessionEventKind, SessionId, SessionToken, SystemClock, SystemEntropy,
    Time, Timing,
};
pub use steadfast_http::{
    Denied, DuplicateIds, Endpoint, Hosts, Identified, Identify, Origins, Quirks, ResponseBody, ResponseMode,
};
pub use steadfast_store as store;
pub use steadfast_wire::{RequestId, Revision, Revisions};
