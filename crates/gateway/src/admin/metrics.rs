//! The metrics of the gateway. Labels are bounded: their values are paths of endpoints and fixed
//! words, never text of a client.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Buckets from 0.1 ms, the time of the memory store, to 30 s, where every caller has timed out.
const STORE_SECONDS: [f64; 12] = [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];

/// Buckets from 1 ms, which the gateway adds itself, to 1 h, the default deadline of a call.
const CALL_SECONDS: [f64; 12] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0, 600.0, 3600.0];

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// Every metric. `docs/metrics.md` describes each; a test compares the two.
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) sessions: Gauge,
    pub(crate) store_bytes: Gauge,
    pub(crate) session_events: Family<Event, Counter>,
    pub(crate) calls_begun: Family<EndpointLabel, Counter>,
    pub(crate) calls_finished: Family<Outcome, Counter>,
    pub(crate) call_seconds: Histograms<EndpointLabel>,
    pub(crate) server_requests: Family<Event, Counter>,
    pub(crate) attachments: Family<Kind, Counter>,
    pub(crate) streams: Family<EndpointLabel, Gauge>,
    pub(crate) exchanges: Family<EndpointLabel, Gauge>,
    pub(crate) subscriptions: Family<EndpointLabel, Gauge>,
    pub(crate) responses: Family<Status, Counter>,
    pub(crate) refusals: Family<Refusal, Counter>,
    pub(crate) received_bytes: Family<EndpointLabel, Counter>,
    pub(crate) sent_bytes: Family<EndpointLabel, Counter>,
    pub(crate) store_seconds: Histograms<Operation>,
    pub(crate) store_errors: Family<StoreFailure, Counter>,
    pub(crate) replica_up: Family<Replica, Gauge>,
    pub(crate) replica_sessions: Family<Replica, Gauge>,
    pub(crate) upstream_serial: Family<Serial, Gauge>,
    pub(crate) quirks: Family<QuirkLabel, Counter>,
    pub(crate) queued_calls: Family<EndpointLabel, Gauge>,
    pub(crate) heartbeats: Family<EndpointLabel, Gauge>,
    pub(crate) reopened_sessions: Family<EndpointLabel, Gauge>,
    pub(crate) reloads: Family<Reload, Counter>,
}

impl Metrics {
    pub(crate) fn new() -> Arc<Self> {
        let calls = || Histogram::new(CALL_SECONDS);
        let store = || Histogram::new(STORE_SECONDS);
        let mut metrics = Self {
            registry: Registry::with_prefix("steadfast"),
            sessions: Gauge::default(),
            store_bytes: Gauge::default(),
            session_events: Family::default(),
            calls_begun: Family::default(),
            calls_finished: Family::default(),
            call_seconds: Family::new_with_constructor(calls),
            server_requests: Family::default(),
            attachments: Family::default(),
            streams: Family::default(),
            exchanges: Family::default(),
            subscriptions: Family::default(),
            responses: Family::default(),
            refusals: Family::default(),
            received_bytes: Family::default(),
            sent_bytes: Family::default(),
            store_seconds: Family::new_with_constructor(store),
            store_errors: Family::default(),
            replica_up: Family::default(),
            replica_sessions: Family::default(),
            upstream_serial: Family::default(),
            quirks: Family::default(),
            queued_calls: Family::default(),
            heartbeats: Family::default(),
            reopened_sessions: Family::default(),
            reloads: Family::default(),
        };
        metrics.register();
        Arc::new(metrics)
    }

    /// Help texts end without a full stop, because the encoder adds it.
    fn register(&mut self) {
        let to = &mut self.registry;
        to.register("sessions", "Sessions in the store", self.sessions.clone());
        to.register("store_bytes", "Bytes of sessions in the store", self.store_bytes.clone());
        to.register("session_events", "Lifecycle events of sessions", self.session_events.clone());
        to.register("calls_begun", "Accepted calls", self.calls_begun.clone());
        to.register(
            "calls_finished",
            "Calls that ended with a result or an error",
            self.calls_finished.clone(),
        );
        to.register("call_seconds", "Time that the server took to answer calls", self.call_seconds.clone());
        to.register(
            "server_requests",
            "Requests of servers to clients: sampling, elicitation, roots",
            self.server_requests.clone(),
        );
        to.register("attachments", "GET requests that attached to a stream", self.attachments.clone());
        to.register("streams", "Open SSE streams", self.streams.clone());
        to.register(
            "exchanges",
            "Requests of revision 2026-07-28 in flight, subscriptions included",
            self.exchanges.clone(),
        );
        to.register("subscriptions", "Open subscriptions of revision 2026-07-28", self.subscriptions.clone());
        to.register("responses", "HTTP responses", self.responses.clone());
        to.register("refusals", "Refused requests", self.refusals.clone());
        to.register("quirks", "Responses that a quirk of the client has changed", self.quirks.clone());
        to.register("received_bytes", "Bytes of request bodies", self.received_bytes.clone());
        to.register("sent_bytes", "Bytes of response bodies", self.sent_bytes.clone());
        to.register("store_seconds", "Duration of store operations", self.store_seconds.clone());
        to.register("store_errors", "Failed store operations", self.store_errors.clone());
        to.register("replica_up", "1 if the replica can be reached, 0 otherwise", self.replica_up.clone());
        to.register("replica_sessions", "Upstream sessions at the replica", self.replica_sessions.clone());
        to.register(
            "upstream_serial",
            "1 if the server gets one call of a session at a time because it loses or mixes up parallel calls, 0 if it gets parallel calls",
            self.upstream_serial.clone(),
        );
        to.register(
            "queued_calls",
            "Calls that wait in the queue because of concurrency",
            self.queued_calls.clone(),
        );
        to.register(
            "heartbeats",
            "Progress notifications of the gateway for clients of silent calls",
            self.heartbeats.clone(),
        );
        to.register(
            "reopened_sessions",
            "Upstream sessions that were opened again because the server had lost them",
            self.reopened_sessions.clone(),
        );
        to.register("reloads", "Configuration reloads", self.reloads.clone());
    }

    pub(crate) fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct EndpointLabel {
    pub(crate) endpoint: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct Event {
    pub(crate) endpoint: String,
    pub(crate) event: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct Outcome {
    pub(crate) endpoint: String,
    pub(crate) outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct Kind {
    pub(crate) endpoint: String,
    pub(crate) kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct Status {
    pub(crate) endpoint: String,
    pub(crate) method: &'static str,
    pub(crate) status: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct Refusal {
    pub(crate) endpoint: String,
    pub(crate) status: u16,
    pub(crate) reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct QuirkLabel {
    pub(crate) endpoint: String,
    pub(crate) quirk: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct Operation {
    pub(crate) operation: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct StoreFailure {
    pub(crate) operation: &'static str,
    pub(crate) kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct Replica {
    pub(crate) endpoint: String,
    pub(crate) replica: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct Serial {
    pub(crate) endpoint: String,
    pub(crate) replica: String,
    pub(crate) reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct Reload {
    pub(crate) outcome: &'static str,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const PAGE: &str = include_str!("../../../../docs/metrics.md");

    /// Gives every metric a sample, because a metric without one is not encoded.
    fn touch_all(metrics: &Metrics) {
        // No `..`, so that a new metric cannot be left out.
        let Metrics {
            registry: _,
            sessions: _,
            store_bytes: _,
            session_events,
            calls_begun,
            calls_finished,
            call_seconds,
            server_requests,
            attachments,
            streams,
            exchanges,
            subscriptions,
            responses,
            refusals,
            received_bytes,
            sent_bytes,
            store_seconds,
            store_errors,
            replica_up,
            replica_sessions,
            upstream_serial,
            quirks,
            queued_calls,
            heartbeats,
            reopened_sessions,
            reloads,
        } = metrics;
        let (endpoint, replica) = (String::new(), String::new());
        let at = EndpointLabel { endpoint: endpoint.clone() };
        for counter in [calls_begun, received_bytes, sent_bytes] {
            counter.get_or_create(&at).inc();
        }
        for gauge in [streams, exchanges, subscriptions, queued_calls, heartbeats, reopened_sessions] {
            gauge.get_or_create(&at).inc();
        }
        for events in [session_events, server_requests] {
            events.get_or_create(&Event { endpoint: endpoint.clone(), event: "" }).inc();
        }
        call_seconds.get_or_create(&at).observe(1.0);
        calls_finished.get_or_create(&Outcome { endpoint: endpoint.clone(), outcome: "" }).inc();
        attachments.get_or_create(&Kind { endpoint: endpoint.clone(), kind: "" }).inc();
        responses.get_or_create(&Status { endpoint: endpoint.clone(), method: "", status: 0 }).inc();
        refusals.get_or_create(&Refusal { endpoint: endpoint.clone(), status: 0, reason: "" }).inc();
        quirks.get_or_create(&QuirkLabel { endpoint: endpoint.clone(), quirk: "" }).inc();
        store_seconds.get_or_create(&Operation { operation: "" }).observe(1.0);
        store_errors.get_or_create(&StoreFailure { operation: "", kind: "" }).inc();
        let serial = Serial { endpoint: endpoint.clone(), replica: replica.clone(), reason: "" };
        upstream_serial.get_or_create(&serial).inc();
        let replica = Replica { endpoint, replica };
        replica_up.get_or_create(&replica).inc();
        replica_sessions.get_or_create(&replica).inc();
        reloads.get_or_create(&Reload { outcome: "" }).inc();
    }

    fn labels(text: &str, name: &str) -> String {
        let sample =
            text.lines().find(|line| !line.starts_with('#') && line.starts_with(name)).expect("a sample");
        let set =
            sample.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map_or("", |(set, _)| set);
        let names: Vec<String> = set
            .split(',')
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, _)| format!("`{name}`"))
            .collect();
        let names: Vec<String> = names.into_iter().filter(|name| name != "`le`").collect();
        names.join(", ")
    }

    /// The page has the name, type, labels and help text of every metric, and no other metric.
    #[test]
    fn the_page_describes_every_metric() {
        let metrics = Metrics::new();
        touch_all(&metrics);
        let text = metrics.encode();
        let word = |line: &str, prefix: &str| {
            let (name, rest) = line.strip_prefix(prefix)?.split_once(' ')?;
            Some((name.to_owned(), rest.to_owned()))
        };
        let kinds: BTreeMap<String, String> = text.lines().filter_map(|line| word(line, "# TYPE ")).collect();
        let helps: BTreeMap<String, String> = text.lines().filter_map(|line| word(line, "# HELP ")).collect();
        let served = helps.iter().map(|(name, help)| {
            let kind = &kinds[name];
            let total = if kind == "counter" { "_total" } else { "" };
            format!("| `{name}{total}` | {kind} | {} | {help}", labels(&text, name))
        });
        let served: Vec<String> = served.collect();
        let rows: Vec<&str> = PAGE.lines().filter(|line| line.starts_with("| `steadfast_")).collect();
        assert!(
            served.len() == rows.len()
                && served.iter().zip(&rows).all(|(served, row)| row.starts_with(served)),
            "served:\n{}\n",
            served.join("\n")
        );
    }
}
