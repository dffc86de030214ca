//! One client session at this node: its lanes, its calls in flight, and what the gateway must tell
//! the server again after a failover.

pub(crate) mod callbacks;
pub(crate) mod client_session;
pub(crate) mod in_flight;
pub(crate) mod json_state;
pub(crate) mod lane;
pub(crate) mod rebinding;
pub(crate) mod registry;
pub(crate) mod replay_state;
pub(crate) mod server_messages;
