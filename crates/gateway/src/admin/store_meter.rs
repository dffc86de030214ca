//! Counts what an endpoint does to the store, from outside.

use std::sync::Arc;

use serde::Deserialize;
use steadfast_session::command::{
    Answered, AskOpened, Attached, Begun, Cancelled, Finished, Position, Withdrawn,
};
use steadfast_session::{Command, Outcome as StoreOutcome};
use steadfast_store::{Reply, StoreError};
use tokio::time::Instant;

use super::metrics::{At, Event, Fault, Kind, Metrics, Operation, Outcome, seconds};

/// Errors that are the gateway's own, by their `data.reason`. Every other is the server's.
const OUR_ERRORS: [&str; 16] = [
    "bad_answer",
    "cancelled",
    "deadline",
    "handler_panicked",
    "not_started",
    "outcome_unknown",
    "over_limit",
    "overflow",
    "shutting_down",
    "store_unavailable",
    "unauthorized",
    "unavailable",
    "upstream_refused",
    "upstream_unavailable",
    "upstream_untrusted",
    "withdrawn",
];

/// The longest error that is looked into.
const MAX_ERROR_BYTES: usize = 64 << 10;

#[derive(Clone)]
pub(crate) struct StoreMeter {
    metrics: Arc<Metrics>,
    endpoint: String,
}

/// What a command is, before the store takes it.
#[derive(Clone, Copy)]
pub(crate) enum Noted {
    Begin { calls: u64 },
    Finish { outcome: &'static str },
    Cancel,
    OpenAsk,
    Answer,
    Withdraw,
    Attach { kind: &'static str },
    Other,
}

impl StoreMeter {
    pub(crate) fn new(metrics: Arc<Metrics>, endpoint: &str) -> Self {
        Self { metrics, endpoint: endpoint.to_owned() }
    }

    /// Watches a reply on its way.
    pub(crate) fn watch<T: Send + Unpin + 'static>(
        &self,
        operation: &'static str,
        begun: Instant,
        reply: Reply<T>,
        then: impl FnOnce(&Self, &T) + Send + 'static,
    ) -> Reply<T> {
        match reply {
            Reply::Ready(Some(outcome)) => {
                self.done(operation, begun, &outcome, then);
                Reply::ready(outcome)
            }
            later => {
                let meter = self.clone();
                Reply::later(async move {
                    let outcome = later.await;
                    meter.done(operation, begun, &outcome, then);
                    outcome
                })
            }
        }
    }

    fn done<T>(
        &self,
        operation: &'static str,
        begun: Instant,
        outcome: &Result<T, StoreError>,
        then: impl FnOnce(&Self, &T),
    ) {
        let took = self.metrics.store_seconds.get_or_create(&Operation { operation }).clone();
        took.observe(seconds(begun.elapsed()));
        match outcome {
            Ok(outcome) => then(self, outcome),
            Err(error) => {
                let kind = match error {
                    StoreError::Unavailable(_) => "unavailable",
                    StoreError::Unknown(_) => "unknown",
                    StoreError::Corrupt(_) => "corrupt",
                };
                self.metrics.store_errors.get_or_create(&Fault { operation, kind }).inc();
            }
        }
    }

    pub(crate) fn applied(&self, noted: Noted, outcome: &StoreOutcome) {
        let metrics = &self.metrics;
        let ask = |event| {
            metrics.asks.get_or_create(&Event { endpoint: self.endpoint.clone(), event }).inc();
        };
        match (noted, outcome) {
            (Noted::Begin { calls }, StoreOutcome::Begin(Begun::Begun { .. })) => {
                metrics.calls_begun.get_or_create(&At { endpoint: self.endpoint.clone() }).inc_by(calls);
            }
            (Noted::Finish { outcome }, StoreOutcome::Finish(Finished::Finished { .. })) => {
                self.finished(outcome)
            }
            (Noted::Cancel, StoreOutcome::Cancel(Cancelled::Cancelled { .. })) => self.finished("cancelled"),
            (Noted::OpenAsk, StoreOutcome::OpenAsk(AskOpened::Opened { .. })) => ask("sent"),
            (Noted::Answer, StoreOutcome::Answer(Answered::Answered { .. } | Answered::Kept { .. })) => {
                ask("answered")
            }
            (Noted::Withdraw, StoreOutcome::Withdraw(Withdrawn::Withdrawn)) => ask("withdrawn"),
            (Noted::Attach { kind }, StoreOutcome::Attach(Attached::Attached { .. })) => {
                metrics.attachments.get_or_create(&Kind { endpoint: self.endpoint.clone(), kind }).inc();
            }
            _ => {}
        }
    }

    fn finished(&self, outcome: &'static str) {
        let endpoint = self.endpoint.clone();
        self.metrics.calls_finished.get_or_create(&Outcome { endpoint, outcome }).inc();
    }
}

impl Noted {
    pub(crate) fn of(command: &Command) -> Self {
        match command {
            // One that is repeated because its outcome was unknown is counted by the repetition that says so.
            Command::Begin(begin) => Self::Begin { calls: begin.ids.len() as u64 },
            Command::Finish(finish) => Self::Finish { outcome: outcome(&finish.payload) },
            Command::Cancel(_) => Self::Cancel,
            Command::OpenAsk(_) => Self::OpenAsk,
            Command::Answer(_) => Self::Answer,
            Command::Withdraw(_) => Self::Withdraw,
            Command::Attach(attach) => match attach.at {
                Position::After { .. } => Self::Attach { kind: "resumed" },
                Position::Standalone => Self::Attach { kind: "standalone" },
            },
            _ => Self::Other,
        }
    }
}

/// What an answer says, in a word.
fn outcome(payload: &[u8]) -> &'static str {
    #[derive(Deserialize)]
    struct Response {
        error: Error,
    }
    #[derive(Deserialize)]
    struct Error {
        data: Option<Data>,
    }
    if !is_error(payload) {
        return "result";
    }
    let short = (payload.len() <= MAX_ERROR_BYTES).then_some(payload);
    let read = short.and_then(|payload| serde_json::from_slice::<Response>(payload).ok());
    known_reason(read.and_then(|response| response.error.data))
}

/// The outcome of a call that ended with an error whose `data` is this JSON text.
pub(super) fn outcome_of_error(data: Option<&str>) -> &'static str {
    let short = data.filter(|data| data.len() <= MAX_ERROR_BYTES);
    known_reason(short.and_then(|data| serde_json::from_str(data).ok()))
}

#[derive(Deserialize)]
struct Data {
    reason: Option<String>,
}

fn known_reason(data: Option<Data>) -> &'static str {
    let reason = data.and_then(|data| data.reason);
    let ours = OUR_ERRORS.into_iter().find(|ours| Some(*ours) == reason.as_deref());
    ours.unwrap_or("error")
}

/// Responses are made here, so they begin in one way: version, id, and then what they are. A result is not read for it.
fn is_error(payload: &[u8]) -> bool {
    let Some(rest) = payload.strip_prefix(br#"{"jsonrpc":"2.0","id":"#) else { return true };
    let mut escaped = false;
    let mut quoted = false;
    let id = rest.iter().position(|byte| {
        let is_end = !quoted && *byte == b',';
        quoted ^= *byte == b'"' && !escaped;
        escaped = !escaped && *byte == b'\\';
        is_end
    });
    id.is_none_or(|at| rest[at..].starts_with(br#","error""#))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes() {
        for (payload, expect) in [
            (r#"{"jsonrpc":"2.0","id":1,"result":{"error":1}}"#, "result"),
            (r#"{"jsonrpc":"2.0","id":"a,\"error\":\\","result":{}}"#, "result"),
            (r#"{"jsonrpc":"2.0","id":"a","error":{"code":1,"message":"x"}}"#, "error"),
            (
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x","data":{"reason":"deadline"}}}"#,
                "deadline",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x","data":{"reason":"their own"}}}"#,
                "error",
            ),
            (r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x","data":"text"}}"#, "error"),
            (r#"{"jsonrpc":"2.0","error":{"code":1,"message":"x"}}"#, "error"),
        ] {
            assert_eq!(outcome(payload.as_bytes()), expect, "{payload}");
        }
    }
}
