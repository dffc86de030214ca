//! A session of a client: opens, uses and ends it as the protocol requires.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use steadfast_verify::Seen;

use super::http::{RequestError, Response, send};
use super::reader::{Reader, StreamId};
use crate::call_schedule::CallSchedule;
use crate::recorder::Recorder;
use crate::rng::Rng;

/// How long a client waits before it retries.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// What all clients of a run share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) address: SocketAddr,
    pub(crate) recorder: Recorder,
    pub(crate) schedule: CallSchedule,
    /// The number of calls that were sent and have no outcome yet.
    pub(crate) in_flight: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) shared: Arc<Shared>,
    /// The session's name in the history.
    pub(crate) name: String,
    /// The value of `Mcp-Session-Id`.
    id: String,
    version: &'static str,
    next_id: AtomicI64,
    /// The client has ended the session, or the gateway does not know it.
    over: AtomicBool,
    rng: Mutex<Rng>,
    /// The ids of the server requests that were answered, as JSON text.
    answered: Mutex<BTreeSet<String>>,
}

impl Session {
    /// Opens a session, and retries until that succeeds. `None` if the schedule was stopped.
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
        while !shared.schedule.is_stopped() {
            let response = send(shared.address, Method::POST, &headers, Some(&initialize)).await;
            // An earlier attempt may have opened a session too. Without a client it does no harm.
            if let Ok(response) = response
                && response.status == StatusCode::OK
                && let Some(id) = response.headers.get("mcp-session-id").and_then(|id| id.to_str().ok())
            {
                let id = id.to_owned();
                if response.json().await.is_ok_and(|answer| answer.get("result").is_some()) {
                    return Some(Self::opened(shared, name, id, version, rng).await);
                }
            }
            tokio::time::sleep(RETRY_PAUSE).await;
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
        shared.recorder.record(Seen::Opened { session: name.clone() });
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
        session.post_until_decided(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        session
    }

    pub(crate) fn next_id(&self) -> i64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire) || self.shared.schedule.is_stopped()
    }

    pub(crate) fn rng(&self) -> MutexGuard<'_, Rng> {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if this server request was not answered before.
    pub(crate) fn is_first_delivery(&self, id: &str) -> bool {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned())
    }

    pub(crate) fn stream_id(&self, call: Option<&str>) -> StreamId {
        StreamId { session: self.name.clone(), call: call.map(str::to_owned) }
    }

    /// Posts a message without a retry.
    pub(crate) async fn post(&self, message: &Value) -> Result<Response, RequestError> {
        let mut headers = post_headers();
        headers.extend(self.headers());
        let response = send(self.shared.address, Method::POST, &headers, Some(message)).await?;
        self.record_if_lost(response.status, "POST");
        Ok(response)
    }

    /// Posts a notification or an answer until the gateway accepts or refuses it. Returns the
    /// status, or 0 if the session is over first.
    pub(crate) async fn post_until_decided(&self, message: &Value) -> u16 {
        while !self.is_over() {
            if let Ok(response) = self.post(message).await
                && !is_retryable(response.status)
            {
                return response.status.as_u16();
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        0
    }

    /// Resumes a stream after an event, or opens a standalone stream.
    pub(crate) async fn listen(&self, stream_id: &StreamId, after: Option<&str>) -> ListenResult {
        let mut headers = vec![("accept", "text/event-stream".to_owned())];
        headers.extend(self.headers());
        headers.extend(after.map(|after| ("last-event-id", after.to_owned())));
        let Ok(response) = send(self.shared.address, Method::GET, &headers, None).await else {
            return ListenResult::RetryLater;
        };
        let status = response.status;
        if status == StatusCode::OK && response.is_stream() {
            let reader = Reader::new(&self.shared.recorder, stream_id, after, response);
            return ListenResult::Stream(Box::new(reader));
        }
        if is_retryable(status) || self.is_over() {
            return ListenResult::RetryLater;
        }
        self.record_if_lost(status, "GET");
        let reason = response.json().await.map(|answer| answer["error"]["message"].to_string());
        let StreamId { session, call: of } = stream_id.clone();
        let (after, reason) = (after.unwrap_or_default().to_owned(), reason.unwrap_or_default());
        let refused = Seen::NotResumed { session, of, after, status: status.as_u16(), reason };
        self.shared.recorder.record(refused);
        ListenResult::Refused
    }

    /// Ends the session with DELETE.
    pub(crate) async fn delete(&self) {
        self.shared.recorder.record(Seen::Deleted { session: self.name.clone() });
        self.over.store(true, Ordering::Release);
        for _ in 0..10 {
            let deleted = send(self.shared.address, Method::DELETE, &self.headers(), None).await;
            if deleted.is_ok_and(|response| !is_retryable(response.status)) {
                return;
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    fn headers(&self) -> Vec<(&'static str, String)> {
        vec![("mcp-session-id", self.id.clone()), ("mcp-protocol-version", self.version.to_owned())]
    }

    /// Records that the gateway does not know the session any more.
    fn record_if_lost(&self, status: StatusCode, on: &str) {
        if status == StatusCode::NOT_FOUND && !self.over.swap(true, Ordering::AcqRel) {
            self.shared.recorder.record(Seen::Lost { session: self.name.clone(), on: on.to_owned() });
        }
    }
}

/// Result of an attempt to read a stream.
#[derive(Debug)]
pub(crate) enum ListenResult {
    Stream(Box<Reader>),
    /// No connection, or a status that allows a retry.
    RetryLater,
    /// A final refusal, which is in the history.
    Refused,
}

/// Returns true if the same request may be sent again after this status.
pub(crate) fn is_retryable(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}

fn post_headers() -> Vec<(&'static str, String)> {
    vec![
        ("content-type", "application/json".to_owned()),
        ("accept", "application/json, text/event-stream".to_owned()),
    ]
}
