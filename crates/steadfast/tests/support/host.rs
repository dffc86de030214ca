//! A host: one server process, as good as that can be had inside another.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use steadfast::{Builder, ManualClock, Server, Time};
use steadfast_http::listen;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use super::place::{Backing, Place};
use super::{Gates, Heard, TestHandler, within};

/// Settings of a server.
pub(crate) type Configure = Arc<dyn Fn(Builder<TestHandler>) -> Builder<TestHandler> + Send + Sync>;

/// A server on a port of its own, on a runtime of its own: when that ends, all its tasks do, as in
/// a process.
pub(crate) struct Host {
    configure: Configure,
    place: Place,
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
        Self::start_on(backing.place(), configure).await
    }

    pub(crate) async fn start_on(
        place: Place,
        configure: impl Fn(Builder<TestHandler>) -> Builder<TestHandler> + Send + Sync + 'static,
    ) -> Self {
        let mut host = Self {
            configure: Arc::new(configure),
            place,
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

    /// Another process in the same place, with the same clock and gates and its own listener.
    pub(crate) async fn beside(&self) -> Self {
        assert!(!matches!(self.place, Place::Memory), "memory cannot be shared");
        let mut other = Self {
            configure: Arc::clone(&self.configure),
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

    /// Ends at once, as with `kill -9`: the host drains nothing and notifies no client and no node.
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
    #[allow(dead_code, reason = "not every test binary makes a running node look dead")]
    pub(crate) fn signs_of_life(&self) -> Vec<std::path::PathBuf> {
        self.place.signs_of_life()
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
        let factory = move || {
            // A test that has marked this gate wants to see what a factory that fails does.
            assert_eq!(gates.count("broken factory"), 0, "the factory is broken");
            TestHandler::new(gates.clone())
        };
        let builder = Server::builder(factory)
            .store(self.place.url())
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
                let limits = listen::Limits { shutdown_grace: Duration::ZERO, ..listen::Limits::default() };
                listen::serve(listener, service, limits, told).await.expect("the accept loop");
            });
            (server, address)
        });
        let (server, address) = within("the start of a host", started).await.expect("the host starts");
        self.process = Some(Process { runtime, server, address, stop });
    }
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
