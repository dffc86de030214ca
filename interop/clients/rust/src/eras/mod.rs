//! The script "eras": two clients on one server at once, one with a session and one without.

mod client;
mod handler;
mod script;

use crate::control::Control;
use crate::{Outcome, Verdict, with_limit};

use script::Script;

/// Runs all steps and reports each.
pub(crate) async fn run(url: &str, control: &Control, report: impl Fn(&str, Outcome) -> Verdict) -> Verdict {
    let mut script = match Script::open(url).await {
        Ok(script) => script,
        Err(why) => return report("connect", Err(why)),
    };
    let mut verdict = Verdict::Passed;
    for step in script::STEPS {
        verdict = verdict.and(report(step, with_limit(script.run(step, control)).await));
    }
    verdict
}
