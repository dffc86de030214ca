//! The client against rmcp's server, which supports revisions with and without sessions at one
//! address.

#[path = "../support/mod.rs"]
mod support;

mod against;
mod server;
