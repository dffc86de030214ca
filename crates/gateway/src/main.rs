//! The `steadfast` command.
#![forbid(unsafe_code)]

mod admin;
mod cli;
mod config;
mod demo;
mod endpoints;
mod process;

use std::process::ExitCode;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let command = cli::Cli::parse().command;
    let logs = process::Logs::start();
    let result = match command {
        cli::Command::Serve(flags) => process::serve(&flags, &logs),
        cli::Command::Config(command) => command.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
