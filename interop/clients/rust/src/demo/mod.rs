//! The script "demo": one client, whose connections are cut, and a server that is killed.

mod listener;
mod player;
mod script;

use crate::stage::Stage;
use crate::{Outcome, Verdict, in_time};

use player::Player;

/// Tells what came of each step.
pub(crate) async fn play(url: &str, stage: &Stage, tell: impl Fn(&str, Outcome) -> Verdict) -> Verdict {
    let mut player = match Player::connect(url).await {
        Ok(player) => player,
        Err(error) => return tell("initialize", Err(error.to_string())),
    };
    let mut verdict = Verdict::Passed;
    for step in script::STEPS {
        verdict = verdict.and(tell(step, in_time(script::play(step, &mut player, stage)).await));
    }
    verdict
}
