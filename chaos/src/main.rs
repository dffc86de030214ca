//! Tests a deployment of gateways with real processes and real faults. `cargo xtask chaos` starts
//! this program.
//!
//! A run starts a store, replicas of a server, and gateways behind nginx. The nemesis, which
//! injects faults, kills, freezes and restarts them, and proxies between them break connections.
//! Clients and servers record what they see, and `steadfast-verify` checks the promises against
//! that history.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod bugs;
mod call_schedule;
mod client;
mod clock;
mod deployment;
mod failure;
mod faults;
mod ports;
mod progress_line;
mod recorder;
mod report;
mod rng;
mod run;
mod sdk_soak;
mod server;

/// The exit code if a run could not be carried out. 1 means a violated promise, and clap uses 2.
const COULD_NOT_RUN: u8 = 3;

#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a deployment, cause faults, and check every promise
    #[command(args_override_self = true)]
    Run(run::Options),
    /// Start a deployment, and restart gateways while other programs use it as clients
    Soak(sdk_soak::Options),
    /// Test the checkers with gateways that have bugs: the patches in `chaos/bugs`
    Bugs(bugs::Options),
    /// Check a history that an earlier run has saved
    Judge { history: PathBuf },
    /// Run one replica of the server behind the gateways
    Server(server::Options),
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(options) => run::run(options).await,
        Command::Soak(options) => sdk_soak::run(options).await,
        Command::Bugs(options) => bugs::run(&options),
        Command::Judge { history } => run::judge_file(&history),
        Command::Server(options) => server::run(options).await.map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|failure| {
        report::print_failure(&failure);
        ExitCode::from(COULD_NOT_RUN)
    })
}
