//! Reads the messages of a response one by one, from SSE events or from a plain JSON body.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;
use steadfast_wire::sse::{Decoder, Ending, Limits};
use tokio::time::{Instant, timeout_at};

use super::exchange::{Connection, Response};
use crate::servers::outcome::Outcome;

const LIMITS: Limits = Limits { max_line_bytes: 8 << 20, max_event_bytes: 8 << 20 };

/// Dropping this value before the end of the stream cuts the connection.
#[derive(Debug)]
pub(crate) struct Stream {
    body: Incoming,
    /// `None` for a body that is one JSON message.
    decoder: Option<Decoder>,
    /// Bytes that are received and not decoded yet.
    ahead: Bytes,
    /// The id to resume from.
    last_event_id: Option<String>,
    _connection: Connection,
}

impl Stream {
    /// The response must have a status of success.
    pub(super) fn new(response: Response) -> Self {
        let kind = response.head.headers.get("content-type").and_then(|kind| kind.to_str().ok());
        let is_events = kind.is_some_and(|kind| kind.starts_with("text/event-stream"));
        Self {
            body: response.body,
            decoder: is_events.then(|| Decoder::new(LIMITS)),
            ahead: Bytes::new(),
            last_event_id: None,
            _connection: response.connection,
        }
    }

    pub(crate) fn last_event_id(&self) -> Option<&str> {
        self.last_event_id.as_deref()
    }

    /// Returns the next message, or `None` at the end. An error says how the connection was lost.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>, String> {
        while let Some(data) = self.next_data().await? {
            if !data.is_empty() {
                let message = serde_json::from_slice(&data);
                return message.map(Some).map_err(|error| format!("the event is not JSON: {error}"));
            }
        }
        Ok(None)
    }

    /// Reads until an event id is known. Returns false if none arrives in time. Messages that
    /// arrive until then are dropped.
    pub(crate) async fn wait_for_event_id(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while self.last_event_id.is_none() {
            if !matches!(timeout_at(deadline, self.next_data()).await, Ok(Ok(Some(_)))) {
                return false;
            }
        }
        true
    }

    /// Waits for the outcome of a call. Other messages that arrive meanwhile go to `others`.
    pub(crate) async fn outcome(&mut self, id: &Value, limit: Duration, others: &mut Vec<Value>) -> Outcome {
        let deadline = Instant::now() + limit;
        loop {
            match timeout_at(deadline, self.next()).await {
                Err(_) => return Outcome::Hangs,
                Ok(Err(how)) => return Outcome::Lost(how),
                Ok(Ok(None)) => return Outcome::Lost("the stream ended".to_owned()),
                Ok(Ok(Some(message))) if message.get("method").is_none() && message.get("id") == Some(id) => {
                    return Outcome::of(&message);
                }
                Ok(Ok(Some(message))) => others.push(message),
            }
        }
    }

    /// Returns the data of the next event, which may be empty, or the whole plain body. Returns
    /// `None` at the end.
    async fn next_data(&mut self) -> Result<Option<Bytes>, String> {
        let Some(decoder) = &mut self.decoder else {
            let whole = (&mut self.body).collect().await.map_err(|error| error.to_string())?.to_bytes();
            return Ok((!whole.is_empty()).then_some(whole));
        };
        loop {
            if let Some(event) = decoder.decode(&mut self.ahead).map_err(|error| error.to_string())? {
                if event.id.is_some() {
                    self.last_event_id = event.id;
                }
                return Ok(Some(event.data));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.ahead = frame.into_data().unwrap_or_default(),
                Some(Err(error)) => return Err(error.to_string()),
                None if decoder.finish() == Ending::Truncated => {
                    return Err("the stream ended inside an event".into());
                }
                None => return Ok(None),
            }
        }
    }
}
