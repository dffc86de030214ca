//! The `steadfast` command.
#![forbid(unsafe_code)]

mod admin;
mod banner;
mod cli;
mod config;
mod demo;
mod failure;
mod gateway;
mod inspect;
mod logs;
mod place;
mod reload;
mod serve;
mod world;

use std::process::ExitCode;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let command = cli::Cli::parse().command;
    let logs = logs::Logs::start();
    let done = match command {
        cli::Command::Serve(arguments) => serve::run(&arguments, &logs),
        cli::Command::Config(what) => inspect::run(&what),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
