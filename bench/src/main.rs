//! `steadfast-bench`: servers to measure, a load generator, and benchmarks that measure several
//! servers in turn on the same cores and print the ratios.
#![forbid(unsafe_code)]

mod compare;
mod load;
mod serve;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// One allocator for every server, so that a ratio never measures the allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Error = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, Parser)]
#[command(name = "steadfast-bench", about = "Measures steadfast beside its peers.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a server that is measured.
    #[command(subcommand)]
    Serve(serve::Target),
    /// Call the tool `tiny` in a closed loop and report requests/s and latency.
    Load(load::Command),
    /// Measure several servers in turn and print their ratios.
    #[command(subcommand)]
    Compare(compare::Comparison),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Serve(target) => serve::run(target),
        Command::Load(command) => load::run_command(&command),
        Command::Compare(comparison) => compare::run(&comparison),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("steadfast-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
