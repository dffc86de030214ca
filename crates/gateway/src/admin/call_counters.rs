//! Counts accepted and finished calls of an endpoint, and derives the outcome label from an
//! answer.

use std::sync::Arc;
use steadfast_wire::Reason;

use prometheus_client::metrics::counter::Counter;
use serde::Deserialize;

use super::metrics::{EndpointLabel, Metrics, Outcome};

/// A longer error is not parsed, and counts as an error of the server.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// The counters of one endpoint. Those of the usual path are looked up once, so that a call
/// allocates no label.
#[derive(Clone)]
pub(super) struct CallMetrics {
    metrics: Arc<Metrics>,
    endpoint: Arc<str>,
    begun: Counter,
    results: Counter,
}

impl CallMetrics {
    pub(super) fn new(metrics: Arc<Metrics>, endpoint: &str) -> Self {
        let begun =
            metrics.calls_begun.get_or_create(&EndpointLabel { endpoint: endpoint.to_owned() }).clone();
        let outcome = Outcome { endpoint: endpoint.to_owned(), outcome: "result" };
        let results = metrics.calls_finished.get_or_create(&outcome).clone();
        Self { metrics, endpoint: endpoint.into(), begun, results }
    }

    pub(super) fn begun(&self, calls: u64) {
        self.begun.inc_by(calls);
    }

    pub(super) fn finished(&self, outcome: &'static str) {
        if outcome == "result" {
            self.results.inc();
            return;
        }
        let endpoint = self.endpoint.to_string();
        self.metrics.calls_finished.get_or_create(&Outcome { endpoint, outcome }).inc();
    }
}

impl std::fmt::Debug for CallMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallMetrics").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

pub(super) fn outcome_of_response(payload: &[u8]) -> &'static str {
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

/// Returns the outcome label of an error whose `data` is this JSON text.
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
    reason.and_then(|reason| Reason::parse(&reason)).map_or("error", Reason::as_str)
}

/// The gateway writes answers itself, so each starts with the version, the id, and then `result`
/// or `error`. This avoids parsing results, which may be large.
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
    fn outcomes_of_responses() {
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
            assert_eq!(outcome_of_response(payload.as_bytes()), expect, "{payload}");
        }
    }
}
