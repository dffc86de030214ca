//! Counts requests of 2026-07-28 as calls. They use no store, so the store's meter does not see them.

use std::sync::Arc;

use steadfast_engine::{Answer, ExchangeObserver};

use super::metrics::{At, Metrics, Outcome};
use super::store_meter::outcome_of_error;

/// What one endpoint's requests are counted with.
pub(crate) struct ExchangeMeter {
    metrics: Arc<Metrics>,
    endpoint: String,
}

impl ExchangeMeter {
    pub(crate) fn new(metrics: Arc<Metrics>, endpoint: &str) -> Self {
        Self { metrics, endpoint: endpoint.to_owned() }
    }
}

impl ExchangeObserver for ExchangeMeter {
    fn begun(&self) {
        self.metrics.calls_begun.get_or_create(&At { endpoint: self.endpoint.clone() }).inc();
    }

    fn ended(&self, answer: &Answer) {
        let outcome = match answer {
            Ok(_) => "result",
            Err(error) => outcome_of_error(error.data.as_deref()),
        };
        let endpoint = self.endpoint.clone();
        self.metrics.calls_finished.get_or_create(&Outcome { endpoint, outcome }).inc();
    }
}

impl std::fmt::Debug for ExchangeMeter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExchangeMeter").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
