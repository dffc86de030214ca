//! One replica of the server behind the gateways, on the library. It forgets its sessions when it is killed, and writes down
//! everything that it does before it does it.
//!
//! It has to be a server that keeps the protocol when it is cut off: otherwise its faults would be taken for the gateway's.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use steadfast::Server;
use tokio::net::TcpListener;

mod handler;
mod journal;
mod tools;

use crate::clock::Clock;
use crate::failure::Failure;
use handler::Handler;
use journal::Journal;

pub(crate) use tools::Tool;

/// How long whoever comes back is told to wait.
const RETRY: Duration = Duration::from_millis(100);
const KEEP_ALIVE: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[arg(long)]
    listen: SocketAddr,
    /// Where to write down what was done
    #[arg(long)]
    journal: PathBuf,
    /// When the run began
    #[arg(long)]
    since: u64,
    #[arg(long)]
    name: String,
}

pub(crate) async fn run(options: Options) -> Result<(), Failure> {
    let clock = Clock::since(options.since);
    let journal = Arc::new(Journal::open(&options.journal, clock)?);
    // Sessions of one life are told from those of another.
    let life = format!("{}.{}", options.name, clock.now());
    let handler = move || Handler::new(&life, Arc::clone(&journal));
    let builder = Server::builder(handler).retry(RETRY).keep_alive(KEEP_ALIVE);
    let server = builder
        .start()
        .await
        .map_err(|error| Failure::NotStarted { what: options.name.clone(), why: error.to_string() })?;
    let listener = TcpListener::bind(options.listen).await?;
    Ok(axum::serve(listener, server.router("/mcp")).await?)
}
