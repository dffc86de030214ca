//! A stream ends after its answer: a response that goes on says that a call is still in flight.

use crate::digest::{Digest, answer};
use crate::verdict::{Bounds, Verdict, Violation};

pub(crate) fn check(digest: &Digest<'_>, bounds: &Bounds, verdict: &mut Verdict) {
    for connection in digest.connections.values() {
        let Some(call) = connection.of else { continue };
        let Some(answered) = connection.events.iter().find(|event| answer(event.data).is_some()) else {
            continue;
        };
        // A fault may hold back the end as anything else.
        let due = answered.at.max(digest.calm) + bounds.ending;
        // One that broke was there until then.
        let until = connection.ended.or(connection.broken).unwrap_or(digest.over);
        let is_late = until > due && until != u64::MAX;
        verdict.check(!is_late, || {
            Violation::new(
                answered.at,
                call,
                "has its answer, and its stream goes on as if there were another",
            )
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::Seen;
    use crate::sample::{BOUNDS, History, STEP, check};

    #[test]
    fn soon_is_soon_enough() {
        let answered = History::new().sent("a", 1, "echo").accepted("a", 1).result(1, 1, 1, 1, "a", "");
        let ended = Seen::Ended { connection: 1 };
        check("endings", &answered.clone().wait(BOUNDS.ending - STEP).and(ended.clone()), &[]);
        check("endings", &answered.clone().wait(BOUNDS.ending).and(ended.clone()), &["a"]);
        check("endings", &answered.clone().wait(BOUNDS.ending).and(Seen::Calm).and(ended), &[]);
        check("endings", &answered.clone().wait(BOUNDS.ending).and(Seen::Over), &["a"]);
        let broken = Seen::Broken { connection: 1 };
        check("endings", &answered.clone().and(broken.clone()).wait(BOUNDS.ending).and(Seen::Over), &[]);
        let long = answered.wait(BOUNDS.ending).and(broken);
        check("endings", &long.clone().and(Seen::Over), &["a"]);
        // The client had enough of it while something was broken.
        check("endings", &long.and(Seen::Calm).wait(BOUNDS.ending).and(Seen::Over), &[]);
    }
}
