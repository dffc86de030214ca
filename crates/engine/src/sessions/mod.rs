//! Sessions as this node sees them: opening and finding them, what this node does for each, and the
//! handle that backends use.

mod close;
mod eviction;
mod initialize_deadlines;
mod lifecycle_listener;
mod live;
mod lookup;
mod open;
mod registry;
mod session_handle;

pub use lifecycle_listener::{LifecycleListener, SessionEvent, SessionEventKind};
pub use live::LiveSession;
pub use open::OpenError;
pub use session_handle::{SessionHandle, SessionRef, StateError};

pub(crate) use initialize_deadlines::PendingInitialize;
pub(crate) use lifecycle_listener::LifecycleListeners;
pub(crate) use live::RunningCall;
pub(crate) use registry::{SeenBefore, SessionRegistry};
