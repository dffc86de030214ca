//! Promise `outcomes`: every accepted call has exactly one outcome, a result or an explicit error.
//!
//! A call that was cancelled, or whose client deleted the session, may have none.

use crate::grouped_history::{Digest, Fate};
use crate::verdict::{Bounds, Verdict, Violation};

pub(crate) fn check(digest: &Digest<'_>, _bounds: &Bounds, verdict: &mut Verdict) {
    for (name, call) in &digest.calls {
        let Fate::Accepted(accepted) = call.fate else { continue };
        let kinds: Vec<&str> = call.answers.iter().map(|answer| answer.said.kind()).collect();
        match &call.answers[..] {
            [] if call.cancelled || call.abandoned => verdict.check(true, || unreachable!("it holds")),
            [] => verdict.check(false, || {
                let what = format!("{} was accepted and never got an outcome", call.tool);
                Violation::new(accepted, *name, what)
            }),
            [_] => verdict.check(true, || unreachable!("it holds")),
            [first, .., last] => verdict.check(false, || {
                let ids = (first.event.unwrap_or("none"), last.event.unwrap_or("none"));
                let what = format!("{} has several outcomes: {kinds:?}, as events {ids:?}", call.tool);
                Violation::new(last.at, *name, what)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Seen;
    use crate::test_history::{History, check};

    #[test]
    fn one_outcome_is_right() {
        let good = History::new().whole(1, "a", "echo", "p", "");
        check("outcomes", &good, &[]);
        // An outcome that is read again counts once.
        let again = good.clone().resumed(Some("a"), 2, 1, 0).result(2, 1, 1, 1, "a", " at=p");
        check("outcomes", &again, &[]);
        let error = History::new().sent("a", 1, "echo").accepted("a", 1).error(1, 1, 1, 1, "outcome_unknown");
        check("outcomes", &error, &[]);
    }

    #[test]
    fn two_outcomes_are_a_violation() {
        let good = History::new().whole(1, "a", "echo", "p", "");
        check(
            "outcomes",
            &good.clone().resumed(Some("a"), 2, 1, 1).error(2, 1, 2, 1, "outcome_unknown"),
            &["a"],
        );
        check("outcomes", &good.resumed(Some("a"), 2, 1, 1).result(2, 1, 2, 1, "a", ""), &["a"]);
    }

    #[test]
    fn no_outcome_is_a_violation_unless_the_client_gave_up_the_call() {
        let none = History::new().sent("a", 1, "echo").accepted("a", 1).and(Seen::Ended { connection: 1 });
        check("outcomes", &none, &["a"]);
        check("outcomes", &none.clone().and(Seen::Cancelled { call: "a".into() }), &[]);
        check("outcomes", &none.and(Seen::Abandoned { call: "a".into() }), &[]);
        // There is no promise for a call that was refused or may not have arrived.
        let refused = Seen::Refused { call: "a".into(), status: 503, reason: String::new() };
        let refused = History::new().sent("a", 1, "echo").and(refused).whole(2, "b", "echo", "p", "");
        check("outcomes", &refused, &[]);
    }
}
