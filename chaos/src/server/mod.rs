//! One replica of the server behind the gateways, on rmcp. It forgets its sessions when it is killed, and writes down
//! everything that it does before it does it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rmcp::transport::StreamableHttpService;
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
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
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.sse_retry = Some(RETRY);
    let mut config = StreamableHttpServerConfig::default();
    config.sse_retry = Some(RETRY);
    let handler = move || Ok(Handler::new(&life, Arc::clone(&journal)));
    let service = StreamableHttpService::new(handler, Arc::new(sessions), config);
    let listener = TcpListener::bind(options.listen).await?;
    Ok(axum::serve(listener, axum::Router::new().route_service("/mcp", service)).await?)
}
