//! Calls: the handle that an application holds, its observer, the call before it is sent, and the
//! table of calls in flight.

mod handle;
mod in_flight;
mod observer;
mod prepared_call;
mod spec;

pub use handle::{Call, CallEvent, CallOptions, Canceller};
pub(crate) use in_flight::InFlight;
pub use observer::CallObserver;
pub use prepared_call::PreparedCall;
pub(crate) use spec::CallSpec;
