//! A server of the library on a port of its own.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use steadfast::{Server, SessionEventKind};
use steadfast_client::Uri;
use steadfast_http::listen;

use super::handler::{Handler, Marks};

pub(crate) struct Host {
    pub(crate) address: SocketAddr,
    pub(crate) marks: Marks,
    events: Arc<Mutex<Vec<SessionEventKind>>>,
    _server: Server,
}

impl Host {
    pub(crate) async fn start() -> Self {
        let (marks, events) = (Marks::default(), Arc::<Mutex<Vec<SessionEventKind>>>::default());
        let (handlers, heard) = (marks.clone(), Arc::clone(&events));
        let server = Server::builder(move || Handler { marks: handlers.clone() })
            // Whoever is cut off may come back at once.
            .retry(Duration::from_millis(1))
            .on_session_event(move |event| heard.lock().expect("events").push(event.kind))
            .start()
            .await
            .expect("the server starts");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let service = server.service();
        tokio::spawn(async move {
            let never = std::future::pending();
            listen::serve(listener, service, listen::Limits::default(), never)
                .await
                .expect("the accept loop");
        });
        Self { address, marks, events, _server: server }
    }

    pub(crate) fn url(&self) -> Uri {
        format!("http://{}/mcp", self.address).parse().expect("an address")
    }

    pub(crate) fn count(&self, which: impl Fn(&SessionEventKind) -> bool) -> usize {
        self.events.lock().expect("events").iter().filter(|kind| which(kind)).count()
    }
}
