//! A host: one server process, as good as that can be had inside another.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use steadfast::{Builder, ManualClock, Server, StoreUrl, Time};
use steadfast_http::listen;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use super::{Gates, Heard, TestHandler, within};

/// Where sessions are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    Memory,
    Sqlite,
    #[cfg(feature = "redis")]
    Redis,
}

impl Backing {
    /// Whether sessions outlive the process.
    pub(crate) fn keeps(self) -> bool {
        self != Self::Memory
    }
}

/// A place on the Redis server of this test process. Nodes are taken for dead sooner than in earnest.
#[cfg(feature = "redis")]
pub(crate) fn redis_address(prefix: &str) -> String {
    let server = steadfast_store::testing::server::RedisServer::shared().expect("a Redis server");
    format!("{}?prefix={prefix}&node_ttl=1000", server.url())
}

#[cfg(feature = "redis")]
pub(crate) fn redis(prefix: &str, rules: steadfast_session::Rules) -> steadfast_store::RedisStore {
    let options = steadfast_store::RedisOptions::parse(&redis_address(prefix)).expect("an address");
    steadfast_store::RedisStore::open(rules, options).expect("the store opens")
}

#[cfg(feature = "redis")]
fn redis_url(prefix: &str) -> StoreUrl {
    redis_address(prefix).parse().expect("an address")
}

#[cfg(not(feature = "redis"))]
fn redis_url(_prefix: &str) -> StoreUrl {
    StoreUrl::Memory
}

/// Settings of a server.
pub(crate) type Configure = Arc<dyn Fn(Builder<TestHandler>) -> Builder<TestHandler> + Send + Sync>;

/// A server on a port of its own, on a runtime of its own: when that ends, all its tasks do, as in a process.
pub(crate) struct Host {
    configure: Configure,
    /// Holds the SQLite file; gone with the last host that uses it.
    directory: Option<Arc<TempDir>>,
    /// The prefix of its keys in Redis.
    prefix: Option<String>,
    process: Option<Process>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) gates: Gates,
    pub(crate) heard: Heard,
}

struct Process {
    runtime: Runtime,
    server: Server,
    address: SocketAddr,
    /// Dropped, it stops the accept loop.
    stop: oneshot::Sender<()>,
}

impl Host {
    pub(crate) async fn start(
        backing: Backing,
        configure: impl Fn(Builder<TestHandler>) -> Builder<TestHandler> + Send + Sync + 'static,
    ) -> Self {
        let directory = match backing {
            Backing::Memory => None,
            #[cfg(feature = "redis")]
            Backing::Redis => None,
            Backing::Sqlite => Some(Arc::new(TempDir::new().expect("a directory for the store"))),
        };
        let mut host = Self {
            configure: Arc::new(configure),
            directory,
            prefix: prefix(backing),
            process: None,
            clock: Arc::new(ManualClock::new(Time(1_800_000_000_000))),
            gates: Gates::default(),
            heard: Heard::new(),
        };
        host.launch().await;
        host
    }

    /// A host with every default.
    pub(crate) async fn plain(backing: Backing) -> Self {
        Self::start(backing, |builder| builder).await
    }

    /// Another process on the same SQLite file, with the same clock and gates and its own listener.
    pub(crate) async fn beside(&self) -> Self {
        assert!(self.directory.is_some() || self.prefix.is_some(), "memory cannot be shared");
        let mut other = Self {
            configure: Arc::clone(&self.configure),
            directory: self.directory.clone(),
            prefix: self.prefix.clone(),
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

    pub(crate) fn address(&self) -> SocketAddr {
        self.running().address
    }

    /// Goes down in good order.
    pub(crate) async fn stop(&mut self) {
        let Some(Process { runtime, server, stop, .. }) = self.process.take() else { return };
        within("the drain", server.drain(Duration::ZERO)).await;
        drop(stop);
        end(runtime, server).await;
    }

    /// Ends at once, as with `kill -9`: nothing is drained, nothing is told to anybody.
    pub(crate) async fn crash(&mut self) {
        let Some(Process { runtime, server, .. }) = self.process.take() else { return };
        end(runtime, server).await;
    }

    /// Ends at once, and starts again with the same store on another port.
    pub(crate) async fn restart(&mut self) {
        self.crash().await;
        self.launch().await;
    }

    /// Files in the directory of its store that say which processes live.
    #[allow(dead_code, reason = "not every test binary buries the living")]
    pub(crate) fn signs_of_life(&self) -> Vec<std::path::PathBuf> {
        let directory = self.directory.as_ref().expect("a SQLite file").path();
        let files = std::fs::read_dir(directory).expect("the directory");
        let paths = files.map(|file| file.expect("a file").path());
        paths.filter(|path| path.to_string_lossy().contains("-node-")).collect()
    }

    /// Lets time pass and does what that demands.
    pub(crate) async fn sweep_after(&self, time: Duration) {
        self.clock.advance(time);
        within("the sweep", self.server().sweep()).await.expect("the store works");
    }

    fn running(&self) -> &Process {
        self.process.as_ref().expect("the host runs")
    }

    async fn launch(&mut self) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime for the host");
        let (gates, heard) = (self.gates.clone(), self.heard.clone());
        let url = match &self.directory {
            Some(directory) => StoreUrl::Sqlite(directory.path().join("sessions.db")),
            None => match &self.prefix {
                Some(prefix) => redis_url(prefix),
                None => StoreUrl::Memory,
            },
        };
        let factory = move || {
            // A test that has marked this gate wants to see what a factory that fails does.
            assert_eq!(gates.count("broken factory"), 0, "the factory is broken");
            TestHandler::new(gates.clone())
        };
        let builder = Server::builder(factory)
            .store(url)
            .clock(self.clock.clone())
            .on_session_event(move |event| heard.note(&event));
        let builder = (self.configure)(builder);
        let (stop, stopped) = oneshot::channel::<()>();
        let started = runtime.spawn(async move {
            let server = builder.start().await.expect("the server starts");
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("an address");
            let service = server.service();
            tokio::spawn(async move {
                let told = async {
                    let _ = stopped.await;
                };
                let limits = listen::Limits { farewell: Duration::ZERO, ..listen::Limits::default() };
                listen::serve(listener, service, limits, told).await.expect("the accept loop");
            });
            (server, address)
        });
        let (server, address) = within("the start of a host", started).await.expect("the host starts");
        self.process = Some(Process { runtime, server, address, stop });
    }
}

fn prefix(backing: Backing) -> Option<String> {
    #[cfg(feature = "redis")]
    if backing == Backing::Redis {
        return Some(steadfast_store::testing::server::fresh_name());
    }
    let _ = backing;
    None
}

async fn end(runtime: Runtime, server: Server) {
    let ending = tokio::task::spawn_blocking(move || {
        drop(server);
        runtime.shutdown_timeout(Duration::from_secs(10));
    });
    within("the end of a host", ending).await.expect("the host ends");
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            process.runtime.shutdown_background();
        }
    }
}
