//! What can be typed.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use steadfast::{Durability, StoreUrl};

/// MCP sessions that hold.
#[derive(Debug, Parser)]
#[command(name = "steadfast", version, about, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve an MCP endpoint
    Serve(Serve),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  steadfast serve --demo                          try it; sessions are kept in a file of yours
  steadfast serve --demo --store memory:          nothing is written anywhere
  steadfast serve --demo --listen 127.0.0.1:0     any free port; the URL is printed

Logs go to stderr; RUST_LOG=debug shows more.")]
pub(crate) struct Serve {
    /// Serve the built-in demo server
    #[arg(long, required = true)]
    pub(crate) demo: bool,

    /// Where to listen
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7411")]
    pub(crate) listen: SocketAddr,

    /// Where sessions are kept: `memory:` or `sqlite:PATH` [default: a file in your data folder]
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<StoreUrl>,

    /// What an acknowledged step survives
    #[arg(long, value_enum, default_value_t = DurabilityArg::Process)]
    pub(crate) durability: DurabilityArg,

    /// Host names to answer to, besides loopback names (repeatable)
    #[arg(long = "allow-host", value_name = "NAME")]
    pub(crate) allow_hosts: Vec<String>,

    /// Web pages to serve, besides those on this machine, like https://app.example.com (repeatable)
    #[arg(long = "allow-origin", value_name = "ORIGIN")]
    pub(crate) allow_origins: Vec<String>,

    /// How long running calls may take to finish after SIGTERM, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub(crate) drain: Duration,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum DurabilityArg {
    /// The end of the process, however it comes
    Process,
    /// A power cut as well, at the price of a disk flush for each group of steps
    Power,
}

impl From<DurabilityArg> for Durability {
    fn from(argument: DurabilityArg) -> Self {
        match argument {
            DurabilityArg::Process => Self::Process,
            DurabilityArg::Power => Self::Power,
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "write a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}
