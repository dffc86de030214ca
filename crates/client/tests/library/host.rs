//! A server built with the steadfast library, on its own port.

use std::net::SocketAddr;
use std::time::Duration;

use steadfast::{Server, SessionEventKind};
use steadfast_client::Uri;
use steadfast_http::listen;
use tokio::sync::watch;

use super::handler::{Handler, Marks};

pub(crate) struct Host {
    pub(crate) address: SocketAddr,
    pub(crate) marks: Marks,
    events: watch::Sender<Vec<SessionEventKind>>,
    _server: Server,
}

impl Host {
    pub(crate) async fn start() -> Self {
        let (marks, events) = (Marks::default(), watch::Sender::<Vec<SessionEventKind>>::default());
        let (handlers, expect_events) = (marks.clone(), events.clone());
        let server = Server::builder(move || Handler { marks: handlers.clone() })
            // A client that was cut off may resume immediately.
            .retry(Duration::from_millis(1))
            .on_session_event(move |event| expect_events.send_modify(|events| events.push(event.kind)))
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

    /// Waits for this many events of a kind, and checks that no more follow.
    pub(crate) async fn expect_events(
        &self,
        what: &str,
        count: usize,
        which: impl Fn(&SessionEventKind) -> bool,
    ) {
        let of_kind = |events: &Vec<SessionEventKind>| events.iter().filter(|kind| which(kind)).count();
        let mut events = self.events.subscribe();
        let events = crate::support::within(what, events.wait_for(|events| of_kind(events) >= count)).await;
        assert_eq!(of_kind(&events.expect("the host is there")), count, "{what}");
    }
}
