//! Placement: which server instance and which upstream sessions serve a client session.
//!
//! - The placement is stored in the session state ([`stored_placement`]). All nodes that serve a
//!   client session use the stored upstream sessions ([`sync`]).
//! - [`open`] opens upstream sessions. [`failover`] replaces those that the server has lost.
//! - One node at a time holds the [`lease`]: it receives what the server sends outside of calls. If
//!   that node dies, another node takes the lease ([`takeover`]).
//! - [`missed_events`] tells the client that notifications may have been lost. [`close`] ends
//!   upstream sessions whose client session has ended at another node.

pub(crate) mod close_unserved;
pub(crate) mod failover;
pub(crate) mod lease;
pub(crate) mod missed_events;
pub(crate) mod open;
pub(crate) mod retry_delays;
pub(crate) mod server_instance;
pub(crate) mod stored_placement;
pub(crate) mod sync;
pub(crate) mod takeover;
pub(crate) mod upstream_session;
