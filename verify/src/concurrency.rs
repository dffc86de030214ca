//! Promise `concurrency`: the calls of a session that run at a server at a time do not exceed the
//! concurrency limit, through all gateways together.
//!
//! A history does not show when a gateway stops waiting for a call: when the client cancels it,
//! when its connection breaks, when the gateway is killed. The server may still work on such a call
//! when the gateway sends the next one. So only those calls count for which a gateway has certainly
//! waited: they were executed once and not cancelled, and their client has the result. Calls that
//! took longer than [`Bounds::death`] do not count either, because other nodes may have reaped
//! their gateway meanwhile.

use std::collections::BTreeMap;

use crate::grouped_history::{Call, Digest, Said};
use crate::verdict::{Bounds, Verdict, Violation};

/// The execution of a call at a server.
#[derive(Clone, Copy)]
struct Execution<'a> {
    begun: u64,
    done: u64,
    call: &'a str,
}

pub(crate) fn check(digest: &Digest<'_>, bounds: &Bounds, verdict: &mut Verdict) {
    let Some(limit) = digest.limit else { return };
    let mut places: BTreeMap<&str, Vec<Execution<'_>>> = BTreeMap::new();
    for (name, call) in &digest.calls {
        let executed = digest.executed.get(name).map_or(&[][..], Vec::as_slice);
        let done = digest.done.get(name).map_or(&[][..], Vec::as_slice);
        if let ([(begun, place)], [(done, _)]) = (executed, done)
            && was_waited_for(call)
            && done - begun < bounds.death
        {
            places.entry(place).or_default().push(Execution { begun: *begun, done: *done, call: name });
        }
    }
    places.iter_mut().for_each(|(place, runs)| check_limit(place, runs, limit, verdict));
}

fn was_waited_for(call: &Call<'_>) -> bool {
    !call.cancelled && call.answers.iter().any(|answer| matches!(answer.said, Said::Result(_)))
}

/// An execution that ends in a millisecond is before an execution that begins in that millisecond,
/// because the gateway sends the next call after the answer.
fn check_limit(place: &str, runs: &mut [Execution<'_>], limit: usize, verdict: &mut Verdict) {
    runs.sort_by_key(|run| (run.begun, run.done));
    let mut running: Vec<Execution<'_>> = Vec::new();
    for run in runs {
        running.retain(|other| other.done > run.begun);
        running.push(*run);
        verdict.check(running.len() <= limit, || {
            let names: Vec<&str> = running.iter().map(|run| run.call).collect();
            let what = format!("{place} has a limit of {limit} and runs {}", names.join(", "));
            Violation::new(run.begun, run.call, what)
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::Seen;
    use crate::test_history::{History, check};

    fn limited(calls: usize) -> History {
        History::new().and(Seen::Limited { calls })
    }

    /// A call that is sent and not executed yet.
    fn begun(history: History, call: &str, no: u64) -> History {
        let id = i64::try_from(no).expect("a small number");
        history.sent(call, id, "effect").accepted(call, no)
    }

    fn answered(history: History, call: &str, no: u64) -> History {
        let id = i64::try_from(no).expect("a small number");
        history.result(no, no, 1, id, call, "at=p")
    }

    /// Two calls at the same time in one upstream session.
    fn both() -> History {
        let sent = begun(begun(limited(1), "a", 1), "b", 2);
        sent.executed("a", "p").executed("b", "p").done("a", "p").done("b", "p")
    }

    #[test]
    fn calls_within_the_limit_are_right() {
        let sent = begun(begun(limited(1), "a", 1), "b", 2);
        let run = sent.executed("a", "p").done("a", "p").executed("b", "p").done("b", "p");
        check("concurrency", &answered(answered(run, "a", 1), "b", 2), &[]);
        let other = begun(begun(limited(1), "a", 1), "b", 2);
        let other = other.executed("a", "p").executed("b", "q").done("a", "p").done("b", "q");
        check("concurrency", &answered(answered(other, "a", 1), "b", 2), &[]);
    }

    #[test]
    fn calls_beyond_the_limit_are_a_violation() {
        check("concurrency", &answered(answered(both(), "a", 1), "b", 2), &["b"]);
        let three = begun(begun(begun(limited(2), "a", 1), "b", 2), "c", 3);
        let three = three.executed("a", "p").executed("b", "p").executed("c", "p");
        let three = three.done("c", "p").done("b", "p").done("a", "p");
        check("concurrency", &answered(answered(answered(three, "a", 1), "b", 2), "c", 3), &["c"]);
    }

    /// The gateway may have stopped waiting for it before it sent the other call.
    #[test]
    fn a_call_that_was_given_up_does_not_count() {
        let broken = both().error(1, 1, 1, 1, "outcome_unknown");
        check("concurrency", &answered(broken, "b", 2), &[]);
        let cancelled = both().and(Seen::Cancelled { call: "a".into() });
        check("concurrency", &answered(answered(cancelled, "a", 1), "b", 2), &[]);
        let twice = both().executed("a", "q").done("a", "q");
        check("concurrency", &answered(answered(twice, "a", 1), "b", 2), &[]);
    }

    #[test]
    fn a_call_that_takes_longer_than_reaping_does_not_count() {
        let sent = begun(begun(limited(1), "a", 1), "b", 2);
        let run = sent.executed("a", "p").wait(100).executed("b", "p").done("b", "p").done("a", "p");
        check("concurrency", &answered(answered(run, "a", 1), "b", 2), &[]);
    }
}
