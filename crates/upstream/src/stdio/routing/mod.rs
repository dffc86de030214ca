//! Routing of messages between one process and the sessions and requests that share it.

pub(crate) mod outbox;
pub(crate) mod receive;
pub(crate) mod router;
#[cfg(test)]
mod router_tests;
