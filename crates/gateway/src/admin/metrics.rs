//! What is counted. Labels are bounded: paths of endpoints, and words of our own; never anything that a client sends.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// From a tenth of a millisecond, which is what memory takes, to what nobody waits for.
const STORE_SECONDS: [f64; 12] = [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];

/// From what the gateway adds by itself to the longest calls.
const CALL_SECONDS: [f64; 12] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0, 600.0, 3600.0];

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// Every metric there is. Each is described in `docs/metrics.md`.
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) sessions: Gauge,
    pub(crate) store_bytes: Gauge,
    pub(crate) session_events: Family<Event, Counter>,
    pub(crate) calls_begun: Family<At, Counter>,
    pub(crate) calls_finished: Family<Outcome, Counter>,
    pub(crate) call_seconds: Histograms<At>,
    pub(crate) asks: Family<Event, Counter>,
    pub(crate) attachments: Family<Kind, Counter>,
    pub(crate) streams: Family<At, Gauge>,
    pub(crate) exchanges: Family<At, Gauge>,
    pub(crate) subscriptions: Family<At, Gauge>,
    pub(crate) responses: Family<Status, Counter>,
    pub(crate) refusals: Family<Refusal, Counter>,
    pub(crate) received_bytes: Family<At, Counter>,
    pub(crate) sent_bytes: Family<At, Counter>,
    pub(crate) store_seconds: Histograms<Operation>,
    pub(crate) store_errors: Family<Fault, Counter>,
    pub(crate) replica_up: Family<Replica, Gauge>,
    pub(crate) replica_sessions: Family<Replica, Gauge>,
    pub(crate) waiting_calls: Family<At, Gauge>,
    pub(crate) healed: Family<At, Gauge>,
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
            asks: Family::default(),
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
            waiting_calls: Family::default(),
            healed: Family::default(),
            reloads: Family::default(),
        };
        metrics.register();
        Arc::new(metrics)
    }

    /// The help texts end with a full stop that the encoder adds.
    fn register(&mut self) {
        let to = &mut self.registry;
        to.register("sessions", "Sessions in the store", self.sessions.clone());
        to.register("store_bytes", "Bytes that the store holds for sessions", self.store_bytes.clone());
        to.register("session_events", "Steps in the lives of sessions", self.session_events.clone());
        to.register("calls_begun", "Calls that were accepted", self.calls_begun.clone());
        to.register(
            "calls_finished",
            "Calls that have their answer or their error",
            self.calls_finished.clone(),
        );
        to.register("call_seconds", "How long the server took for calls", self.call_seconds.clone());
        to.register("asks", "Requests to clients: sampling, elicitation, roots", self.asks.clone());
        to.register(
            "attachments",
            "Connections that began to read a stream by GET",
            self.attachments.clone(),
        );
        to.register("streams", "Event streams that are open", self.streams.clone());
        to.register("exchanges", "Requests of 2026-07-28 in flight", self.exchanges.clone());
        to.register("subscriptions", "Subscriptions of 2026-07-28 that are open", self.subscriptions.clone());
        to.register("responses", "HTTP responses, by status", self.responses.clone());
        to.register("refusals", "Requests that were refused, by status and reason", self.refusals.clone());
        to.register("received_bytes", "Bytes of request bodies", self.received_bytes.clone());
        to.register("sent_bytes", "Bytes of response bodies", self.sent_bytes.clone());
        to.register("store_seconds", "How long the store took", self.store_seconds.clone());
        to.register("store_errors", "Operations that the store failed", self.store_errors.clone());
        to.register("replica_up", "Whether a replica of the server can be reached", self.replica_up.clone());
        to.register("replica_sessions", "Sessions at a replica of the server", self.replica_sessions.clone());
        to.register(
            "waiting_calls",
            "Calls that wait for their turn at the server",
            self.waiting_calls.clone(),
        );
        to.register(
            "healed_sessions",
            "Sessions that the server had lost and that were opened anew",
            self.healed.clone(),
        );
        to.register("reloads", "Changes of the configuration", self.reloads.clone());
    }

    pub(crate) fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}

/// In seconds, as histograms want them.
pub(crate) fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct At {
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
pub(crate) struct Operation {
    pub(crate) operation: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct Fault {
    pub(crate) operation: &'static str,
    pub(crate) kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct Replica {
    pub(crate) endpoint: String,
    pub(crate) replica: String,
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

    /// Everything once: what has no sample is not served.
    fn once(metrics: &Metrics) {
        // Without `..`, so that nothing new is forgotten.
        let Metrics {
            registry: _,
            sessions: _,
            store_bytes: _,
            session_events,
            calls_begun,
            calls_finished,
            call_seconds,
            asks,
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
            waiting_calls,
            healed,
            reloads,
        } = metrics;
        let (endpoint, replica) = (String::new(), String::new());
        let at = At { endpoint: endpoint.clone() };
        for counter in [calls_begun, received_bytes, sent_bytes] {
            counter.get_or_create(&at).inc();
        }
        for gauge in [streams, exchanges, subscriptions, waiting_calls, healed] {
            gauge.get_or_create(&at).inc();
        }
        for events in [session_events, asks] {
            events.get_or_create(&Event { endpoint: endpoint.clone(), event: "" }).inc();
        }
        call_seconds.get_or_create(&at).observe(1.0);
        calls_finished.get_or_create(&Outcome { endpoint: endpoint.clone(), outcome: "" }).inc();
        attachments.get_or_create(&Kind { endpoint: endpoint.clone(), kind: "" }).inc();
        responses.get_or_create(&Status { endpoint: endpoint.clone(), method: "", status: 0 }).inc();
        refusals.get_or_create(&Refusal { endpoint: endpoint.clone(), status: 0, reason: "" }).inc();
        store_seconds.get_or_create(&Operation { operation: "" }).observe(1.0);
        store_errors.get_or_create(&Fault { operation: "", kind: "" }).inc();
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

    /// The page says of each metric what it is called, what it is, and what its labels are; and of no other.
    #[test]
    fn the_page_describes_what_is_served() {
        let metrics = Metrics::new();
        once(&metrics);
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
