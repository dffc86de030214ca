//! `steadfast serve`.

use std::time::Duration;

use steadfast::{Hosts, Origins, Server};
use steadfast_http::listen;
use tokio::net::TcpListener;

use crate::cli::Serve;
use crate::demo::Demo;
use crate::failure::Failure;
use crate::{banner, place};

/// The path of the endpoint.
const PATH: &str = "/mcp";

pub(crate) fn run(arguments: Serve) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::Runtime)?;
    let done = runtime.block_on(serve(arguments));
    // Handlers that ignore their cancellation must not keep the process alive.
    runtime.shutdown_timeout(Duration::from_secs(1));
    done
}

async fn serve(arguments: Serve) -> Result<(), Failure> {
    let mut signals = listen::Signals::listen();
    let store = match arguments.store {
        Some(store) => store,
        None => place::default_store()?,
    };
    let address = arguments.listen;
    let taken = |error| Failure::Listen { address, error };
    let listener = TcpListener::bind(address).await.map_err(taken)?;
    let url = format!("http://{}{PATH}", listener.local_addr().map_err(taken)?);
    let server = Server::builder(Demo::default)
        .store(store.clone())
        .durability(arguments.durability.into())
        .hosts(hosts(arguments.allow_hosts))
        .origins(origins(arguments.allow_origins))
        .start()
        .await
        .map_err(|error| Failure::Store { store: store.clone(), error })?;
    banner::print(&url, &store);
    tracing::info!(%url, %store, "serving");
    let drained = async {
        signals.next().await;
        tracing::info!("stopping; asked once more, the process ends at once");
        signals.exit_when_asked_again();
        server.drain(arguments.drain).await;
    };
    let service = listen::OnlyAt::new(PATH, server.service());
    listen::serve(listener, service, listen::Limits::default(), drained).await.map_err(Failure::Serve)?;
    tracing::info!("stopped");
    Ok(())
}

/// Loopback names stay allowed: the machine's own tools use them.
fn hosts(names: Vec<String>) -> Hosts {
    if names.is_empty() { Hosts::Loopback } else { Hosts::LoopbackAnd(names) }
}

fn origins(list: Vec<String>) -> Origins {
    if list.is_empty() { Origins::Loopback } else { Origins::LoopbackAnd(list) }
}
