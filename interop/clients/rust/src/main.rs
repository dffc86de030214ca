//! The script of `interop/README.md` with the client of rmcp. Arguments: the endpoint's URL, the control URL.
#![forbid(unsafe_code)]
#![expect(deprecated, reason = "logging is deprecated from 2026-07-28 on and alive in every revision before")]

mod listener;
mod player;
mod script;
mod stage;

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;

use player::Player;
use script::STEPS;
use stage::Stage;

const STEP_LIMIT: Duration = Duration::from_secs(30);

/// One thread, so that notifications are handled in the order in which they came: rmcp spawns a task for each.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Some((url, control)) = env::args().nth(1).zip(env::args().nth(2)) else { return ExitCode::from(2) };
    let mut player = match Player::connect(&url).await {
        Ok(player) => player,
        Err(error) => {
            say("initialize", Err(error.to_string()));
            return ExitCode::FAILURE;
        }
    };
    let stage = Stage::new(control);
    let mut failed = false;
    for step in STEPS {
        let outcome = tokio::time::timeout(STEP_LIMIT, script::play(step, &mut player, &stage)).await;
        let outcome = outcome.unwrap_or_else(|_| Err("it took too long".to_owned()));
        failed |= outcome.is_err();
        say(step, outcome);
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn say(step: &str, outcome: Result<String, String>) {
    let ok = outcome.is_ok();
    let (Ok(detail) | Err(detail)) = outcome;
    // If nobody listens, nobody minds.
    let _ = writeln!(io::stdout(), "{}", json!({"step": step, "ok": ok, "detail": detail}));
}
