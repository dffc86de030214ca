//! Comparisons: several servers, measured in turn on the same cores in one run.

mod asks;
mod gateway;
mod idle;
mod library;
mod measure;
mod nodes;
mod peer;
mod replay;
mod report;
mod streams;

use clap::Subcommand;

use crate::Error;

#[derive(Debug, Subcommand)]
pub(crate) enum Comparison {
    /// Requests/s of an in-process handler behind each library's session layer.
    Library(library::Library),
    /// Requests/s through what stands before a server.
    Gateway(gateway::Gateway),
    /// What it costs to share sessions: gateways on a database, against one that keeps its sessions in memory.
    Nodes(nodes::Nodes),
    /// Memory of an attached idle stream in front of a server.
    Streams(streams::Streams),
    /// Asks per second of one handler that asks its client very much at once.
    Asks(asks::Asks),
    /// Resident memory of an idle session.
    Idle(idle::Idle),
    /// Speed of replaying a long stream, and the cost of attaching at its start and at its end.
    Replay(replay::Replay),
}

pub(crate) fn run(comparison: &Comparison) -> Result<(), Error> {
    match comparison {
        Comparison::Library(options) => library::run(options),
        Comparison::Gateway(options) => gateway::run(options),
        Comparison::Nodes(options) => nodes::run(options),
        Comparison::Streams(options) => streams::run(options),
        Comparison::Asks(options) => asks::run(options),
        Comparison::Idle(options) => idle::run(options),
        Comparison::Replay(options) => replay::run(options),
    }
}
