//! Counts requests of revision 2026-07-28 as calls. [`StoreMetrics`](super::StoreMetrics) does not
//! see those that use no store, and leaves out the others.

use std::sync::Arc;

use steadfast_engine::{Answer, ExchangeObserver};

use super::call_counters::{CallMetrics, outcome_of_error};
use super::metrics::Metrics;

/// The counters of one endpoint.
#[derive(Debug)]
pub(crate) struct ExchangeMetrics(CallMetrics);

impl ExchangeMetrics {
    pub(crate) fn new(metrics: Arc<Metrics>, endpoint: &str) -> Self {
        Self(CallMetrics::new(metrics, endpoint))
    }
}

impl ExchangeObserver for ExchangeMetrics {
    fn begun(&self) {
        self.0.begun(1);
    }

    fn ended(&self, answer: &Answer) {
        self.0.finished(match answer {
            Ok(_) => "result",
            Err(error) => outcome_of_error(error.data.as_deref()),
        });
    }
}
