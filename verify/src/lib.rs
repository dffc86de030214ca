//! Checks recorded histories against the promises of the gateway.
//!
//! A [history](Entry) is what clients and the server behind the gateway have recorded while they
//! used sessions: plain values, one JSON object per line. [`judge`] reads the history once
//! ([`Digest`]) and runs every checker. A checker is one promise in one file. It counts its checks
//! and reports every violation. Nothing here does IO, so histories of any origin can be checked: of
//! a test in one process, of real processes with real faults, of a server that is not ours.
#![forbid(unsafe_code)]

mod concurrency;
mod duplicates;
mod executions;
mod grouped_history;
mod history;
mod liveness;
mod marks;
mod order;
mod outcomes;
mod replay;
mod routing;
mod server_requests;
mod sessions;
mod stream_end;
mod upstream_sessions;
mod verdict;

#[cfg(test)]
mod test_history;

pub use grouped_history::{Answer, Call, Connection, Digest, Event, Fate, Said};
pub use history::{Entry, ParseError, Seen, parse};
pub use marks::{mark, marks, word};
pub use verdict::{Bounds, Verdict, Violation};

/// Checks one promise.
type Checker = fn(&Digest<'_>, &Bounds, &mut Verdict);

/// The name of each promise, the promise, and its checker. To add a promise, add a file and a row.
const CHECKERS: &[(&str, &str, Checker)] = &[
    ("outcomes", "every accepted call has exactly one outcome", outcomes::check),
    (
        "routing",
        "an answer is on the stream of its call, and no message reaches another session",
        routing::check,
    ),
    ("order", "events of a stream arrive in order, and dropped events are announced", order::check),
    ("replay", "an event that was read can be read again, byte for byte", replay::check),
    ("duplicates", "a message is on one stream, once", duplicates::check),
    (
        "server_requests",
        "a server request gets one response, of the session that received it",
        server_requests::check,
    ),
    (
        "executions",
        "a call that is not idempotent is executed at most once, as its outcome says",
        executions::check,
    ),
    (
        "concurrency",
        "calls of a session that run at a time do not exceed the concurrency limit",
        concurrency::check,
    ),
    (
        "upstream_sessions",
        "an upstream session serves one client, and its state never goes back",
        upstream_sessions::check,
    ),
    ("sessions", "a session exists until its client deletes it", sessions::check),
    ("stream_end", "the stream of a call ends after its answer", stream_end::check),
    ("liveness", "after the faults, every call gets its outcome in time", liveness::check),
];

/// Runs every checker on a history.
pub fn judge(history: &[Entry], bounds: &Bounds) -> Vec<Verdict> {
    let digest = Digest::of(history);
    let verdict = |(name, promise, check): &(&'static str, &'static str, Checker)| {
        let mut verdict = Verdict::new(name, promise);
        check(&digest, bounds, &mut verdict);
        verdict
    };
    CHECKERS.iter().map(verdict).collect()
}
