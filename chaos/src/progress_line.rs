//! The line on stderr that shows the progress of a run.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

const TERMINAL_INTERVAL: Duration = Duration::from_secs(2);
const LOG_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct ProgressLine {
    is_terminal: bool,
}

impl ProgressLine {
    pub(crate) fn new() -> Self {
        Self { is_terminal: io::stderr().is_terminal() }
    }

    /// How often the caller should call [`Self::show`].
    pub(crate) fn interval(&self) -> Duration {
        if self.is_terminal { TERMINAL_INTERVAL } else { LOG_INTERVAL }
    }

    /// Replaces the line on a terminal, and writes another one elsewhere.
    pub(crate) fn show(&self, line: &str) {
        let mut err = io::stderr().lock();
        // A run does not depend on its progress being seen.
        let _ = if self.is_terminal { write!(err, "\r\x1b[K{line}") } else { writeln!(err, "{line}") };
        let _ = err.flush();
    }

    /// Ends the line, so that other output starts on its own.
    pub(crate) fn end(&self) {
        if self.is_terminal {
            let _ = writeln!(io::stderr());
        }
    }
}
