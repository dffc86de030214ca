//! Promise `upstream_sessions`: an upstream session serves one client session, and its state is
//! never reset to an older one. The tool `counter` increments a counter in its upstream session and
//! returns the new value. That value is higher than every value that a client had received before
//! it sent the call, and no value is returned twice.

use std::collections::BTreeMap;

use crate::grouped_history::{Digest, Said};
use crate::marks::word;
use crate::verdict::{Bounds, Verdict, Violation};

/// A value of the counter that a client has received.
struct CounterValue<'a> {
    call: &'a str,
    sent_ms: u64,
    answered_ms: u64,
    value: u64,
}

pub(crate) fn check(digest: &Digest<'_>, _bounds: &Bounds, verdict: &mut Verdict) {
    let mut client_sessions: BTreeMap<String, &str> = BTreeMap::new();
    let mut counters: BTreeMap<String, Vec<CounterValue<'_>>> = BTreeMap::new();
    for (name, call) in &digest.calls {
        for answer in &call.answers {
            let Said::Result(text) = &answer.said else { continue };
            let Some(upstream_session) = word(text, "at") else { continue };
            let client_session = *client_sessions.entry(upstream_session.to_owned()).or_insert(call.session);
            verdict.check(client_session == call.session, || {
                let what = format!("it was executed in upstream session {upstream_session}, which serves session {client_session}");
                Violation::new(answer.at, *name, what)
            });
            if let Some(value) = word(text, "counter").and_then(|value| value.parse().ok()) {
                let value = CounterValue { call: name, sent_ms: call.sent, answered_ms: answer.at, value };
                counters.entry(upstream_session.to_owned()).or_default().push(value);
            }
        }
    }
    counters.iter_mut().for_each(|(session, values)| check_values(session, values, verdict));
}

fn check_values(session: &str, values: &mut [CounterValue<'_>], verdict: &mut Verdict) {
    values.sort_by_key(|value| value.sent_ms);
    let mut by_answer: Vec<(u64, u64)> =
        values.iter().map(|value| (value.answered_ms, value.value)).collect();
    by_answer.sort_unstable();
    let mut highest = 0;
    let mut answered = by_answer.into_iter().peekable();
    let mut seen: BTreeMap<u64, &str> = BTreeMap::new();
    for received in values {
        while let Some((_, value)) = answered.next_if(|(at, _)| *at < received.sent_ms) {
            highest = highest.max(value);
        }
        verdict.check(received.value > highest, || {
            let what = format!("the counter of {session} was {highest} before and is {} now", received.value);
            Violation::new(received.answered_ms, received.call, what)
        });
        let other = seen.insert(received.value, received.call);
        verdict.check(other.is_none(), || {
            let what = format!(
                "the counter of {session} returned {} to {} as well",
                received.value,
                other.unwrap_or_default()
            );
            Violation::new(received.answered_ms, received.call, what)
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::test_history::{History, check};

    fn counted(values: &[(&str, &str, &str)]) -> History {
        let count = |history: History, (i, (call, place, value)): (usize, &(&str, &str, &str))| {
            history.whole(i as u64 + 1, call, "counter", place, &format!("counter={value}"))
        };
        values.iter().enumerate().fold(History::new(), count)
    }

    #[test]
    fn increasing_values_pass() {
        check("upstream_sessions", &counted(&[("a", "p", "1"), ("b", "p", "2"), ("c", "p", "5")]), &[]);
        check("upstream_sessions", &counted(&[("a", "p", "4"), ("b", "q", "1")]), &[]);
        // Concurrent calls may be answered in any order.
        let both =
            History::new().sent("a", 1, "counter").accepted("a", 1).sent("b", 2, "counter").accepted("b", 2);
        let both = both.result(1, 1, 1, 1, "a", "counter=2 at=p").result(2, 2, 1, 2, "b", "counter=1 at=p");
        check("upstream_sessions", &both, &[]);
    }

    #[test]
    fn lower_or_repeated_values_are_violations() {
        check("upstream_sessions", &counted(&[("a", "p", "2"), ("b", "p", "1")]), &["b"]);
        check(
            "upstream_sessions",
            &counted(&[("a", "p", "1"), ("b", "q", "1"), ("c", "p", "2"), ("d", "q", "1")]),
            // Not higher than before, and repeated.
            &["d", "d"],
        );
    }

    #[test]
    fn an_upstream_session_serves_one_client_session() {
        let other = counted(&[("a", "p", "1")]).sent_in("t", "b", 9, "echo").accepted("b", 9);
        check("upstream_sessions", &other.result(9, 1, 1, 9, "b", "at=p"), &["b"]);
    }
}
