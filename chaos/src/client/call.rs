//! One call of a client, from its request to its outcome, as the protocol requires.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use steadfast_verify::Seen;
use steadfast_wire::sse::Event;

use super::http::RequestError;
use super::reader::{Next, Reader, StreamId};
use super::server_requests;
use super::session::{ListenResult, RETRY_PAUSE, Session, is_retryable};
use crate::server::Tool;

/// How often a client sends a request that is refused.
const MAX_ATTEMPTS: usize = 6;
/// How long a client waits for the end of a stream after the answer.
const STREAM_END_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest retry delay that a client accepts from a server.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(2);

/// What a client does with one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallSpec {
    pub(crate) tool: Tool,
    /// How long the server takes for the call, in milliseconds.
    pub(crate) ms: u64,
    /// Cancels the call after this time.
    pub(crate) cancel: Option<Duration>,
    /// Whether the client reads the whole stream again after the answer.
    pub(crate) reread: bool,
}

/// Result of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestResult {
    /// No retry is needed: the request was accepted and its stream was read, or the refusal is
    /// final.
    Done,
    /// The request was refused without being executed, so the client may retry.
    Refused,
    /// The client cannot find out whether the request was executed.
    Unknown,
}

/// Makes a call. Retries if the request was refused, or if its outcome is unknown and the tool is
/// idempotent. Each attempt is another call with another name in the history.
pub(crate) async fn make(session: &Arc<Session>, number: u64, spec: CallSpec) {
    for attempt in 0..MAX_ATTEMPTS {
        if session.is_over() {
            return;
        }
        let name = format!("{}.{number}.{attempt}", session.name);
        session.shared.in_flight.fetch_add(1, Ordering::Relaxed);
        let call = Call { session, name, id: session.next_id(), spec };
        let result = call.run().await;
        session.shared.in_flight.fetch_sub(1, Ordering::Relaxed);
        match result {
            RequestResult::Done => return,
            // The fault lasts for a while, and the number of attempts is limited.
            RequestResult::Refused | RequestResult::Unknown => tokio::time::sleep(RETRY_PAUSE * 2).await,
        }
        if result == RequestResult::Unknown && !spec.tool.is_read_only() {
            return;
        }
    }
}

struct Call<'a> {
    session: &'a Arc<Session>,
    name: String,
    id: i64,
    spec: CallSpec,
}

/// How far the client has read a stream.
#[derive(Debug, Default)]
struct StreamState {
    /// The first event id, to read the stream again from there.
    first: Option<String>,
    last: Option<String>,
    retry: Option<Duration>,
    is_accepted: bool,
    is_answered: bool,
}

impl Call<'_> {
    async fn run(&self) -> RequestResult {
        self.record(Seen::Sent {
            call: self.name.clone(),
            session: self.session.name.clone(),
            id: self.id,
            tool: self.spec.tool.name().to_owned(),
            safe: self.spec.tool.is_read_only(),
        });
        let response = match self.session.post(&self.request()).await {
            Ok(response) => response,
            Err(RequestError::NotSent) => return self.refused(0, "no connection".to_owned()),
            Err(RequestError::Broken(why)) => return self.unheard(why),
        };
        let status = response.status;
        if status == StatusCode::OK && response.is_stream() {
            let reader = Reader::new(&self.session.shared.recorder, &self.stream_id(), None, response);
            return self.read_stream(reader).await;
        }
        // The gateway refuses with a JSON-RPC error. Another body comes from nginx, which does not
        // know whether the gateway has executed the request.
        match response.json().await {
            Ok(answer) if answer["error"]["data"]["reason"] == "outcome_unknown" => {
                self.unheard("the gateway answered outcome_unknown".to_owned())
            }
            Ok(answer) if answer["error"].is_object() => {
                let reason = answer["error"]["message"].as_str().unwrap_or_default().to_owned();
                self.refused(status.as_u16(), reason)
            }
            _ => self.unheard(format!("status {status}")),
        }
    }

    fn request(&self) -> Value {
        json!({"jsonrpc": "2.0", "id": self.id, "method": "tools/call", "params": {
            "name": self.spec.tool.name(),
            "arguments": {"call": self.name, "ms": self.spec.ms},
            "_meta": {"progressToken": self.name}}})
    }

    /// Reads the stream until it ends, and resumes it when the connection breaks. Meanwhile cancels
    /// the call if the client is to do that.
    async fn read_stream(&self, reader: Reader) -> RequestResult {
        let mut state = StreamState::default();
        let answered = {
            let mut cancelling = std::pin::pin!(self.cancel_after_delay());
            let mut reading = std::pin::pin!(self.read_until_answered(reader, &mut state));
            let mut is_cancelled = false;
            loop {
                tokio::select! {
                    answered = &mut reading => break answered,
                    () = &mut cancelling, if !is_cancelled => is_cancelled = true,
                }
            }
        };
        let Some(mut reader) = answered else {
            return if state.is_accepted {
                RequestResult::Done
            } else {
                self.unheard("the stream broke before its first event".to_owned())
            };
        };
        if self.read_to_end(&mut reader, &mut state).await && self.spec.reread {
            self.reread(&state).await;
        }
        RequestResult::Done
    }

    /// Returns the reader that has read the answer; `None` if there will be no answer.
    async fn read_until_answered(&self, mut reader: Reader, state: &mut StreamState) -> Option<Reader> {
        loop {
            let ended = loop {
                match reader.next().await {
                    Next::Event(event) => self.take(&event, state),
                    Next::Ended => break true,
                    Next::Broken => break false,
                }
                if state.is_answered {
                    return Some(reader);
                }
            };
            if ended && self.spec.cancel.is_some() && state.retry.is_none() {
                // The stream of a cancelled call may end without an answer.
                return None;
            }
            reader = self.resume(state).await?;
        }
    }

    /// Resumes the stream. `None` if the gateway refuses that, or the session is over.
    async fn resume(&self, state: &mut StreamState) -> Option<Reader> {
        let last = state.last.clone()?;
        loop {
            tokio::time::sleep(state.retry.take().unwrap_or(RETRY_PAUSE)).await;
            if self.session.is_over() {
                self.record(Seen::Abandoned { call: self.name.clone() });
                return None;
            }
            match self.session.listen(&self.stream_id(), Some(&last)).await {
                ListenResult::Stream(reader) => return Some(*reader),
                ListenResult::RetryLater => {}
                ListenResult::Refused => return None,
            }
        }
    }

    fn take(&self, event: &Event, state: &mut StreamState) {
        if let Some(ms) = event.retry_ms {
            state.retry = Some(Duration::from_millis(ms).min(MAX_RETRY_DELAY));
        }
        if let Some(id) = &event.id {
            state.first.get_or_insert_with(|| id.clone());
            state.last = Some(id.clone());
        }
        if event.id.is_none() && event.data.is_empty() {
            return;
        }
        if !state.is_accepted {
            state.is_accepted = true;
            self.record(Seen::Accepted { call: self.name.clone() });
        }
        let Ok(message) = serde_json::from_slice::<Value>(&event.data) else { return };
        match (message.get("method").and_then(Value::as_str), message.get("id")) {
            (Some(_), Some(_)) => server_requests::answer(self.session, message),
            (None, Some(id)) if *id == json!(self.id) => state.is_answered = true,
            _ => {}
        }
    }

    /// Reads the rest of the stream. Returns true if the stream ended regularly.
    async fn read_to_end(&self, reader: &mut Reader, state: &mut StreamState) -> bool {
        let reading = async {
            loop {
                match reader.next().await {
                    Next::Event(event) => self.take(&event, state),
                    Next::Ended => return true,
                    Next::Broken => return false,
                }
            }
        };
        let ended = tokio::time::timeout(STREAM_END_TIMEOUT, reading).await;
        ended.unwrap_or_else(|_| {
            reader.record_broken();
            false
        })
    }

    /// Reads the whole stream again. The promise `replay` compares the events.
    async fn reread(&self, state: &StreamState) {
        if self.session.is_over() {
            return;
        }
        let result = self.session.listen(&self.stream_id(), state.first.as_deref()).await;
        if let ListenResult::Stream(mut reader) = result {
            self.read_to_end(&mut reader, &mut StreamState { is_accepted: true, ..StreamState::default() })
                .await;
        }
    }

    /// Cancels the call after the delay in its spec, if it has one.
    async fn cancel_after_delay(&self) {
        let Some(after) = self.spec.cancel else { return };
        tokio::time::sleep(after).await;
        self.record(Seen::Cancelled { call: self.name.clone() });
        let params = json!({"requestId": self.id, "reason": "cancelled by the user"});
        self.session
            .post_until_decided(
                &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}),
            )
            .await;
    }

    fn refused(&self, status: u16, reason: String) -> RequestResult {
        self.record(Seen::Refused { call: self.name.clone(), status, reason });
        let may_retry = status == 0 || StatusCode::from_u16(status).is_ok_and(is_retryable);
        if may_retry { RequestResult::Refused } else { RequestResult::Done }
    }

    fn unheard(&self, why: String) -> RequestResult {
        self.record(Seen::Unheard { call: self.name.clone(), why });
        RequestResult::Unknown
    }

    fn stream_id(&self) -> StreamId {
        self.session.stream_id(Some(&self.name))
    }

    fn record(&self, seen: Seen) {
        self.session.shared.recorder.record(seen);
    }
}
