//! The client against a server built with the steadfast library, over real sockets that a test can
//! cut.

#[path = "../support/mod.rs"]
mod support;

mod against;
mod cutter;
mod handler;
mod host;
