//! The result of a checker, and the time limits that checkers use.

use std::fmt;

use serde::Serialize;

/// Time limits in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bounds {
    /// From the end of the faults, or from the acceptance of the call if that is later, to its
    /// outcome.
    pub liveness: u64,
    /// From the answer on a stream to the end of the HTTP response.
    pub ending: u64,
    /// From the last heartbeat of a node to the moment when other nodes may reap it.
    pub death: u64,
}

/// The result for one promise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    pub name: &'static str,
    pub promise: &'static str,
    /// The number of checks. A promise without checks is not shown to hold.
    pub checks: u64,
    pub violations: Vec<Violation>,
}

impl Verdict {
    pub(crate) fn new(name: &'static str, promise: &'static str) -> Self {
        Self { name, promise, checks: 0, violations: Vec::new() }
    }

    pub fn holds(&self) -> bool {
        self.violations.is_empty()
    }

    /// Counts a check. Adds a violation unless the promise `holds`.
    pub(crate) fn check(&mut self, holds: bool, violation: impl FnOnce() -> Violation) {
        self.checks += 1;
        if !holds {
            self.violations.push(violation());
        }
    }
}

/// One case in which a promise was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// When it was seen, in milliseconds since the history began.
    pub at: u64,
    /// The call or the session.
    pub of: String,
    /// What happened, and what should have happened.
    pub what: String,
}

impl Violation {
    pub(crate) fn new(at: u64, of: impl Into<String>, what: impl Into<String>) -> Self {
        Self { at, of: of.into(), what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} s, {}: {}", self.at as f64 / 1000.0, self.of, self.what)
    }
}
