//! What can be typed.

mod config;
mod serve;

use clap::{Parser, Subcommand};

pub(crate) use config::Config;
pub(crate) use serve::{Serve, UnbalancedQuotes};

/// MCP sessions that hold.
#[derive(Debug, Parser)]
#[command(name = "steadfast", version = env!("STEADFAST_VERSION"), about, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve MCP endpoints: in front of your servers, or the demo
    Serve(Box<Serve>),
    /// Look at configuration files
    #[command(subcommand)]
    Config(Config),
}
