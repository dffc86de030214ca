//! The backend.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use steadfast_client::{Config as ClientConfig, Notification};
use steadfast_engine::backend::BoxFuture;
use steadfast_engine::{
    Answer, Backend, CallHandle, Entropy, ExchangeHandle, Facts, Incoming, SessionHandle, SessionId,
    SystemEntropy, Unwelcome, Welcome,
};
use steadfast_wire::planted;
use steadfast_wire::rpc::ErrorObject;

use crate::call::{self, is_safe_by};
use crate::config::{Config, Credential, Server};
use crate::errors::of_opening;
use crate::link::{Lane, Link};
use crate::record::Record;
use crate::replicas::{ReplicaStatus, Replicas, Ways};
use crate::seat::Servers;
use crate::stateless::{self, Forwarder};
use crate::stdio::Programs;
use crate::tools::Tools;

/// A server somewhere else, as the engine sees it.
#[derive(Debug)]
pub struct Upstream {
    shared: Arc<Shared>,
    links: Arc<Links>,
}

/// Why an upstream could not be started: its configuration is to blame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    #[error("there is no address")]
    NoAddress,
    #[error("{0} is not the address of a server: write http://HOST:PORT/PATH, or https")]
    BadAddress(String),
    #[error("an address has a user or a password in it: send them in a header")]
    SecretInAddress,
}

/// What all sessions share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    /// What every client begins with.
    pub(crate) client: ClientConfig,
    pub(crate) servers: Servers,
    pub(crate) tools: Tools,
    pub(crate) forwarder: Forwarder,
    healed: AtomicU64,
}

impl Shared {
    pub(crate) fn is_safe(&self, method: &str, params: Option<&str>) -> Option<bool> {
        if planted("retry-unsafe") {
            return Some(true);
        }
        is_safe_by(&self.tools, method, params)
    }

    /// Hears what concerns all sessions, on whatever stream it came.
    pub(crate) fn note(&self, notification: &Notification) {
        if notification.method == "notifications/tools/list_changed" {
            self.tools.forget();
        }
    }

    pub(crate) fn count_healed(&self) {
        self.healed.fetch_add(1, Ordering::Relaxed);
    }
}

/// A number that no other process has begun with, with room to count on.
pub(crate) fn random_number() -> i64 {
    let mut bytes = [0; 8];
    SystemEntropy.fill(&mut bytes);
    // Whoever reads it as a floating-point number must not round it.
    (i64::from_le_bytes(bytes) >> 16).abs() + 1
}

/// The sessions that this process has something to do with.
#[derive(Debug, Default)]
pub(crate) struct Links(Mutex<HashMap<SessionId, Arc<Link>>>);

impl Links {
    pub(crate) fn remove(&self, session: &SessionId) -> Option<Arc<Link>> {
        self.lock().remove(session)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Link>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Upstream {
    /// Nothing is sent yet: a server that is down now may be up when it is needed.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let (servers, mut client) = match &config.server {
            Server::Http { replicas, headers } => {
                let first = replicas.first().cloned().ok_or(StartError::NoAddress)?;
                let ways = Ways { tls: config.tls.clone(), timeouts: config.timeouts, limits: config.limits };
                let replicas = Replicas::start(replicas.clone(), ways).await?;
                let mut client = ClientConfig::new(first);
                client.headers = headers.clone();
                (Servers::Http(replicas), client)
            }
            Server::Stdio(stdio) => {
                let programs = Programs::new(stdio.clone(), config.backoff, random_number().unsigned_abs());
                (Servers::stdio(programs), ClientConfig::new(http::Uri::from_static("http://stdio/mcp")))
            }
        };
        (client.limits, client.timeouts, client.backoff) = (config.limits, config.timeouts, config.backoff);
        if let Credential::Own(value) = &config.credential {
            client.headers.insert(http::header::AUTHORIZATION, value.clone());
        }
        let tools = Tools::new(config.limits.tools);
        let forwarder = Forwarder::new(&config);
        let shared = Shared { config, client, servers, tools, forwarder, healed: AtomicU64::new(0) };
        Ok(Self { shared: Arc::new(shared), links: Arc::default() })
    }

    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// The replicas, for servers that are reached over HTTP.
    pub fn replicas(&self) -> Vec<ReplicaStatus> {
        match &self.shared.servers {
            Servers::Http(replicas) => replicas.status(),
            Servers::Stdio { .. } => Vec::new(),
        }
    }

    /// How often a session that the server had lost was opened anew.
    pub fn healed(&self) -> u64 {
        self.shared.healed.load(Ordering::Relaxed)
    }

    /// Calls that wait for their turn.
    pub fn waiting(&self) -> usize {
        self.links.lock().values().map(|link| link.turns.waiting()).sum()
    }

    /// Ends every program that was started, and waits for that. Sessions at servers that are reached over HTTP stay: whoever
    /// comes after goes on with them.
    pub async fn close(&self) {
        if let Servers::Stdio { programs, .. } = &self.shared.servers {
            programs.close().await;
        }
    }

    /// The link of a session, made if this process had nothing to do with it so far. `request` is the client's newest.
    fn link(&self, session: &SessionHandle, request: Option<&Incoming>) -> Arc<Link> {
        let facts = session.facts();
        let mut links = self.links.lock();
        let link = links.entry(facts.id).or_insert_with(|| {
            let link = Link::new(&self.shared, &self.links, Arc::clone(facts));
            link.open(session);
            link
        });
        let link = Arc::clone(link);
        drop(links);
        if let Some(request) = request {
            link.show(request);
        }
        link
    }
}

impl Backend for Upstream {
    fn initialize(&self, facts: Arc<Facts>, request: Incoming) -> BoxFuture<Result<Welcome, Unwelcome>> {
        let link = Link::new(&self.shared, &self.links, Arc::clone(&facts));
        link.show(&request);
        let links = Arc::clone(&self.links);
        Box::pin(async move {
            let seat = link.sit_anywhere(0, link.patience()).await;
            let forwarded = matches!(link.shared.config.credential, Credential::Forwarded);
            let seat = link.sit(0, seat.map_err(|error| of_opening(&error, forwarded))?);
            let (result, revision) = (seat.client.server(), seat.client.revision());
            links.lock().insert(facts.id, link);
            Ok(Welcome { result, revision })
        })
    }

    fn opened(&self, session: SessionHandle) -> BoxFuture<Result<(), ErrorObject>> {
        let link = self.links.lock().get(&session.facts().id).cloned();
        Box::pin(async move {
            let gone =
                || ErrorObject::internal("upstream_unavailable", "The server is not there any more.", true);
            let link = link.ok_or_else(gone)?;
            let seat = link.lanes[0].seat().ok_or_else(gone)?;
            let open = seat.client.session().ok_or_else(gone)?;
            let mut fresh = Record::opened(&seat.place.name, &open);
            fresh.listener = Some(session.engine().node().0);
            link.lease.take();
            let written = Record::change(&session, |record| {
                record.clone_from(&fresh);
                true
            });
            written.await.map_err(|error| {
                let message = format!("The session cannot be written down: {error}.");
                ErrorObject::internal("store_unavailable", message, true)
            })?;
            link.open(&session);
            Ok(())
        })
    }

    /// What the server sends by itself is heard from now on, and the server can be told when the session ends. With the
    /// client's own credential that has to wait until the client shows it.
    fn restored(&self, session: SessionHandle) -> BoxFuture<()> {
        if let Credential::Forwarded = self.shared.config.credential {
            return Box::pin(async {});
        }
        let link = self.link(&session, None);
        Box::pin(async move { link.resume_all().await })
    }

    fn call(&self, call: CallHandle, request: Incoming) -> BoxFuture<Result<Bytes, ErrorObject>> {
        let link = self.link(&call.session(), Some(&request));
        Box::pin(async move { call::call(&link, &call, &request).await })
    }

    fn serve(&self, exchange: ExchangeHandle, request: Incoming) -> BoxFuture<Answer> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { stateless::serve(&shared, &exchange, &request).await })
    }

    fn notify(&self, session: SessionHandle, notification: Incoming) -> BoxFuture<()> {
        if is_told_otherwise(&notification.method) {
            return Box::pin(async {});
        }
        let link = self.link(&session, Some(&notification));
        Box::pin(async move {
            let params = notification.params.as_deref().and_then(|params| std::str::from_utf8(params).ok());
            if let Err(error) = link.seated(0).await {
                tracing::warn!(session = link.short(), %error, "a notification cannot be passed on");
                return;
            }
            for seat in link.lanes.iter().filter_map(Lane::seat) {
                if let Err(error) = seat.client.notify(&notification.method, params).await {
                    let method = &notification.method;
                    tracing::warn!(session = link.short(), method, %error, "a notification did not reach the server");
                }
            }
        })
    }

    fn closed(&self, facts: &Arc<Facts>) {
        let link = self.links.remove(&facts.id);
        if let (Some(link), Ok(runtime)) = (link, tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move { link.close().await });
        }
    }
}

/// What the server hears from us in other words: that the client is ready it has been told, and a call that is cancelled has
/// another id there.
fn is_told_otherwise(method: &str) -> bool {
    matches!(method, "notifications/initialized" | "notifications/cancelled")
}
