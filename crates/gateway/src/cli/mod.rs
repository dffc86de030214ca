//! The command line.

mod config_command;
mod serve_flags;

use clap::{Parser, Subcommand};

pub(crate) use config_command::ConfigCommand;
#[cfg(test)]
pub(crate) use config_command::{EXAMPLE, FULL_EXAMPLE};
pub(crate) use serve_flags::{ServeFlags, UnbalancedQuotes};

/// An MCP gateway whose sessions survive broken connections, restarts and failures
#[derive(Debug, Parser)]
#[command(name = "steadfast", version = env!("STEADFAST_VERSION"), arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve MCP endpoints in front of your servers, or the demo server
    Serve(Box<ServeFlags>),
    /// Check configuration files, or print an example
    #[command(subcommand)]
    Config(ConfigCommand),
}
