//! The `steadfast` command.
#![forbid(unsafe_code)]

mod banner;
mod cli;
mod demo;
mod failure;
mod logs;
mod place;
mod serve;

use std::process::ExitCode;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let command = cli::Cli::parse().command;
    logs::start();
    let done = match command {
        cli::Command::Serve(arguments) => serve::run(arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
