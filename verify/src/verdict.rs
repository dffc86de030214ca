//! What a checker finds.

use std::fmt;

use serde::Serialize;

/// How long is too long, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bounds {
    /// From the end of the faults, or from its beginning if that is later, to a call's outcome.
    pub liveness: u64,
    /// From the last answer of a stream to the end of the response.
    pub ending: u64,
    /// From the last sign of life of whoever runs calls to when others may take its place.
    pub death: u64,
}

/// What came of one promise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    pub name: &'static str,
    pub promise: &'static str,
    /// How often there was something to look at. A promise that was never looked at is not shown to hold.
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

    /// One look, which found nothing wrong if `holds`.
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
    /// Which call, session or stream.
    pub of: String,
    /// What was seen, and what should have been.
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
