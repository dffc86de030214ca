//! The process of `steadfast serve`: start, reload, signals and shutdown.

mod banner;
pub(crate) mod config_inputs;
mod config_watcher;
mod default_store;
mod failure;
mod logs;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use steadfast_http::listen::tls::Tls;
use steadfast_http::listen::{self, Plain, Signals, Workers, serve_with};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::admin::{Admin, Metrics, Reload};
use crate::cli::ServeFlags;
use crate::config::{self, Plan};
use crate::endpoints::{Changes, Endpoints, IdentityChange, SessionsFound};
use config_watcher::ConfigWatcher;

pub(crate) use failure::Failure;
pub(crate) use logs::Logs;

/// Connections of the admin listener. Only operators and their tools use it.
const ADMIN_CONNECTIONS: usize = 256;

/// How long after `shutdown.delay` a request is still served. Idle connections are closed when the
/// delay is over, and a request may arrive at that moment.
const LATE_REQUESTS: Duration = Duration::from_millis(50);

/// How long the runtime waits for tasks at the end. Handlers that ignore their cancellation must
/// not keep the process alive.
const RUNTIME_SHUTDOWN: Duration = Duration::from_secs(1);

/// Runs `steadfast serve` until a signal or a failure ends it.
pub(crate) fn serve(flags: &ServeFlags, logs: &Logs) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::Runtime)?;
    let result = runtime.block_on(run(flags, logs));
    runtime.shutdown_timeout(RUNTIME_SHUTDOWN);
    result
}

async fn run(flags: &ServeFlags, logs: &Logs) -> Result<(), Failure> {
    let mut signals = Signals::listen();
    let overrides = flags.overrides().map_err(Failure::Quotes)?;
    let mut watcher = flags.config.clone().map(|file| ConfigWatcher::new(file, overrides.clone()));
    let plan = match &mut watcher {
        Some(watcher) => watcher.read()?,
        None => {
            let source = config_inputs::read_source(None)?;
            config::load(&source, &overrides, &config_inputs::environment()).map_err(Failure::Config)?
        }
    };
    logs.set_filter(&plan.log);
    config_watcher::log_warnings(&plan);
    // The start may wait for DNS and for the store. A signal ends it at once.
    let mut process = tokio::select! {
        () = signals.next() => return Ok(()),
        started = Process::start(plan, logs) => started?,
    };
    loop {
        tokio::select! {
            () = signals.next() => break,
            ended = process.listener_ended() => return ended,
            () = changed(&mut watcher) => {}
        }
        tokio::select! {
            () = signals.next() => break,
            () = process.reload(watcher.as_mut()) => {}
        }
    }
    tracing::info!("shutting down; send the signal again to exit immediately");
    signals.exit_on_next();
    process.shut_down().await
}

/// Waits until the configuration should be read again. Never returns without a file.
async fn changed(watcher: &mut Option<ConfigWatcher>) {
    match watcher {
        Some(watcher) => watcher.changed().await,
        None => std::future::pending().await,
    }
}

/// The endpoints with their listeners.
struct Process<'a> {
    plan: Plan,
    logs: &'a Logs,
    endpoints: Endpoints,
    metrics: Option<Arc<Metrics>>,
    tls: Option<Tls>,
    listeners: JoinSet<std::io::Result<()>>,
    stage: watch::Sender<Stage>,
    /// Calls run on these threads, so they must outlive the drain.
    workers: Workers,
}

/// The stages of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Serving,
    /// No new connections are accepted.
    Closed,
    /// Connections are closed.
    Stopped,
}

impl<'a> Process<'a> {
    async fn start(plan: Plan, logs: &'a Logs) -> Result<Self, Failure> {
        let url = match &plan.store {
            Some(store) => {
                default_store::warn_if_public(store);
                store.clone()
            }
            None => default_store::default_store()?,
        };
        let mut sockets = Vec::new();
        for address in &plan.listen {
            sockets.push(bind(*address).await?);
        }
        let admin = match plan.admin {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let store = url.open(plan.rules.clone(), plan.durability);
        let store = store.map_err(|error| Failure::Store { store: url.clone(), error })?;
        let metrics = admin.is_some().then(Metrics::new);
        let endpoints = Endpoints::start(store, &plan, metrics.clone()).await.map_err(Failure::Endpoint)?;
        banner::print(&plan, &sockets, admin.as_ref(), &url);
        let (stage, _) = watch::channel(Stage::Serving);
        let tls = plan.tls.as_ref().map(|tls| Tls::new(tls.identity.clone()));
        let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let workers = Workers::start(threads).map_err(Failure::Runtime)?;
        let listeners = JoinSet::new();
        let mut process = Self { plan, logs, endpoints, metrics, tls, listeners, stage, workers };
        sockets.into_iter().for_each(|socket| process.listen(socket));
        if let (Some(socket), Some(metrics)) = (admin, process.metrics.clone()) {
            let admin = Admin::new(metrics, Arc::clone(process.endpoints.status()));
            let limits = listen::Limits { connections: ADMIN_CONNECTIONS, ..listen::Limits::default() };
            // The admin listener answers until the process exits, so that operators can watch the
            // shutdown.
            tokio::spawn(listen::serve(socket, admin, limits, std::future::pending()));
        }
        Ok(process)
    }

    fn listen(&mut self, socket: TcpListener) {
        let reached = |stage| {
            let mut current = self.stage.subscribe();
            // An error means that the sender is gone, and then this listener is no longer awaited.
            async move { drop(current.wait_for(|current| *current >= stage).await) }
        };
        let (closed, stopped) = (reached(Stage::Closed), reached(Stage::Stopped));
        let (router, limits) = (self.endpoints.router(), self.plan.listener.clone());
        let (workers, tls) = (self.workers.clone(), self.tls.clone());
        self.listeners.spawn(async move {
            match tls {
                Some(tls) => serve_with(&workers, tls, socket, router, limits, closed, stopped).await,
                None => serve_with(&workers, Plain, socket, router, limits, closed, stopped).await,
            }
        });
    }

    /// Waits until a listener ends. Before a shutdown that is a failure.
    async fn listener_ended(&mut self) -> Result<(), Failure> {
        match self.listeners.join_next().await {
            Some(ended) => listener_result(ended),
            None => std::future::pending().await,
        }
    }

    async fn reload(&mut self, watcher: Option<&mut ConfigWatcher>) {
        let Some(watcher) = watcher else { return };
        let result = match watcher.read() {
            Ok(plan) => self.apply(plan).await,
            Err(failure) => Err(failure),
        };
        if let Err(failure) = &result {
            config_watcher::log_failed_reload(failure);
        }
        if let Some(metrics) = &self.metrics {
            let outcome = if result.is_ok() { "applied" } else { "refused" };
            metrics.reloads.get_or_create(&Reload { outcome }).inc();
        }
    }

    async fn apply(&mut self, plan: Plan) -> Result<(), Failure> {
        let changes = self.endpoints.reload(&self.plan, &plan).await.map_err(Failure::Endpoint)?;
        self.logs.set_filter(&plan.log);
        if let (Some(tls), Some(new)) = (&self.tls, &plan.tls) {
            tls.replace(new.identity.clone());
        }
        config_watcher::log_warnings(&plan);
        log_changes(changes);
        let running = std::mem::replace(&mut self.plan, plan);
        self.plan.keep_fixed(running);
        Ok(())
    }

    async fn shut_down(mut self) -> Result<(), Failure> {
        self.endpoints.announce_shutdown();
        self.stage.send_replace(Stage::Closed);
        // A client may be about to reuse a connection. That request is served, and its response
        // closes the connection.
        let delay = self.plan.listener.drain_delay + LATE_REQUESTS;
        if let Ok(result) = tokio::time::timeout(delay, all_ended(&mut self.listeners)).await {
            result?;
        }
        self.endpoints.drain(self.plan.drain).await;
        self.stage.send_replace(Stage::Stopped);
        all_ended(&mut self.listeners).await?;
        tracing::info!("stopped");
        Ok(())
    }
}

fn log_changes(changes: Changes) {
    let Changes { added, removed, changed, needs_restart, identities } = changes;
    tracing::info!(?added, ?removed, ?changed, "configuration reloaded");
    for key in needs_restart {
        tracing::warn!(key, "the new value needs a restart");
    }
    for IdentityChange { path, sessions, configured, found } in identities {
        let what = match found {
            SessionsFound::NoMore => {
                "the endpoint has a new identity and no longer finds its sessions; to keep them, set `id` to `sessions_id`"
            }
            SessionsFound::UntilRestart => {
                "some replicas of the endpoint have changed; to find its sessions after a restart, set `id` to `sessions_id`"
            }
        };
        tracing::warn!(%path, sessions_id = %sessions, configured_id = %configured, "{what}");
    }
}

async fn all_ended(listeners: &mut JoinSet<std::io::Result<()>>) -> Result<(), Failure> {
    while let Some(ended) = listeners.join_next().await {
        listener_result(ended)?;
    }
    Ok(())
}

async fn bind(address: std::net::SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| Failure::Listen { address, error })
}

fn listener_result(ended: Result<std::io::Result<()>, tokio::task::JoinError>) -> Result<(), Failure> {
    ended.unwrap_or_else(|panic| Err(std::io::Error::other(panic))).map_err(Failure::Serve)
}
