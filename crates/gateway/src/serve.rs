//! `steadfast serve`.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use steadfast_http::listen::tls::Tls;
use steadfast_http::listen::{self, Plain, Signals, serve_behind};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::admin::{Admin, Metrics, Reload};
use crate::cli::Serve;
use crate::config::{self, Plan};
use crate::failure::Failure;
use crate::gateway::{Changes, Found, Gateway, OtherIdentity};
use crate::logs::Logs;
use crate::reload::{self, Followed};
use crate::{banner, place, world};

pub(crate) fn run(arguments: &Serve, logs: &Logs) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::Runtime)?;
    let done = runtime.block_on(serve(arguments, logs));
    // Handlers that ignore their cancellation must not keep the process alive.
    runtime.shutdown_timeout(Duration::from_secs(1));
    done
}

async fn serve(arguments: &Serve, logs: &Logs) -> Result<(), Failure> {
    let mut signals = Signals::listen();
    let flags = arguments.overrides().map_err(Failure::Quotes)?;
    let mut followed = arguments.config.clone().map(|file| Followed::new(file, flags.clone()));
    let plan = match &mut followed {
        Some(followed) => followed.read()?,
        None => config::load(&world::source(None)?, &flags, &world::world()).map_err(Failure::Config)?,
    };
    logs.filter(&plan.log);
    reload::warn(&plan);
    // Names may take long to look up, and a store long to answer: whoever wants to stop does not wait for them.
    let mut served = tokio::select! {
        () = signals.next() => return Ok(()),
        started = Served::start(plan, logs) => started?,
    };
    loop {
        tokio::select! {
            () = signals.next() => break,
            ended = served.ended() => return ended,
            () = reason(&mut followed) => {}
        }
        tokio::select! {
            () = signals.next() => break,
            () = served.reload(followed.as_mut()) => {}
        }
    }
    tracing::info!("stopping; asked once more, the process ends at once");
    signals.exit_when_asked_again();
    served.stop().await
}

/// When to read the configuration again; never, if there is no file.
async fn reason(followed: &mut Option<Followed>) {
    match followed {
        Some(followed) => followed.reason().await,
        None => std::future::pending().await,
    }
}

/// A gateway with its listeners.
struct Served<'a> {
    plan: Plan,
    logs: &'a Logs,
    gateway: Gateway,
    metrics: Option<Arc<Metrics>>,
    tls: Option<Tls>,
    serving: JoinSet<std::io::Result<()>>,
    stage: watch::Sender<Stage>,
}

/// After the notice idle connections are ended. A request that comes just then is still served.
const LAST_WORDS: Duration = Duration::from_millis(50);

/// How far the end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Serving,
    /// No connection is accepted any more.
    Closed,
    /// Connections are ended.
    Stopped,
}

impl<'a> Served<'a> {
    async fn start(plan: Plan, logs: &'a Logs) -> Result<Self, Failure> {
        let url = match &plan.store {
            Some(store) => {
                place::warn_if_public(store);
                store.clone()
            }
            None => place::default_store()?,
        };
        let mut listeners = Vec::new();
        for address in &plan.listen {
            listeners.push(bind(*address).await?);
        }
        let admin = match plan.admin {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let store = url.open(plan.rules.clone(), plan.durability);
        let store = store.map_err(|error| Failure::Store { store: url.clone(), error })?;
        let metrics = admin.is_some().then(Metrics::new);
        let gateway = Gateway::start(store, &plan, metrics.clone()).await.map_err(Failure::Endpoint)?;
        banner::print(&plan, &listeners, admin.as_ref(), &url);
        let (stage, _) = watch::channel(Stage::Serving);
        let tls = plan.tls.as_ref().map(|tls| Tls::new(tls.identity.clone()));
        let mut served = Self { plan, logs, gateway, metrics, tls, serving: JoinSet::new(), stage };
        listeners.into_iter().for_each(|listener| served.listen(listener));
        if let (Some(listener), Some(metrics)) = (admin, served.metrics.clone()) {
            let admin = Admin::new(metrics, Arc::clone(served.gateway.overview()));
            // It answers to the end: whoever watches wants to know how it ends.
            tokio::spawn(listen::serve(listener, admin, admin_limits(), std::future::pending()));
        }
        Ok(served)
    }

    fn listen(&mut self, listener: TcpListener) {
        let until = |stage| {
            let mut now = self.stage.subscribe();
            // The other end goes with what waits for this loop.
            async move { drop(now.wait_for(|now| *now >= stage).await) }
        };
        let (closed, stop) = (until(Stage::Closed), until(Stage::Stopped));
        let (mounts, mut limits) = (self.gateway.mounts(), self.plan.listener.clone());
        if limits.threads == 0 {
            limits.threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        }
        match self.tls.clone() {
            Some(tls) => self.serving.spawn(serve_behind(tls, listener, mounts, limits, closed, stop)),
            None => self.serving.spawn(serve_behind(Plain, listener, mounts, limits, closed, stop)),
        };
    }

    /// A listener that ends by itself is a failure.
    async fn ended(&mut self) -> Result<(), Failure> {
        match self.serving.join_next().await {
            Some(ended) => finished(ended),
            None => std::future::pending().await,
        }
    }

    async fn reload(&mut self, followed: Option<&mut Followed>) {
        let Some(followed) = followed else { return };
        let outcome = match followed.read() {
            Ok(plan) => self.change(plan).await,
            Err(failure) => Err(failure),
        };
        if let Err(failure) = &outcome {
            reload::report(failure);
        }
        if let Some(metrics) = &self.metrics {
            let outcome = if outcome.is_ok() { "applied" } else { "refused" };
            metrics.reloads.get_or_create(&Reload { outcome }).inc();
        }
    }

    async fn change(&mut self, plan: Plan) -> Result<(), Failure> {
        let changes = self.gateway.change(&self.plan, &plan).await.map_err(Failure::Endpoint)?;
        self.logs.filter(&plan.log);
        if let (Some(tls), Some(new)) = (&self.tls, &plan.tls) {
            tls.replace(new.identity.clone());
        }
        reload::warn(&plan);
        let Changes { added, removed, changed, needs_restart, identities } = changes;
        tracing::info!(?added, ?removed, ?changed, "the configuration was read again");
        for key in needs_restart {
            tracing::warn!(key, "this change needs a restart");
        }
        for OtherIdentity { path, sessions, configured, found } in identities {
            let what = match found {
                Found::NoMore => {
                    "the endpoint has a new identity: its sessions are not found any more, unless `id` is set to `sessions_id`"
                }
                Found::UntilRestart => {
                    "the server behind the endpoint has changed in part: its sessions are kept, but after a restart they are not found unless `id` is set to `sessions_id`"
                }
            };
            tracing::warn!(%path, sessions_id = %sessions, configured_id = %configured, "{what}");
        }
        // What needs a restart is compared with what was started, each time.
        let started = std::mem::replace(&mut self.plan, plan);
        self.plan.keep_fixed(started);
        Ok(())
    }

    async fn stop(mut self) -> Result<(), Failure> {
        self.gateway.take_leave();
        self.stage.send_replace(Stage::Closed);
        // Whoever keeps a connection may be about to use it: that request is served, and its answer ends the connection.
        let notice = self.plan.listener.notice + LAST_WORDS;
        if let Ok(outcome) = tokio::time::timeout(notice, all_end(&mut self.serving)).await {
            outcome?;
        }
        self.gateway.drain(self.plan.drain).await;
        self.stage.send_replace(Stage::Stopped);
        all_end(&mut self.serving).await?;
        tracing::info!("stopped");
        Ok(())
    }
}

async fn all_end(serving: &mut JoinSet<std::io::Result<()>>) -> Result<(), Failure> {
    while let Some(ended) = serving.join_next().await {
        finished(ended)?;
    }
    Ok(())
}

async fn bind(address: std::net::SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| Failure::Listen { address, error })
}

/// Operators are few.
fn admin_limits() -> listen::Limits {
    listen::Limits { connections: 256, ..listen::Limits::default() }
}

fn finished(ended: Result<std::io::Result<()>, tokio::task::JoinError>) -> Result<(), Failure> {
    ended.unwrap_or_else(|panic| Err(std::io::Error::other(panic))).map_err(Failure::Serve)
}
