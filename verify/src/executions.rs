//! Promise `executions`: a call that is not idempotent is executed at most once, and its outcome is
//! true. A call with a result was executed. A call whose error says that it was not executed was
//! not.

use crate::grouped_history::{Call, Digest, Fate, Said};
use crate::verdict::{Bounds, Verdict, Violation};

/// Reasons of errors that say that the call has not reached the server.
const NOT_EXECUTED: &[&str] = &["upstream_unavailable", "not_started", "over_limit"];

pub(crate) fn check(digest: &Digest<'_>, _bounds: &Bounds, verdict: &mut Verdict) {
    for (name, call) in &digest.calls {
        let executed = digest.executed.get(name).map_or(&[][..], Vec::as_slice);
        let last = executed.last().map_or(call.sent, |(at, _)| *at);
        verdict.check(call.safe || executed.len() <= 1, || {
            let what = format!("{} was executed {} times: {executed:?}", call.tool, executed.len());
            Violation::new(last, *name, what)
        });
        if let Some(error) = error_that_denies_execution(call) {
            verdict.check(executed.is_empty(), || {
                Violation::new(last, *name, format!("its client got {error}, and {} was executed", call.tool))
            });
        }
        if let Some(answer) = call.answers.iter().find(|answer| matches!(answer.said, Said::Result(_))) {
            verdict.check(!executed.is_empty(), || {
                Violation::new(answer.at, *name, format!("{} has a result and was not executed", call.tool))
            });
        }
    }
    for (name, executed) in &digest.executed {
        verdict.check(digest.calls.contains_key(name), || {
            Violation::new(executed[0].0, *name, "was executed, and no client has sent it")
        });
    }
}

/// Returns the error of a call, if it says that the call was not executed.
fn error_that_denies_execution(call: &Call<'_>) -> Option<String> {
    if let Fate::Refused { status, reason } = call.fate {
        return Some(format!("{status} {reason}"));
    }
    let reasons = call.answers.iter().filter_map(|answer| match &answer.said {
        Said::Error(reason) => Some(reason),
        Said::Result(_) => None,
    });
    reasons.into_iter().find(|reason| NOT_EXECUTED.contains(&reason.as_str())).cloned()
}

#[cfg(test)]
mod tests {
    use crate::Seen;
    use crate::test_history::{History, check};

    #[test]
    fn one_execution_is_right() {
        check("executions", &History::new().whole(1, "a", "effect", "p", ""), &[]);
        check("executions", &History::new().whole(1, "a", "safe", "p", "").executed("a", "q"), &[]);
        check("executions", &History::new().sent("a", 1, "effect"), &[]);
    }

    #[test]
    fn two_executions_are_a_violation() {
        check("executions", &History::new().whole(1, "a", "effect", "p", "").executed("a", "q"), &["a"]);
        check("executions", &History::new().executed("x", "p"), &["x"]);
    }

    #[test]
    fn errors_and_results_are_true() {
        let refused = Seen::Refused { call: "a".into(), status: 503, reason: "unavailable".into() };
        let refused = History::new().sent("a", 1, "effect").and(refused);
        check("executions", &refused, &[]);
        check("executions", &refused.executed("a", "p"), &["a"]);
        for (reason, expect) in
            [("upstream_unavailable", &["a"][..]), ("not_started", &["a"]), ("outcome_unknown", &[])]
        {
            let history = History::new().sent("a", 1, "effect").accepted("a", 1).executed("a", "p");
            check("executions", &history.error(1, 1, 1, 1, reason), expect);
        }
        let invented = History::new().sent("a", 1, "effect").accepted("a", 1).result(1, 1, 1, 1, "a", "");
        check("executions", &invented, &["a"]);
    }
}
