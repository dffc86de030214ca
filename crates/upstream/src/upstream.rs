//! The backend.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use steadfast_client::{Config as ClientConfig, Error};
use steadfast_engine::backend::BoxFuture;
use steadfast_engine::{
    Answer, Backend, CallHandle, Entropy, ExchangeHandle, Facts, Fence, Incoming, Route, Routing,
    SessionHandle, SessionId, StateError, SystemEntropy, Unwelcome, Welcome,
};
use steadfast_wire::planted;
use steadfast_wire::rpc::ErrorObject;
use tokio_util::sync::CancellationToken;

use crate::attend::{self, Attendance, Moves};
use crate::call;
use crate::config::{Config, Credential, Server, Stdio};
use crate::converge::Whom;
use crate::errors::of_opening;
use crate::farewell::{self, Farewells};
use crate::lease::{self, Held};
use crate::link::{Lane, Link};
use crate::links::{Links, Removed};
use crate::replicas::{ReplicaStatus, Replicas, Ways};
use crate::seat::{Seat, Servers};
use crate::seats::Seats;
use crate::stateless::{self, Forwarder};
use crate::stdio::Programs;
use crate::tool_annotations::ToolAnnotations;

/// A server somewhere else, as the engine sees it.
#[derive(Debug)]
pub struct Upstream {
    shared: Arc<Shared>,
    links: Arc<Links>,
    attendance: Attendance,
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
    /// Which tools are idempotent.
    pub(crate) annotations: ToolAnnotations,
    pub(crate) forwarder: Forwarder,
    pub(crate) farewells: Farewells,
    pub(crate) moves: Moves,
    healed: AtomicU64,
    /// Who has taken its place.
    successor: OnceLock<Weak<Self>>,
    /// Cancelled when this process takes nothing more upon itself.
    leaving: CancellationToken,
}

impl Shared {
    /// Whether all calls of a session have to be run by one process. A program is a child of one; and a server that takes so many
    /// calls at a time must not get as many from each. What a client shows to prove who it is, is not handed on: where servers
    /// want that, each process counts for itself.
    pub(crate) fn has_one_runner(&self) -> bool {
        self.servers.are_programs() || self.config.calls.are_bounded() && !self.shows_clients()
    }

    /// Whether the server is shown the credentials of its clients, and decides.
    pub(crate) fn shows_clients(&self) -> bool {
        matches!(self.config.credential, Credential::Forwarded)
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.successor.get().is_some()
    }

    /// Whether somebody who has taken its place hears what the server says at this place outside of calls. What nobody else hears,
    /// calls that run on have to hear themselves.
    pub(crate) fn is_heard_elsewhere(&self, place: &str) -> bool {
        let next = self.successor.get().and_then(Weak::upgrade);
        next.is_some_and(|next| {
            next.servers.go_on_at(place, &self.servers) && !next.is_retired()
                || next.is_heard_elsewhere(place)
        })
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.is_cancelled()
    }

    /// Waits until this process goes and begins no more calls that others have given to it, but finishes what it has begun. Programs
    /// end with it: what is there is run there.
    pub(crate) async fn leaves_calls(&self) {
        if self.servers.are_programs() {
            std::future::pending::<()>().await;
        }
        self.leaving.cancelled().await;
    }

    pub(crate) fn count_healed(&self) {
        self.healed.fetch_add(1, Ordering::Relaxed);
    }
}

/// How long a program may take to open a session: nobody is to wait for one that is ended meanwhile.
fn opening(stdio: &Stdio, config: &Config) -> Duration {
    stdio.opening.max(config.timeouts.control)
}

/// A number that no other process has begun with, with room to count on.
pub(crate) fn random_number() -> i64 {
    let mut bytes = [0; 8];
    SystemEntropy.fill(&mut bytes);
    // Whoever reads it as a floating-point number must not round it.
    (i64::from_le_bytes(bytes) >> 16).abs() + 1
}

impl Upstream {
    /// Nothing is sent yet: a server that is down now may be up when it is needed.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        Self::begin(config, None).await
    }

    /// The same for one that is to succeed another. If both run the same program in the same way, they share its processes, so that
    /// these keep what they remember.
    pub async fn start_after(config: Config, before: &Self) -> Result<Self, StartError> {
        Self::begin(config, Some(before)).await
    }

    async fn begin(config: Config, before: Option<&Self>) -> Result<Self, StartError> {
        let (servers, mut client) = match &config.server {
            Server::Http { replicas, headers } => {
                let first = replicas.first().cloned().ok_or(StartError::NoAddress)?;
                let (names, tls) = (config.names.clone(), config.tls.clone());
                let ways = Ways { names, tls, timeouts: config.timeouts, limits: config.limits };
                let replicas = Replicas::start(replicas.clone(), ways).await?;
                let mut client = ClientConfig::new(first);
                client.headers = headers.clone();
                (Servers::Http(replicas), client)
            }
            Server::Stdio(stdio) => {
                let same = before.map(|before| &before.shared).filter(|before| before.config.runs(stdio));
                let servers = same.map(|before| before.servers.clone()).unwrap_or_else(|| {
                    let stdio = Stdio { opening: opening(stdio, &config), ..stdio.clone() };
                    Servers::stdio(Programs::new(stdio, config.backoff, random_number().unsigned_abs()))
                });
                (servers, ClientConfig::new(http::Uri::from_static("http://stdio/mcp")))
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
            servers,
            annotations: ToolAnnotations::default(),
            forwarder,
            farewells: Farewells::default(),
            moves: Moves::default(),
            healed: AtomicU64::new(0),
            successor: OnceLock::new(),
            leaving: CancellationToken::new(),
        };
        Ok(Self { shared: Arc::new(shared), links: Arc::default(), attendance: Attendance::default() })
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
        self.links.all().iter().map(|link| link.waiting()).sum()
    }

    /// Ends every program that was started, and waits for that. Sessions at servers that are reached over HTTP stay: whoever
    /// comes after goes on with them.
    pub async fn close(&self) {
        if let Servers::Stdio { programs, .. } = &self.shared.servers {
            programs.close().await;
        }
    }

    /// Takes the place of another. Calls that run there go on, and that is all that it does from now on: what servers that both
    /// know send by themselves is heard here, and what others send there until the last of the calls. Said before anybody calls this one: those calls count when it is decided whose turn it is.
    pub fn succeed(self: &Arc<Self>, before: &Self) {
        // Nobody succeeds twice.
        let _ = before.shared.successor.set(Arc::downgrade(&self.shared));
        // Whoever counts does not notice.
        self.shared.healed.fetch_add(before.healed(), Ordering::Relaxed);
        let links = before.links.all();
        links.iter().for_each(|link| link.fall_silent());
        if let (Servers::Stdio { programs, .. }, Server::Stdio(stdio)) =
            (&self.shared.servers, &self.shared.config.server)
        {
            let config = &self.shared.config;
            programs.set_pace(opening(stdio, config), config.backoff);
            if !before.shared.config.runs(stdio) {
                // Nobody hears a program that is not running, and it is started when it is needed.
                return;
            }
        }
        self.links.inherit(before.links.leave(|link| self.goes_on_with(link)));
        let upstream = Arc::clone(self);
        tokio::spawn(async move {
            // A program ends with the last link to it, so the old one stays until there is a new one.
            for link in links {
                let Some(session) = link.session() else { continue };
                upstream.restored(session.clone()).await;
                // It may have ended before there was a link that could be told of it.
                if let Err(StateError::NoSession) = Seats::load(&session).await {
                    upstream.closed(&session);
                }
            }
        });
    }

    /// Whether a session of another upstream's is at a server of this one, as far as that is decided.
    fn goes_on_with(&self, link: &Link) -> bool {
        let seats: Vec<_> = link.lanes.iter().filter_map(Lane::seat).collect();
        let is_ours = |seat: &Arc<Seat>| self.shared.servers.go_on_at(&seat.place.name, &link.shared.servers);
        seats.is_empty() || seats.iter().any(is_ours)
    }

    /// The link of a session, made if this process had nothing to do with it so far. `request` is the client's newest.
    fn link(&self, session: &SessionHandle, request: Option<&Incoming>) -> Arc<Link> {
        let facts = session.facts();
        let link = self.links.find_or_add(facts.id, |heritage| {
            let link = Link::with(&self.shared, &self.links, Arc::clone(facts), heritage);
            link.open(session);
            link
        });
        if let Some(request) = request {
            link.show(request);
        }
        link
    }

    /// Where one process has to run all calls, that is the one with the lease. Other servers that are reached over HTTP are reached
    /// from anywhere, if it is known where the session is at the server.
    fn place(&self, session: &SessionHandle) -> Routing {
        if !self.shared.has_one_runner() {
            // Without a link it is read before the call is sent.
            let link = self.links.find(&session.facts().id);
            let Some(link) = link.as_ref().filter(|link| link.known.is_outdated()).cloned() else {
                let fence = link.and_then(|link| link.known.fence());
                return Routing::Now(Route { fence, ..Route::default() });
            };
            let session = session.clone();
            return Routing::Later(Box::pin(async move {
                link.follow_what_is_written(&session, Whom::Seated).await;
                // It was read just now. Whoever reads it again and again gets nowhere.
                Route::default()
            }));
        }
        let are_programs = self.shared.servers.are_programs();
        let route = move |held: Held| match held {
            Held::Theirs(..) if planted("no-owner") => Route::default(),
            Held::Theirs(node, _) => Route { at: Some(node), fence: held.fence(), ..Route::default() },
            // It would be sent beside what whoever has the lease sends. So it is asked again, and refused if nobody knows.
            Held::Unknown if !are_programs => Route { fence: Some(lease::of_nobody()), ..Route::default() },
            Held::Ours(_) | Held::Unknown => Route { fence: held.fence(), ..Route::default() },
        };
        let link = self.link(session, None);
        if let Some(held) = link.lease.fresh() {
            return Routing::Now(route(held));
        }
        let session = session.clone();
        Routing::Later(Box::pin(async move {
            let held = link.claim(&session).await;
            if matches!(held, Held::Ours(_)) && !link.shared.servers.are_programs() {
                // Whoever had it before may have moved the session.
                link.follow_what_is_written(&session, Whom::Seated).await;
                link.listen_everywhere();
            }
            route(held)
        }))
    }
}

impl Backend for Upstream {
    fn initialize(&self, facts: Arc<Facts>, request: Incoming) -> BoxFuture<Result<Welcome, Unwelcome>> {
        let link = Link::new(&self.shared, &self.links, Arc::clone(&facts));
        link.show(&request);
        let links = Arc::clone(&self.links);
        Box::pin(async move {
            let seat = link.sit_anywhere(0, link.patience()).await;
            let forwarded = link.shared.shows_clients();
            let seat = link.sit(0, seat.map_err(|error| of_opening(&error, forwarded))?);
            let (result, revision) = (seat.client.server(), seat.client.revision());
            links.add(facts.id, link);
            Ok(Welcome { result, revision })
        })
    }

    fn opened(&self, session: SessionHandle) -> BoxFuture<Result<(), ErrorObject>> {
        let link = self.links.find(&session.facts().id);
        Box::pin(async move {
            let gone =
                || ErrorObject::internal("upstream_unavailable", "The server is not there any more.", true);
            let link = link.ok_or_else(gone)?;
            let seat = link.lanes[0].seat().ok_or_else(gone)?;
            let open = seat.client.session().ok_or_else(gone)?;
            let fresh = Seats::opened(&seat.place.name, &open);
            let written = Seats::change(&session, |seats, _| {
                seats.clone_from(&fresh);
                true
            });
            let (written, held) = tokio::join!(written, link.claim(&session));
            let unwritten = |why: String| {
                let message = format!("The session cannot be written down: {why}.");
                ErrorObject::internal("store_unavailable", message, true)
            };
            let version = written.map_err(|error| unwritten(error.to_string()))?;
            if let Some(version) = version {
                drop(link.known.advance(version));
            }
            if !matches!(held, Held::Ours(_)) {
                return Err(unwritten("the lease is not to be had".to_owned()));
            }
            link.open(&session);
            link.read_tools_ahead(&session);
            Ok(())
        })
    }

    /// What the server sends by itself is heard from now on, and the server can be told when the session ends. With the
    /// client's own credential that has to wait until the client shows it.
    fn restored(&self, session: SessionHandle) -> BoxFuture<()> {
        if self.shared.shows_clients() {
            return Box::pin(async {});
        }
        let link = self.link(&session, None);
        Box::pin(async move { link.resume_all().await })
    }

    fn call(&self, call: CallHandle, request: Incoming) -> BoxFuture<Result<Bytes, ErrorObject>> {
        let link = self.link(&call.session(), Some(&request));
        Box::pin(async move { call::call(&link, &call, &request).await })
    }

    /// What is not known yet of a call's tool is read first, unless another node runs the call and looks itself.
    fn route(&self, session: &SessionHandle, request: &Incoming) -> Routing {
        if is_told_otherwise(&request.method) {
            return Routing::HERE;
        }
        match (self.place(session), self.shared.may_be_repeated(session, request)) {
            (Routing::Now(route), Some(again)) => Routing::Now(Route { again, ..route }),
            (Routing::Later(route), Some(again)) => {
                Routing::Later(Box::pin(async move { Route { again, ..route.await } }))
            }
            (routing, None) => {
                let (link, session, params) =
                    (self.link(session, None), session.clone(), request.params.clone());
                Routing::Later(Box::pin(async move {
                    let route = match routing {
                        Routing::Now(route) => route,
                        Routing::Later(route) => route.await,
                    };
                    if route.at.is_some() {
                        return route;
                    }
                    Route { again: link.calls_idempotent_tool(&session, params.as_ref()).await, ..route }
                }))
            }
        }
    }

    fn misrouted(&self, facts: &Arc<Facts>, fence: &Fence) {
        let Some(link) = self.links.find(&facts.id) else { return };
        if !self.shared.has_one_runner() {
            return link.known.outdate(fence.version);
        }
        let left = link.lose_the_lease(fence.version);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { link.close_seats(left).await });
        }
    }

    fn attended(&self, sessions: Vec<SessionHandle>) -> BoxFuture<()> {
        let links = if self.attendance.has_slept() { self.links.all() } else { Vec::new() };
        let listens = self.shared.config.standalone || self.shared.servers.are_programs();
        let forwarded = self.shared.shows_clients();
        let attended = sessions.into_iter().filter(|_| listens).filter_map(|session| {
            // Without the client's own credential nothing can be done for it.
            let known = self.links.find(&session.facts().id);
            let link = known.or_else(|| (!forwarded).then(|| self.link(&session, None)))?;
            Some((session, link))
        });
        let attended: Vec<_> = attended.collect();
        Box::pin(async move {
            attend::verify(links).await;
            attend::take_over(attended).await;
        })
    }

    /// Sessions whose calls are all run here go on elsewhere with their next call. What comes from other servers is heard until the
    /// end.
    fn leaving(&self) -> BoxFuture<()> {
        self.shared.leaving.cancel();
        if !self.shared.has_one_runner() {
            return Box::pin(async {});
        }
        let links = self.links.all();
        Box::pin(async move { attend::give_up(links).await })
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
            for (no, lane) in link.lanes.iter().enumerate() {
                let Some(seat) = lane.seat() else { continue };
                let mut told = seat.client.notify(&notification.method, params).await;
                if let (Err(Error::SessionLost), Ok(now)) = (&told, link.seated(no).await)
                    && !Arc::ptr_eq(&now, &seat)
                {
                    told = now.client.notify(&notification.method, params).await;
                }
                if let Err(error) = told {
                    let method = &notification.method;
                    tracing::warn!(session = link.short(), method, %error, "a notification did not reach the server");
                }
            }
        })
    }

    fn forgotten(&self, session: SessionId) {
        let Removed::Link(link) = self.links.remove(&session) else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // The server has most likely heard of it, and may hear of it twice.
            runtime.spawn(async move { link.close().await });
        }
    }

    fn closed(&self, session: &SessionHandle) {
        let removed = self.links.remove(&session.facts().id);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        match removed {
            Removed::Link(link) => drop(runtime.spawn(async move { link.close().await })),
            Removed::Before => {}
            Removed::Unknown => {
                let (shared, links) = (Arc::clone(&self.shared), Arc::clone(&self.links));
                let session = session.clone();
                runtime.spawn(async move { farewell::bid(&shared, &links, &session).await });
            }
        }
    }
}

/// What the server hears from us in other words: that the client is ready it has been told, and a call that is cancelled has
/// another id there.
fn is_told_otherwise(method: &str) -> bool {
    matches!(method, "notifications/initialized" | "notifications/cancelled")
}
