//! Logs: for people on a terminal, as JSON otherwise. Always on stderr; stdout is for results.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

pub(crate) fn start() {
    // rmcp reports each of its loops at info, which for us is each call.
    let fallback = || EnvFilter::new("info,rmcp=warn");
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| fallback());
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if std::io::stderr().is_terminal() { logs.init() } else { logs.json().init() }
}
