//! A gateway: one process of it, as good as that can be had inside another.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use steadfast::{
    DuplicateIds, Limits, ManualClock, Refusal, ServerRequestOrder, SessionEvent, SessionId, SystemEntropy,
    Time, Timing,
};
use steadfast_client::{Backoff, Uri};
use steadfast_engine::{Engine, LifecycleListener, Options, Rules, SessionHandle};
use steadfast_http::{Config as HttpConfig, Endpoint, ResponseMode, listen};
use steadfast_store::{Store, StoreError};
use steadfast_upstream::{Concurrency, Config, Upstream};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use super::{Backing, Gates, Heard, Place, library, within};

type Configure = Arc<dyn Fn(Builder) -> Builder + Send + Sync>;

/// A gateway on a port of its own, on a runtime of its own: when that ends, all its tasks do, as in
/// a process. It looks like a host of the library, so that the library's own tests can be run
/// against it.
pub(crate) struct Host {
    configure: Configure,
    replicas: Vec<Uri>,
    /// The real server behind it, if it is not one of the test's.
    behind: Option<Arc<library::Host>>,
    place: Place,
    process: Option<Process>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) gates: Gates,
    pub(crate) heard: Heard,
}

struct Process {
    runtime: Runtime,
    server: Server,
    upstream: Arc<Upstream>,
    address: SocketAddr,
    /// Dropped, it stops the accept loop.
    stop: oneshot::Sender<()>,
}

impl Host {
    /// A gateway in front of a server that is made with the library.
    pub(crate) async fn start(
        backing: Backing,
        configure: impl Fn(Builder) -> Builder + Send + Sync + 'static,
    ) -> Self {
        let behind = library::Host::plain(Backing::Memory).await;
        let url = format!("http://{}/mcp", behind.address()).parse().expect("an address");
        let gates = behind.gates.clone();
        let mut host = Self::new(backing, vec![url], configure);
        (host.behind, host.gates) = (Some(Arc::new(behind)), gates);
        host.launch().await;
        host
    }

    pub(crate) async fn plain(backing: Backing) -> Self {
        Self::start(backing, |builder| builder).await
    }

    /// A gateway in front of these.
    pub(crate) async fn before(
        backing: Backing,
        replicas: impl IntoIterator<Item = Uri>,
        configure: impl Fn(Builder) -> Builder + Send + Sync + 'static,
    ) -> Self {
        let mut host = Self::new(backing, replicas.into_iter().collect(), configure);
        host.launch().await;
        host
    }

    /// Another process in the same place, with the same clock and gates and its own listener.
    pub(crate) async fn beside(&self) -> Self {
        assert!(!matches!(self.place, Place::Memory), "memory cannot be shared");
        let mut other = Self {
            configure: Arc::clone(&self.configure),
            replicas: self.replicas.clone(),
            behind: self.behind.clone(),
            place: self.place.clone(),
            process: None,
            clock: Arc::clone(&self.clock),
            gates: self.gates.clone(),
            heard: Heard::new(),
        };
        other.launch().await;
        other
    }

    pub(crate) fn server(&self) -> &Server {
        &self.running().server
    }

    pub(crate) fn upstream(&self) -> &Upstream {
        &self.running().upstream
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.running().address
    }

    /// Ends the gateway immediately, as with `kill -9`: it drains nothing and notifies no node or
    /// client.
    pub(crate) async fn crash(&mut self) {
        let Some(Process { runtime, server, upstream, .. }) = self.process.take() else { return };
        let ending = tokio::task::spawn_blocking(move || {
            drop((server, upstream));
            runtime.shutdown_timeout(Duration::from_secs(10));
        });
        within("the end of a gateway", ending).await.expect("the gateway ends");
    }

    /// Goes down in good order.
    pub(crate) async fn stop(&mut self) {
        within("the drain", self.server().drain(Duration::ZERO)).await;
        self.crash().await;
    }

    /// Ends at once, and starts again with the same store on another port.
    pub(crate) async fn restart(&mut self) {
        self.crash().await;
        self.launch().await;
    }

    /// Files beside its store that say which processes live.
    pub(crate) fn signs_of_life(&self) -> Vec<std::path::PathBuf> {
        self.place.signs_of_life()
    }

    /// Lets time pass and does what that demands.
    pub(crate) async fn sweep_after(&self, time: Duration) {
        self.clock.advance(time);
        within("the sweep", self.server().0.sweep()).await.expect("the store works");
    }

    fn new(
        backing: Backing,
        replicas: Vec<Uri>,
        configure: impl Fn(Builder) -> Builder + Send + Sync + 'static,
    ) -> Self {
        Self {
            configure: Arc::new(configure),
            replicas,
            behind: None,
            place: backing.place(),
            process: None,
            clock: Arc::new(ManualClock::new(Time(1_800_000_000_000))),
            gates: Gates::default(),
            heard: Heard::new(),
        }
    }

    fn running(&self) -> &Process {
        self.process.as_ref().expect("the gateway runs")
    }

    async fn launch(&mut self) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime for the gateway");
        let heard = self.heard.clone();
        let mut builder = (self.configure)(Builder::new(self.replicas.clone()));
        builder.listeners.push(Box::new(move |event: SessionEvent| heard.note(&event)));
        let (place, clock) = (self.place.clone(), self.clock.clone());
        let (stop, stopped) = oneshot::channel::<()>();
        let started = runtime.spawn(async move {
            let upstream = Arc::new(Upstream::start(builder.upstream).await.expect("an upstream"));
            let store = builder.store.unwrap_or_else(|| place.open(builder.rules));
            let (backend, entropy) = (Arc::clone(&upstream), Arc::new(SystemEntropy));
            let engine =
                Engine::start(store, backend, clock, entropy, builder.options, builder.listeners).await;
            let engine = engine.expect("an engine");
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("an address");
            let service = Endpoint::new(Arc::clone(&engine), builder.http);
            tokio::spawn(async move {
                let told = async {
                    let _ = stopped.await;
                };
                let limits = listen::Limits { shutdown_grace: Duration::ZERO, ..listen::Limits::default() };
                listen::serve(listener, service, limits, told).await.expect("the accept loop");
            });
            (Server(engine), upstream, address)
        });
        let started = within("the start of a gateway", started).await;
        let (server, upstream, address) = started.expect("the gateway starts");
        self.process = Some(Process { runtime, server, upstream, address, stop });
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            process.runtime.shutdown_background();
        }
    }
}

/// The gateway from the inside.
#[derive(Clone)]
pub(crate) struct Server(pub(crate) Arc<Engine>);

impl Server {
    pub(crate) async fn drain(&self, patience: Duration) {
        self.0.drain(patience).await;
    }

    pub(crate) async fn restore(&self, session: SessionId) -> Result<SessionHandle, Refusal> {
        self.0.restore(session).await
    }

    pub(crate) async fn sweep(&self) -> Result<(), StoreError> {
        self.0.sweep().await
    }
}

/// The settings of a gateway, by the names that they have in the library.
pub(crate) struct Builder {
    pub(crate) upstream: Config,
    pub(crate) rules: Rules,
    pub(crate) options: Options,
    pub(crate) http: HttpConfig,
    store: Option<Arc<dyn Store>>,
    listeners: Vec<Box<dyn LifecycleListener>>,
}

macro_rules! settings {
    ($($name:ident: $type:ty => $($place:ident).+),+ $(,)?) => {
        $(pub(crate) fn $name(mut self, value: $type) -> Self {
            self.$($place).+ = value;
            self
        })+
    };
}

impl Builder {
    /// Every default, but that what fails is tried again quickly. No server is checked for parallel
    /// calls, and there are no heartbeats: tests count requests and messages.
    fn new(replicas: Vec<Uri>) -> Self {
        let mut upstream = Config::http(replicas);
        upstream.timeouts.misrouted = Duration::ZERO;
        upstream.calls.concurrency = Concurrency::Unlimited;
        upstream.unavailable_timeout = Duration::from_millis(500);
        upstream.backoff = Backoff {
            first: Duration::from_millis(5),
            longest: Duration::from_millis(400),
            attempts: 4,
            ..Backoff::default()
        };
        Self {
            upstream,
            rules: Rules::default(),
            options: Options { heartbeat: Duration::ZERO, ..Options::default() },
            http: HttpConfig::default(),
            store: None,
            listeners: Vec::new(),
        }
    }

    settings!(
        patience: Duration => upstream.unavailable_timeout,
        limits: Limits => rules.limits,
        timing: Timing => rules.timing,
        duplicate_ids: DuplicateIds => http.duplicate_ids,
        call_deadline: Duration => options.call_deadline,
        wind_down: Duration => options.wind_down,
        heartbeat: Duration => options.heartbeat,
        server_request_deadline: Duration => options.server_request_deadline,
        queued_server_requests: usize => options.queued_server_requests,
        notifications: usize => options.notifications,
        notifications_in_all: usize => options.notifications_in_all,
        notification_deadline: Duration => options.notification_deadline,
        response: ResponseMode => http.response,
        keep_alive: Duration => http.keep_alive,
        auth_wait: Duration => http.auth_wait,
    );

    pub(crate) fn upstream(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.upstream);
        self
    }

    pub(crate) fn custom_store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    pub(crate) fn max_connection_age(mut self, age: Duration) -> Self {
        self.http.max_connection_age = Some(age);
        self
    }

    pub(crate) fn server_request_order(mut self, order: ServerRequestOrder) -> Self {
        self.options.server_request_order = order;
        if order == ServerRequestOrder::Strict {
            self.rules.limits.server_requests = 1;
        }
        self
    }

    pub(crate) fn on_session_event(mut self, listener: impl FnMut(SessionEvent) + Send + 'static) -> Self {
        self.listeners.push(Box::new(listener));
        self
    }
}
