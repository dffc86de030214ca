//! An unsafe call is executed at most once, and what its client was told of that is true: an answer comes of an execution, and
//! who is told that nothing was done can rely on it.

use crate::digest::{Call, Digest, Fate, Said};
use crate::verdict::{Bounds, Verdict, Violation};

/// Errors that say that the call has never reached the server.
const NOTHING_DONE: &[&str] = &["upstream_unavailable", "not_started", "over_limit"];

pub(crate) fn check(digest: &Digest<'_>, _bounds: &Bounds, verdict: &mut Verdict) {
    for (name, call) in &digest.calls {
        let executed = digest.executed.get(name).map_or(&[][..], Vec::as_slice);
        let last = executed.last().map_or(call.sent, |(at, _)| *at);
        verdict.check(call.safe || executed.len() <= 1, || {
            let what = format!("{} was executed {} times: {executed:?}", call.tool, executed.len());
            Violation::new(last, *name, what)
        });
        if let Some(claim) = denies(call) {
            verdict.check(executed.is_empty(), || {
                Violation::new(
                    last,
                    *name,
                    format!("its client was told {claim}, and {} was executed", call.tool),
                )
            });
        }
        if let Some(answer) = call.answers.iter().find(|answer| matches!(answer.said, Said::Result(_))) {
            verdict.check(!executed.is_empty(), || {
                Violation::new(answer.at, *name, format!("{} has a result and was never executed", call.tool))
            });
        }
    }
    for (name, executed) in &digest.executed {
        verdict.check(digest.calls.contains_key(name), || {
            Violation::new(executed[0].0, *name, "was executed, and nobody has sent it")
        });
    }
}

/// What the client was told, if that means that nothing was done.
fn denies(call: &Call<'_>) -> Option<String> {
    if let Fate::Refused { status, reason } = call.fate {
        return Some(format!("{status} {reason}"));
    }
    let reasons = call.answers.iter().filter_map(|answer| match &answer.said {
        Said::Error(reason) => Some(reason),
        Said::Result(_) => None,
    });
    reasons.into_iter().find(|reason| NOTHING_DONE.contains(&reason.as_str())).cloned()
}

#[cfg(test)]
mod tests {
    use crate::Seen;
    use crate::sample::{History, check};

    #[test]
    fn once_is_right() {
        check("effects", &History::new().whole(1, "a", "effect", "p", ""), &[]);
        check("effects", &History::new().whole(1, "a", "safe", "p", "").executed("a", "q"), &[]);
        check("effects", &History::new().sent("a", 1, "effect"), &[]);
    }

    #[test]
    fn twice_is_wrong() {
        check("effects", &History::new().whole(1, "a", "effect", "p", "").executed("a", "q"), &["a"]);
        check("effects", &History::new().executed("x", "p"), &["x"]);
    }

    #[test]
    fn clients_are_told_the_truth() {
        let refused = Seen::Refused { call: "a".into(), status: 503, reason: "unavailable".into() };
        let refused = History::new().sent("a", 1, "effect").and(refused);
        check("effects", &refused, &[]);
        check("effects", &refused.executed("a", "p"), &["a"]);
        for (reason, expect) in
            [("upstream_unavailable", &["a"][..]), ("not_started", &["a"]), ("outcome_unknown", &[])]
        {
            let told = History::new().sent("a", 1, "effect").accepted("a", 1).executed("a", "p");
            check("effects", &told.error(1, 1, 1, 1, reason), expect);
        }
        let invented = History::new().sent("a", 1, "effect").accepted("a", 1).result(1, 1, 1, 1, "a", "");
        check("effects", &invented, &["a"]);
    }
}
