//! The scripts of `interop/README.md` with the client of rmcp. Arguments: the script, the endpoint's URL, the control URL.
#![forbid(unsafe_code)]
#![expect(deprecated, reason = "what 2026-07-28 deprecates is alive in every revision before")]

mod demo;
mod eras;
mod stage;

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;

use stage::Stage;

const STEP_LIMIT: Duration = Duration::from_secs(30);

/// What a step says of itself, or why it failed.
type Outcome = Result<String, String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed,
}

impl Verdict {
    fn and(self, other: Self) -> Self {
        if self == Self::Passed { other } else { self }
    }
}

/// One thread, so that notifications are handled in the order in which they came: rmcp spawns a task for each.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [script, url, control] = &arguments[..] else { return ExitCode::from(2) };
    let stage = Stage::new(control.clone());
    let verdict = match &**script {
        "demo" => demo::play(url, &stage, tell).await,
        "eras" => eras::play(url, &stage, tell).await,
        _ => return ExitCode::from(2),
    };
    if verdict == Verdict::Passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn in_time(step: impl Future<Output = Outcome>) -> Outcome {
    tokio::time::timeout(STEP_LIMIT, step).await.unwrap_or_else(|_| Err("it took too long".to_owned()))
}

fn tell(step: &str, outcome: Outcome) -> Verdict {
    let verdict = if outcome.is_ok() { Verdict::Passed } else { Verdict::Failed };
    let ok = outcome.is_ok();
    let (Ok(detail) | Err(detail)) = outcome;
    // If nobody listens, nobody minds.
    let _ = writeln!(io::stdout(), "{}", json!({"step": step, "ok": ok, "detail": detail}));
    verdict
}

fn expect<T: PartialEq + std::fmt::Debug>(got: &T, wanted: &T) -> Result<(), String> {
    if got == wanted { Ok(()) } else { Err(format!("got {got:?}, wanted {wanted:?}")) }
}
