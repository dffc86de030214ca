//! Real processes, real faults, and clients that write down what they see: `cargo xtask chaos` runs it.
//!
//! Gateways behind nginx, a store, replicas of a server; a nemesis that kills, freezes and restarts them, and proxies between
//! all of them that do to connections whatever networks do. What clients and servers saw is judged by `steadfast-verify`.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod client;
mod clock;
mod failure;
mod nemesis;
mod plan;
mod ports;
mod proxy;
mod recorder;
mod report;
mod rng;
mod run;
mod server;
mod soak;
mod tickets;
mod watch;
mod weather;
mod world;

#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start everything, break it, and judge what was seen
    Run(run::Options),
    /// Start everything, and have clients of others' making work while gateways are restarted
    Soak(soak::Options),
    /// Judge a history that was kept
    Judge { history: PathBuf },
    /// Be one replica of the server behind the gateways
    Server(server::Options),
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(options) => run::run(options).await,
        Command::Soak(options) => soak::run(options).await,
        Command::Judge { history } => run::judge_file(&history),
        Command::Server(options) => server::run(options).await.map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|failure| {
        report::complain(&failure);
        ExitCode::from(3)
    })
}
