//! Telling a person how far it is.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

/// How often there is something to say, on a terminal and elsewhere.
const OFTEN: Duration = Duration::from_secs(2);
const SPARSELY: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Watch {
    live: bool,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Self { live: io::stderr().is_terminal() }
    }

    pub(crate) fn interval(&self) -> Duration {
        if self.live { OFTEN } else { SPARSELY }
    }

    /// Nobody reads it if it cannot be written.
    pub(crate) fn say(&self, line: &str) {
        let mut err = io::stderr().lock();
        let _ = if self.live { write!(err, "\r\x1b[K{line}") } else { writeln!(err, "{line}") };
        let _ = err.flush();
    }

    pub(crate) fn end(&self) {
        if self.live {
            let _ = writeln!(io::stderr());
        }
    }
}
