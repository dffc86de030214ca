//! The benchmarks: each measures several servers in turn, on the same cores in one run.

mod gateway;
mod idle;
mod library;
mod measure;
mod mechanisms;
mod nodes;
mod peer;
mod replay;
mod report;
mod server_requests;
mod streams;

use clap::Subcommand;

use crate::Error;

#[derive(Debug, Subcommand)]
pub(crate) enum Comparison {
    /// Requests/s of an in-process handler behind each library's session layer.
    Library(library::Library),
    /// Requests/s through a proxy in front of a server.
    Gateway(gateway::Gateway),
    /// Mechanisms of our own, against the ordinary ones that they replace.
    Mechanisms(mechanisms::Mechanisms),
    /// The cost of shared sessions: gateways on a database, against one with sessions in memory.
    Nodes(nodes::Nodes),
    /// Memory of an attached idle stream in front of a server.
    Streams(streams::Streams),
    /// Server requests/s of one handler that sends many requests to its client at once.
    ServerRequests(server_requests::ServerRequests),
    /// Resident memory of an idle session.
    Idle(idle::Idle),
    /// Speed of replaying a long stream, and the cost of attaching at its start and at its end.
    Replay(replay::Replay),
}

pub(crate) fn run(comparison: &Comparison) -> Result<(), Error> {
    match comparison {
        Comparison::Library(options) => library::run(options),
        Comparison::Gateway(options) => gateway::run(options),
        Comparison::Mechanisms(options) => mechanisms::run(options),
        Comparison::Nodes(options) => nodes::run(options),
        Comparison::Streams(options) => streams::run(options),
        Comparison::ServerRequests(options) => server_requests::run(options),
        Comparison::Idle(options) => idle::run(options),
        Comparison::Replay(options) => replay::run(options),
    }
}
