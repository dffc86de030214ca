//! Checkers of recorded histories: what was promised, held against what was seen.
//!
//! A [history](Entry) is what clients, and the server behind, have written down while they used sessions: plain values, one
//! JSON object for each line. [`judge`] reads it once ([`Digest`]) and asks every checker. A checker is one promise, in a file
//! of its own; it says how often it looked and every case in which the promise was broken. Nothing here does IO, so a
//! history of any origin can be judged: of a test in one process, of real processes and real faults, of a stranger's server.
#![forbid(unsafe_code)]

mod asks;
mod bound;
mod counters;
mod digest;
mod effects;
mod endings;
mod history;
mod liveness;
mod marks;
mod once;
mod order;
mod outcomes;
mod replay;
mod routing;
mod sessions;
mod verdict;

#[cfg(test)]
mod sample;

pub use digest::{Answer, Call, Connection, Digest, Event, Fate, Said};
pub use history::{Entry, ParseError, Seen, parse};
pub use marks::{mark, marks, word};
pub use verdict::{Bounds, Verdict, Violation};

/// A promise and how it is checked.
type Checker = fn(&Digest<'_>, &Bounds, &mut Verdict);

const CHECKERS: &[(&str, &str, Checker)] = &[
    ("outcomes", "every accepted call has exactly one outcome", outcomes::check),
    ("routing", "an answer reaches its own call, and nothing reaches another session", routing::check),
    ("order", "events of a stream come in order, and none is skipped without a word", order::check),
    ("replay", "what was read can be read again, byte for byte", replay::check),
    ("once", "a message is on one stream, once", once::check),
    ("asks", "an ask is answered once, by the session that was asked", asks::check),
    ("effects", "an unsafe call is executed at most once, and as its answer says", effects::check),
    ("bound", "a server has no more calls of a session at a time than it takes", bound::check),
    ("counters", "a session at the server has one client and never goes back", counters::check),
    ("sessions", "a session lives until its client ends it", sessions::check),
    ("endings", "a stream ends after its answer", endings::check),
    ("liveness", "once faults stop, every call ends in time", liveness::check),
];

/// Asks every checker.
pub fn judge(history: &[Entry], bounds: &Bounds) -> Vec<Verdict> {
    let digest = Digest::of(history);
    let verdict = |(name, promise, check): &(&'static str, &'static str, Checker)| {
        let mut verdict = Verdict::new(name, promise);
        check(&digest, bounds, &mut verdict);
        verdict
    };
    CHECKERS.iter().map(verdict).collect()
}
