//! Logs: for people on a terminal, as JSON otherwise. Always on stderr; stdout is for results.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// Until a configuration says otherwise. rmcp reports each of its loops at info, which for us is each call.
const FILTER: &str = "info,rmcp=warn";

/// The filter of the logs, to be changed.
pub(crate) struct Logs {
    /// Nobody can change what the environment says.
    change: Option<Box<dyn Fn(EnvFilter)>>,
}

impl Logs {
    pub(crate) fn start() -> Self {
        let said = EnvFilter::try_from_default_env();
        let is_fixed = said.is_ok();
        let filter = said.unwrap_or_else(|_| EnvFilter::new(FILTER));
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

    /// A filter that a configuration was checked with.
    pub(crate) fn filter(&self, filter: &str) {
        if let (Some(change), Ok(filter)) = (&self.change, EnvFilter::try_new(filter)) {
            change(filter);
        }
    }
}
