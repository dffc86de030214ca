//! A server that takes so many calls of a session at a time gets no more, whoever sends them.
//!
//! Nobody can see from outside when the sender of a call stops to wait for it: when its client cancels it, when its connection
//! breaks, when the sender is killed. The server may be at work on it for a while yet, and the next one is sent. So those calls count
//! whose sender has waited to the end: they were executed once and not cancelled, and their client has the result. And none that took
//! so long that its sender may have been taken for dead, and have come back.

use std::collections::BTreeMap;

use crate::digest::{Call, Digest, Said};
use crate::verdict::{Bounds, Verdict, Violation};

/// A call at a server.
#[derive(Clone, Copy)]
struct Run<'a> {
    begun: u64,
    done: u64,
    call: &'a str,
}

pub(crate) fn check(digest: &Digest<'_>, bounds: &Bounds, verdict: &mut Verdict) {
    let Some(limit) = digest.limit else { return };
    let mut places: BTreeMap<&str, Vec<Run<'_>>> = BTreeMap::new();
    for (name, call) in &digest.calls {
        let executed = digest.executed.get(name).map_or(&[][..], Vec::as_slice);
        let done = digest.done.get(name).map_or(&[][..], Vec::as_slice);
        if let ([(begun, place)], [(done, _)]) = (executed, done)
            && was_waited_for(call)
            && done - begun < bounds.death
        {
            places.entry(place).or_default().push(Run { begun: *begun, done: *done, call: name });
        }
    }
    places.iter_mut().for_each(|(place, runs)| never_more(place, runs, limit, verdict));
}

fn was_waited_for(call: &Call<'_>) -> bool {
    !call.cancelled && call.answers.iter().any(|answer| matches!(answer.said, Said::Result(_)))
}

/// What ends in a millisecond was over before what begins in it: the next one is sent when the answer has come.
fn never_more(place: &str, runs: &mut [Run<'_>], limit: usize, verdict: &mut Verdict) {
    runs.sort_by_key(|run| (run.begun, run.done));
    let mut running: Vec<Run<'_>> = Vec::new();
    for run in runs {
        running.retain(|other| other.done > run.begun);
        running.push(*run);
        verdict.check(running.len() <= limit, || {
            let names: Vec<&str> = running.iter().map(|run| run.call).collect();
            let what = format!("{place} takes {limit} at a time and has {}", names.join(", "));
            Violation::new(run.begun, run.call, what)
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::Seen;
    use crate::sample::{History, check};

    fn limited(calls: usize) -> History {
        History::new().and(Seen::Limited { calls })
    }

    /// It is sent, and nobody has executed it yet.
    fn begun(history: History, call: &str, no: u64) -> History {
        let id = i64::try_from(no).expect("a small number");
        history.sent(call, id, "effect").accepted(call, no)
    }

    fn answered(history: History, call: &str, no: u64) -> History {
        let id = i64::try_from(no).expect("a small number");
        history.result(no, no, 1, id, call, "at=p")
    }

    /// Two calls at the same time in the same session of the server's.
    fn both() -> History {
        let sent = begun(begun(limited(1), "a", 1), "b", 2);
        sent.executed("a", "p").executed("b", "p").done("a", "p").done("b", "p")
    }

    #[test]
    fn one_after_the_other_is_right() {
        let sent = begun(begun(limited(1), "a", 1), "b", 2);
        let run = sent.executed("a", "p").done("a", "p").executed("b", "p").done("b", "p");
        check("bound", &answered(answered(run, "a", 1), "b", 2), &[]);
        let other = begun(begun(limited(1), "a", 1), "b", 2);
        let other = other.executed("a", "p").executed("b", "q").done("a", "p").done("b", "q");
        check("bound", &answered(answered(other, "a", 1), "b", 2), &[]);
    }

    #[test]
    fn more_than_it_takes_is_wrong() {
        check("bound", &answered(answered(both(), "a", 1), "b", 2), &["b"]);
        let three = begun(begun(begun(limited(2), "a", 1), "b", 2), "c", 3);
        let three = three.executed("a", "p").executed("b", "p").executed("c", "p");
        let three = three.done("c", "p").done("b", "p").done("a", "p");
        check("bound", &answered(answered(answered(three, "a", 1), "b", 2), "c", 3), &["c"]);
    }

    /// Its sender may have stopped to wait for it when the other was sent.
    #[test]
    fn a_call_that_was_given_up_does_not_count() {
        let broken = both().error(1, 1, 1, 1, "outcome_unknown");
        check("bound", &answered(broken, "b", 2), &[]);
        let cancelled = both().and(Seen::Cancelled { call: "a".into() });
        check("bound", &answered(answered(cancelled, "a", 1), "b", 2), &[]);
        let twice = both().executed("a", "q").done("a", "q");
        check("bound", &answered(answered(twice, "a", 1), "b", 2), &[]);
    }

    #[test]
    fn a_call_that_takes_longer_than_a_death_does_not_count() {
        let sent = begun(begun(limited(1), "a", 1), "b", 2);
        let run = sent.executed("a", "p").wait(100).executed("b", "p").done("b", "p").done("a", "p");
        check("bound", &answered(answered(run, "a", 1), "b", 2), &[]);
    }
}
