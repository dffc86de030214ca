//! Logging to stderr: text on a terminal, JSON otherwise.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// The filter until the configuration is read. rmcp logs each of its loops at info, which is one
/// line per call.
const FILTER: &str = "info,rmcp=warn";

pub(crate) struct Logs {
    /// `None` if `RUST_LOG` is set, because it overrides the configuration.
    change: Option<Box<dyn Fn(EnvFilter)>>,
}

impl Logs {
    pub(crate) fn start() -> Self {
        let from_environment = EnvFilter::try_from_default_env();
        let is_fixed = from_environment.is_ok();
        let filter = from_environment.unwrap_or_else(|_| EnvFilter::new(FILTER));
        let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        let change: Box<dyn Fn(EnvFilter)> = if std::io::stderr().is_terminal() {
            let logs = logs.with_filter_reloading();
            let handle = logs.reload_handle();
            logs.init();
            Box::new(move |filter| drop(handle.reload(filter)))
        } else {
            let logs = logs.json().with_filter_reloading();
            let handle = logs.reload_handle();
            logs.init();
            Box::new(move |filter| drop(handle.reload(filter)))
        };
        Self { change: (!is_fixed).then_some(change) }
    }

    /// Sets the filter, which the check of the configuration has accepted.
    pub(crate) fn set_filter(&self, filter: &str) {
        if let (Some(change), Ok(filter)) = (&self.change, EnvFilter::try_new(filter)) {
            change(filter);
        }
    }
}
