//! One replica of the server behind the gateways. It keeps sessions in memory, so a kill loses
//! them. It records every call in a journal before it executes the call.
//!
//! The server uses the steadfast library, because it must follow the protocol even when connections
//! break. Otherwise a run would blame the gateway for violations of the server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use steadfast::Server;
use tokio::net::TcpListener;

mod handler;
mod journal;
mod tool_names;

use crate::clock::Clock;
use crate::failure::Failure;
use handler::Handler;
use journal::Journal;

pub(crate) use tool_names::Tool;

/// The retry delay for clients that resume a stream.
const RETRY: Duration = Duration::from_millis(100);
const KEEP_ALIVE: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[arg(long)]
    listen: SocketAddr,
    /// The file that records executed calls
    #[arg(long)]
    journal: PathBuf,
    /// The start of the run, in milliseconds since the Unix epoch
    #[arg(long)]
    since: u64,
    #[arg(long)]
    name: String,
}

pub(crate) async fn run(options: Options) -> Result<(), Failure> {
    let clock = Clock::since(options.since);
    let journal = Arc::new(Journal::open(&options.journal, clock)?);
    // The time distinguishes this process from the one before a restart.
    let process_name = format!("{}.{}", options.name, clock.now());
    let handler = move || Handler::new(&process_name, Arc::clone(&journal));
    let builder = Server::builder(handler).retry(RETRY).keep_alive(KEEP_ALIVE);
    let server = builder
        .start()
        .await
        .map_err(|error| Failure::NotStarted { what: options.name.clone(), why: error.to_string() })?;
    let listener = TcpListener::bind(options.listen).await?;
    Ok(axum::serve(listener, server.router("/mcp")).await?)
}
