//! The servers that are measured. Each prints its address as its first line and runs until it is
//! killed.

mod accept;
pub(crate) mod assembled;
mod fast;
mod fill;
pub(crate) mod nginx;
pub(crate) mod proxy;
mod tiny;

use std::io::Write as _;
use std::sync::Arc;

use clap::{Args, Subcommand};
use rmcp::transport::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use tokio::net::TcpListener;

use crate::Error;
use fill::Fill;
use tiny::Tiny;

#[derive(Debug, Subcommand)]
pub(crate) enum Target {
    /// rmcp's StreamableHttpService with its LocalSessionManager and default settings.
    Rmcp(Common),
    /// steadfast with default settings, except for the store.
    Steadfast {
        #[command(flatten)]
        common: Common,
        /// The session store.
        #[arg(long, default_value = "memory:")]
        store: steadfast::StoreUrl,
        /// Declare that the handler sends nothing but responses.
        #[arg(long)]
        silent: bool,
    },
    /// steadfast with a tool that fills the stream of its call, and with room for long streams.
    Replay {
        #[command(flatten)]
        common: Common,
        /// The session store.
        #[arg(long, default_value = "memory:")]
        store: steadfast::StoreUrl,
    },
    /// An upstream server that takes almost no time.
    Fast {
        /// Address to listen on; port 0 means any free port.
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: String,
    },
    /// The parts of a gateway in front of an upstream server.
    Assembled(assembled::Assembled),
    /// A client that waits for silent responses.
    Waiting(assembled::Waiting),
    /// A proxy in front of an upstream server.
    #[command(subcommand)]
    Proxy(proxy::Proxy),
    /// nginx with a constant response to every request: the maximum that the cores allow.
    Nginx,
}

#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Address to listen on; port 0 means any free port.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: String,
    /// Worker threads of the runtime.
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

pub(crate) fn run(target: Target) -> Result<(), Error> {
    match target {
        Target::Rmcp(common) => on_runtime(&common, async |listener| {
            let sessions = Arc::new(LocalSessionManager::default());
            accept::serve(listener, StreamableHttpService::new(|| Ok(Tiny), sessions, Default::default()))
                .await
        }),
        Target::Steadfast { common, store, silent } => on_runtime(&common, async |listener| {
            // Server requests in flight: rmcp has no limit for them.
            let limits = steadfast::Limits { server_requests: 100_000, ..steadfast::Limits::default() };
            let builder = steadfast::Server::builder(|| Tiny).store(store).limits(limits);
            let server = if silent { builder.silent_handler() } else { builder }.start().await?;
            accept::serve(listener, server.service()).await;
            Ok(())
        })?,
        Target::Replay { common, store } => on_runtime(&common, async |listener| {
            let server = steadfast::Server::builder(|| Fill)
                .limits(fill::limits())
                .timing(fill::timing())
                .store(store)
                .start()
                .await?;
            accept::serve(listener, server.service()).await;
            Ok(())
        })?,
        Target::Fast { listen } => {
            let common = Common { listen, threads: 1 };
            on_runtime(&common, async |listener| fast::serve(listener).await)
        }
        Target::Assembled(options) => assembled::serve(&options),
        Target::Waiting(options) => assembled::wait(&options),
        Target::Proxy(proxy) => proxy::exec(&proxy),
        Target::Nginx => nginx::exec(),
    }
}

/// Binds, prints the address and runs `serve` on a new runtime.
fn on_runtime<T>(common: &Common, serve: impl AsyncFnOnce(TcpListener) -> T) -> Result<T, Error> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(common.threads).enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(&common.listen).await?;
        announce(listener.local_addr()?)?;
        Ok(serve(listener).await)
    })
}

/// Prints the line that the parent process waits for.
fn announce(address: std::net::SocketAddr) -> std::io::Result<()> {
    announce_at(address, "/mcp")
}

fn announce_at(address: std::net::SocketAddr, path: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "listening on http://{address}{path}")?;
    stdout.flush()
}
