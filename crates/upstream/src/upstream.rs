//! `Upstream`: starting it, replacing it on a configuration reload, and the state that all its
//! client sessions share. `backend.rs` implements the engine's `Backend` for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use steadfast_client::Config as ClientConfig;
use steadfast_engine::{Backend as _, Entropy, IncomingMessage, SessionHandle, StateError, SystemEntropy};
use tokio_util::sync::CancellationToken;

use crate::call::parallel_calls::LastVerdictRead;
use crate::call::tool_annotations::cache::ToolAnnotations;
use crate::config::{Config, Credential, Server, Stdio};
use crate::placement::close_unserved::CloseLimit;
use crate::placement::server_instance::ServerInstances;
use crate::placement::stored_placement::Placement;
use crate::placement::takeover::{MoveLimit, PauseDetector};
use crate::placement::upstream_session::UpstreamSession;
use crate::replicas::replica::{ConnectOptions, ReplicaStatus};
use crate::replicas::replica_set::Replicas;
use crate::session::client_session::ClientSession;
use crate::session::lane::Lane;
use crate::session::rebinding::SignatureCheck;
use crate::session::registry::SessionRegistry;
use crate::stateless::Forwarder;
use crate::stdio::ProcessPool;

/// An MCP server that is reached over HTTP or started as a child process.
#[derive(Debug)]
pub struct Upstream {
    pub(crate) shared: Arc<Shared>,
    pub(crate) registry: Arc<SessionRegistry>,
    pub(crate) pause_detector: PauseDetector,
}

/// Why an upstream could not be started. The configuration is to blame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    #[error("no server address is configured")]
    NoAddress,
    #[error("{0} is not the address of a server: write http://HOST:PORT/PATH, or https")]
    BadAddress(String),
    #[error("a server address contains a user name or a password: send them in a header")]
    SecretInAddress,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    /// The configuration from which the MCP client of each upstream session is derived.
    pub(crate) client: ClientConfig,
    pub(crate) instances: ServerInstances,
    pub(crate) annotations: ToolAnnotations,
    pub(crate) last_verdict_read: LastVerdictRead,
    pub(crate) forwarder: Forwarder,
    pub(crate) close_limit: CloseLimit,
    pub(crate) move_limit: MoveLimit,
    pub(crate) signature_check: SignatureCheck,
    failovers: AtomicU64,
    heartbeats: AtomicU64,
    /// The upstream that has replaced this one after a configuration reload.
    replacement: OnceLock<Weak<Self>>,
    /// Cancelled when this node begins to drain.
    pub(crate) draining: CancellationToken,
}

impl Shared {
    /// Returns true if all calls of every client session must run on one node: the node that holds
    /// the lease. `ClientSession::requires_single_node` adds the servers that the gateway found not
    /// to answer parallel calls.
    ///
    /// This is the case if the server is a child process of one node, and if the server accepts a
    /// limited number of calls at a time, because each node would count on its own. Forwarded
    /// credentials are an exception to the second case. The store does not keep them, so calls that
    /// need them cannot be forwarded to another node, and each node applies the limit on its own.
    pub(crate) fn requires_single_node(&self) -> bool {
        self.instances.is_stdio() || self.config.calls.are_bounded() && !self.forwards_credentials()
    }

    /// Returns true if the gateway decides how many calls the server gets at a time. A program on
    /// stdio reads one message after the other.
    pub(crate) fn adapts_concurrency(&self) -> bool {
        self.config.calls.are_adapted() && !self.instances.is_stdio()
    }

    /// Returns true if the server receives, and verifies, the credentials of the client.
    pub(crate) fn forwards_credentials(&self) -> bool {
        matches!(self.config.credential, Credential::Forwarded)
    }

    pub(crate) fn is_replaced(&self) -> bool {
        self.replacement.get().is_some()
    }

    /// Returns true if the upstream that replaced this one holds the standalone stream at this
    /// server instance. Calls that still run here keep the standalone streams that the replacement
    /// does not hold.
    pub(crate) fn is_heard_by_replacement(&self, instance: &str) -> bool {
        let next = self.replacement.get().and_then(Weak::upgrade);
        next.is_some_and(|next| {
            next.instances.continue_at(instance, &self.instances) && !next.is_replaced()
                || next.is_heard_by_replacement(instance)
        })
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// Waits until this node drains and must not start forwarded calls any more. Never returns for
    /// a stdio server: its calls cannot run on another node.
    pub(crate) async fn drain_started(&self) {
        if self.instances.is_stdio() {
            std::future::pending::<()>().await;
        }
        self.draining.cancelled().await;
    }

    pub(crate) fn count_heartbeat(&self) {
        self.heartbeats.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_failover(&self) {
        self.failovers.fetch_add(1, Ordering::Relaxed);
    }
}

/// How long a program may take to answer `initialize`. At least `timeouts.control`, so that a
/// client does not wait for a process that has been killed.
fn initialize_timeout(stdio: &Stdio, config: &Config) -> Duration {
    stdio.initialize_timeout.max(config.timeouts.control)
}

/// Returns a random number to count request ids from, different from that of every other node.
pub(crate) fn random_id() -> i64 {
    let mut bytes = [0; 8];
    SystemEntropy.fill(&mut bytes);
    // A server that parses the id as a floating-point number must not round it.
    (i64::from_le_bytes(bytes) >> 16).abs() + 1
}

impl Upstream {
    /// Starts an upstream. Sends nothing yet: a server that is down now may be up when it is
    /// needed.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        Self::begin(config, None).await
    }

    /// Starts an upstream that is to [`replace`](Self::replace) another one after a configuration
    /// reload. If both run the same program with the same settings, they share its processes, which
    /// keep their state.
    pub async fn start_replacement(config: Config, previous: &Self) -> Result<Self, StartError> {
        Self::begin(config, Some(previous)).await
    }

    async fn begin(config: Config, previous: Option<&Self>) -> Result<Self, StartError> {
        let (instances, mut client) = match &config.server {
            Server::Http { replicas, headers } => {
                let first = replicas.first().cloned().ok_or(StartError::NoAddress)?;
                let (resolver, tls) = (config.resolver.clone(), config.tls.clone());
                let options =
                    ConnectOptions { resolver, tls, timeouts: config.timeouts, limits: config.limits };
                let replicas = Replicas::start(replicas.clone(), options).await?;
                let mut client = ClientConfig::new(first);
                client.headers = headers.clone();
                (ServerInstances::Http(replicas), client)
            }
            Server::Stdio(stdio) => {
                let same = previous
                    .map(|previous| &previous.shared)
                    .filter(|previous| previous.config.runs_program(stdio));
                let instances = same.map(|previous| previous.instances.clone()).unwrap_or_else(|| {
                    let stdio =
                        Stdio { initialize_timeout: initialize_timeout(stdio, &config), ..stdio.clone() };
                    ServerInstances::stdio(ProcessPool::new(
                        stdio,
                        config.backoff,
                        random_id().unsigned_abs(),
                    ))
                });
                (instances, ClientConfig::new(http::Uri::from_static("http://stdio/mcp")))
            }
        };
        (client.limits, client.timeouts, client.backoff) = (config.limits, config.timeouts, config.backoff);
        if let Credential::Own(value) = &config.credential {
            client.headers.insert(http::header::AUTHORIZATION, value.clone());
        }
        let forwarder = Forwarder::new(&config);
        let shared = Shared {
            config,
            client,
            instances,
            annotations: ToolAnnotations::default(),
            last_verdict_read: LastVerdictRead::default(),
            forwarder,
            close_limit: CloseLimit::default(),
            move_limit: MoveLimit::default(),
            signature_check: SignatureCheck::default(),
            failovers: AtomicU64::new(0),
            heartbeats: AtomicU64::new(0),
            replacement: OnceLock::new(),
            draining: CancellationToken::new(),
        };
        Ok(Self {
            shared: Arc::new(shared),
            registry: Arc::default(),
            pause_detector: PauseDetector::default(),
        })
    }

    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Returns the replicas of a server that is reached over HTTP.
    pub fn replicas(&self) -> Vec<ReplicaStatus> {
        match &self.shared.instances {
            ServerInstances::Http(replicas) => replicas.status(),
            ServerInstances::Stdio { .. } => Vec::new(),
        }
    }

    /// Returns how often an upstream session was opened again because the server had lost it.
    pub fn failovers(&self) -> u64 {
        self.shared.failovers.load(Ordering::Relaxed)
    }

    /// Returns how many heartbeats were sent to clients of silent calls.
    pub fn heartbeats(&self) -> u64 {
        self.shared.heartbeats.load(Ordering::Relaxed)
    }

    /// Returns the number of calls that wait for the concurrency limit.
    pub fn queued_calls(&self) -> usize {
        self.registry.all().iter().map(|session| session.queued_calls()).sum()
    }

    /// Ends all child processes and waits until they are gone. Upstream sessions at HTTP servers
    /// stay open: the next process of the gateway continues them.
    pub async fn close(&self) {
        if let ServerInstances::Stdio { pool, .. } = &self.shared.instances {
            pool.close().await;
        }
    }

    /// Replaces another upstream after a configuration reload. Call this before the new upstream
    /// serves its first call: calls that still run on the old upstream count toward the concurrency
    /// limit.
    ///
    /// The old upstream only finishes its calls. The new upstream holds the standalone streams of
    /// servers that both upstreams know. Servers that were removed from the configuration stay with
    /// the old upstream until their last call ends.
    pub fn replace(self: &Arc<Self>, previous: &Self) {
        // Each upstream is replaced at most once.
        let _ = previous.shared.replacement.set(Arc::downgrade(&self.shared));
        // The metric must not go back to zero.
        self.shared.failovers.fetch_add(previous.failovers(), Ordering::Relaxed);
        self.shared.heartbeats.fetch_add(previous.heartbeats(), Ordering::Relaxed);
        let client_sessions = previous.registry.all();
        client_sessions.iter().for_each(|session| session.release_standalone_streams());
        if let (ServerInstances::Stdio { pool, .. }, Server::Stdio(stdio)) =
            (&self.shared.instances, &self.shared.config.server)
        {
            let config = &self.shared.config;
            pool.set_timing(initialize_timeout(stdio, config), config.backoff);
            if !previous.shared.config.runs_program(stdio) {
                // A program that does not run sends nothing. It is started when it is needed.
                return;
            }
        }
        let reload_state =
            previous.registry.export_reload_state(|client_session| self.continues(client_session));
        self.registry.import_reload_state(reload_state);
        let upstream = Arc::clone(self);
        tokio::spawn(async move {
            // A process ends when its last client session is dropped, so the old client sessions
            // stay alive until the new ones exist.
            for client_session in client_sessions {
                let Some(session) = client_session.session() else { continue };
                upstream.restored(session.clone()).await;
                // The session may have ended before the new client session existed.
                if let Err(StateError::NoSession) = Placement::load(&session).await {
                    upstream.closed(&session);
                }
            }
        });
    }

    /// Returns true if the server of a client session of another upstream also belongs to this
    /// upstream, or if the client session has no upstream session yet.
    fn continues(&self, client_session: &ClientSession) -> bool {
        let upstream_sessions: Vec<_> =
            client_session.lanes.iter().filter_map(Lane::upstream_session).collect();
        let is_ours = |upstream_session: &Arc<UpstreamSession>| {
            self.shared
                .instances
                .continue_at(&upstream_session.instance.name, &client_session.shared.instances)
        };
        upstream_sessions.is_empty() || upstream_sessions.iter().any(is_ours)
    }

    /// Returns the client session, which is created if this node does not have it yet. `request` is
    /// the newest request of the client.
    pub(crate) fn client_session(
        &self,
        session: &SessionHandle,
        request: Option<&IncomingMessage>,
    ) -> Arc<ClientSession> {
        let facts = session.facts();
        let client_session = self.registry.find_or_add(facts.id, |reload_state| {
            let client_session = ClientSession::with_reload_state(
                &self.shared,
                &self.registry,
                Arc::clone(facts),
                reload_state,
            );
            client_session.open(session);
            client_session
        });
        if let Some(request) = request {
            client_session.set_credential(request);
        }
        client_session
    }
}
