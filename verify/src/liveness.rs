//! Promise `liveness`: after the faults, every call gets its outcome in time, also calls that begin
//! afterwards.

use crate::grouped_history::{Digest, Fate};
use crate::verdict::{Bounds, Verdict, Violation};

pub(crate) fn check(digest: &Digest<'_>, bounds: &Bounds, verdict: &mut Verdict) {
    for (name, call) in &digest.calls {
        let Fate::Accepted(accepted) = call.fate else { continue };
        let due = accepted.max(digest.calm) + bounds.liveness;
        let end = match call.answers.first() {
            Some(answer) => answer.at,
            None if call.cancelled || call.abandoned => continue,
            None => digest.over,
        };
        verdict.check(end <= due, || {
            let late = if call.answers.is_empty() { "had none" } else { "got it" };
            let what = format!("{} should have an outcome at {due} ms and {late} at {end} ms", call.tool);
            Violation::new(due, *name, what)
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::Seen;
    use crate::test_history::{BOUNDS, History, STEP, check};

    #[test]
    fn every_call_gets_its_outcome_in_time() {
        let begun = History::new().sent("a", 1, "echo").accepted("a", 1);
        let answered = |history: History| history.result(1, 1, 1, 1, "a", "");
        check("liveness", &answered(begun.clone().wait(BOUNDS.liveness - 2 * STEP)), &[]);
        check("liveness", &answered(begun.clone().wait(BOUNDS.liveness)), &["a"]);
        check("liveness", &answered(begun.clone().wait(BOUNDS.liveness).and(Seen::Calm)), &[]);
        check("liveness", &begun.clone().wait(BOUNDS.liveness).and(Seen::Over), &["a"]);
        check(
            "liveness",
            &begun.wait(BOUNDS.liveness).and(Seen::Calm).wait(BOUNDS.liveness).and(Seen::Over),
            &["a"],
        );
    }
}
