//! A session as its client knows it: how it is opened, used and ended by the rules of the protocol.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use steadfast_verify::Seen;

use super::http::{NoResponse, Response, send};
use super::reader::{Reader, Subject};
use crate::recorder::Recorder;
use crate::rng::Rng;
use crate::tickets::Tickets;

/// How long to wait after somebody was not there.
pub(crate) const PAUSE: Duration = Duration::from_millis(200);

/// What all clients of a run share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) address: SocketAddr,
    pub(crate) recorder: Recorder,
    pub(crate) tickets: Tickets,
    /// Calls that were sent and have no outcome yet.
    pub(crate) in_flight: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) shared: Arc<Shared>,
    /// Ours, for the history.
    pub(crate) name: String,
    id: String,
    version: &'static str,
    next_id: AtomicI64,
    /// The client has ended it, or the server denies it.
    over: AtomicBool,
    rng: Mutex<Rng>,
    /// Asks that were answered, by their id as JSON text.
    answered: Mutex<BTreeSet<String>>,
}

impl Session {
    /// Opens one, however often that takes. `None` when the run is over.
    pub(crate) async fn open(
        shared: &Arc<Shared>,
        name: String,
        version: &'static str,
        rng: Rng,
    ) -> Option<Arc<Self>> {
        let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": version,
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "steadfast-chaos", "version": "0"}}});
        let headers = post_headers();
        while !shared.tickets.is_over() {
            let response = send(shared.address, Method::POST, &headers, Some(&initialize)).await;
            // Whatever came of the one before: a session that nobody knows of harms nobody.
            if let Ok(response) = response
                && response.status == StatusCode::OK
                && let Some(id) = response.headers.get("mcp-session-id").and_then(|id| id.to_str().ok())
            {
                let id = id.to_owned();
                if response.json().await.is_ok_and(|answer| answer.get("result").is_some()) {
                    return Some(Self::opened(shared, name, id, version, rng).await);
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        None
    }

    async fn opened(
        shared: &Arc<Shared>,
        name: String,
        id: String,
        version: &'static str,
        rng: Rng,
    ) -> Arc<Self> {
        shared.recorder.note(Seen::Opened { session: name.clone() });
        let session = Arc::new(Self {
            shared: Arc::clone(shared),
            name,
            id,
            version,
            next_id: AtomicI64::new(1),
            over: AtomicBool::new(false),
            rng: Mutex::new(rng),
            answered: Mutex::default(),
        });
        session.tell(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        session
    }

    pub(crate) fn next_id(&self) -> i64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire) || self.shared.tickets.is_over()
    }

    pub(crate) fn rng(&self) -> MutexGuard<'_, Rng> {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this ask was never answered before.
    pub(crate) fn is_new_ask(&self, id: &str) -> bool {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned())
    }

    pub(crate) fn subject(&self, call: Option<&str>) -> Subject {
        Subject { session: self.name.clone(), call: call.map(str::to_owned) }
    }

    /// Posts a message, once.
    pub(crate) async fn post(&self, message: &Value) -> Result<Response, NoResponse> {
        let mut headers = post_headers();
        headers.extend(self.headers());
        let response = send(self.shared.address, Method::POST, &headers, Some(message)).await?;
        self.look_for_an_end(response.status, "POST");
        Ok(response)
    }

    /// Posts a notification or an answer until somebody says yes or no to it. The status of that; 0 if the run is over first.
    pub(crate) async fn tell(&self, message: &Value) -> u16 {
        while !self.is_over() {
            if let Ok(response) = self.post(message).await
                && !is_passing(response.status)
            {
                return response.status.as_u16();
            }
            tokio::time::sleep(PAUSE).await;
        }
        0
    }

    /// Listens to a stream: after an event, or to a standalone one.
    pub(crate) async fn listen(&self, subject: &Subject, after: Option<&str>) -> Listening {
        let mut headers = vec![("accept", "text/event-stream".to_owned())];
        headers.extend(self.headers());
        headers.extend(after.map(|after| ("last-event-id", after.to_owned())));
        let Ok(response) = send(self.shared.address, Method::GET, &headers, None).await else {
            return Listening::NotNow;
        };
        let status = response.status;
        if status == StatusCode::OK && response.is_stream() {
            let reader = Reader::new(&self.shared.recorder, subject, after, response);
            return Listening::Stream(Box::new(reader));
        }
        if is_passing(status) || self.is_over() {
            return Listening::NotNow;
        }
        self.look_for_an_end(status, "GET");
        let reason = response.json().await.map(|answer| answer["error"]["message"].to_string());
        let Subject { session, call: of } = subject.clone();
        let (after, reason) = (after.unwrap_or_default().to_owned(), reason.unwrap_or_default());
        let refused = Seen::NotResumed { session, of, after, status: status.as_u16(), reason };
        self.shared.recorder.note(refused);
        Listening::Refused
    }

    /// Ends it, by DELETE.
    pub(crate) async fn delete(&self) {
        self.shared.recorder.note(Seen::Deleted { session: self.name.clone() });
        self.over.store(true, Ordering::Release);
        for _ in 0..10 {
            let deleted = send(self.shared.address, Method::DELETE, &self.headers(), None).await;
            if deleted.is_ok_and(|response| !is_passing(response.status)) {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn headers(&self) -> Vec<(&'static str, String)> {
        vec![("mcp-session-id", self.id.clone()), ("mcp-protocol-version", self.version.to_owned())]
    }

    fn look_for_an_end(&self, status: StatusCode, on: &str) {
        if status == StatusCode::NOT_FOUND && !self.over.swap(true, Ordering::AcqRel) {
            self.shared.recorder.note(Seen::Lost { session: self.name.clone(), on: on.to_owned() });
        }
    }
}

/// What comes of an attempt to listen.
#[derive(Debug)]
pub(crate) enum Listening {
    Stream(Box<Reader>),
    /// Nobody was there, or they ask for patience.
    NotNow,
    /// For good. It is written down.
    Refused,
}

/// Whether a status says that the same thing may be tried again.
pub(crate) fn is_passing(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}

fn post_headers() -> Vec<(&'static str, String)> {
    vec![
        ("content-type", "application/json".to_owned()),
        ("accept", "application/json, text/event-stream".to_owned()),
    ]
}
