//! The script "eras": two clients on one server at once, one with a session and one without.

mod handler;
mod player;
mod script;

use crate::stage::Stage;
use crate::{Outcome, Verdict, in_time};

use script::Script;

/// Tells what came of each step.
pub(crate) async fn play(url: &str, stage: &Stage, tell: impl Fn(&str, Outcome) -> Verdict) -> Verdict {
    let mut script = match Script::open(url).await {
        Ok(script) => script,
        Err(why) => return tell("connect", Err(why)),
    };
    let mut verdict = Verdict::Passed;
    for step in script::STEPS {
        verdict = verdict.and(tell(step, in_time(script.play(step, stage)).await));
    }
    verdict
}
