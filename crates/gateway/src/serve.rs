//! `steadfast serve`.

use std::time::Duration;

use steadfast_http::listen;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::cli::Serve;
use crate::config::{self, Plan};
use crate::failure::Failure;
use crate::gateway::Gateway;
use crate::{banner, place, world};

pub(crate) fn run(arguments: &Serve) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::Runtime)?;
    let done = runtime.block_on(serve(arguments));
    // Handlers that ignore their cancellation must not keep the process alive.
    runtime.shutdown_timeout(Duration::from_secs(1));
    done
}

async fn serve(arguments: &Serve) -> Result<(), Failure> {
    let mut signals = listen::Signals::listen();
    let plan = plan(arguments)?;
    let url = match &plan.store {
        Some(store) => store.clone(),
        None => place::default_store()?,
    };
    let listeners = bind(&plan).await?;
    let store = url.open(plan.rules.clone(), plan.durability);
    let store = store.map_err(|error| Failure::Store { store: url.clone(), error })?;
    let gateway = Gateway::start(store, &plan).await.map_err(Failure::Endpoint)?;
    banner::print(&plan, &listeners, &url);
    let (stop, stopped) = watch::channel(false);
    let mut serving = tokio::task::JoinSet::new();
    for listener in listeners {
        let mut stopped = stopped.clone();
        // The other end goes with this function, which waits for the loops.
        let stop = async move { drop(stopped.wait_for(|stopped| *stopped).await) };
        serving.spawn(listen::serve(listener, gateway.mounts(), plan.listener.clone(), stop));
    }
    tokio::select! {
        () = signals.next() => {}
        Some(ended) = serving.join_next() => return finished(ended),
    }
    tracing::info!("stopping; asked once more, the process ends at once");
    signals.exit_when_asked_again();
    gateway.drain(plan.drain).await;
    let _ = stop.send(true);
    while let Some(ended) = serving.join_next().await {
        finished(ended)?;
    }
    tracing::info!("stopped");
    Ok(())
}

fn plan(arguments: &Serve) -> Result<Plan, Failure> {
    let flags = arguments.overrides().map_err(Failure::Quotes)?;
    let source = world::source(arguments.config.as_deref())?;
    config::load(&source, &flags, &world::world()).map_err(Failure::Config)
}

async fn bind(plan: &Plan) -> Result<Vec<TcpListener>, Failure> {
    let mut listeners = Vec::new();
    for address in plan.listen.iter().copied() {
        let taken = |error| Failure::Listen { address, error };
        listeners.push(TcpListener::bind(address).await.map_err(taken)?);
    }
    Ok(listeners)
}

fn finished(ended: Result<std::io::Result<()>, tokio::task::JoinError>) -> Result<(), Failure> {
    ended.unwrap_or_else(|panic| Err(std::io::Error::other(panic))).map_err(Failure::Serve)
}
