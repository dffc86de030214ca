//! Runs the scripts of `interop/README.md` with the client of rmcp. Arguments: the script, the URL
//! of the endpoint, the URL of the control endpoint. Or: `calls`, the era, the URL of the endpoint.
#![forbid(unsafe_code)]
#![expect(deprecated, reason = "features that 2026-07-28 deprecates exist in every revision before")]

mod calls;
mod control;
mod demo;
mod eras;

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;

use control::Control;

const STEP_LIMIT: Duration = Duration::from_secs(30);

/// Evidence of a step, or why it failed.
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

/// Runs on one thread, so that notifications are handled in the order of arrival: rmcp spawns a
/// task for each.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [mode, era, url] = &arguments[..]
        && mode == "calls"
    {
        return calls::run(era, url).await;
    }
    let [script, url, control] = &arguments[..] else { return ExitCode::from(2) };
    let control = Control::new(control.clone());
    let verdict = match &**script {
        "demo" => demo::run(url, &control, report).await,
        "eras" => eras::run(url, &control, report).await,
        _ => return ExitCode::from(2),
    };
    if verdict == Verdict::Passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn with_limit(step: impl Future<Output = Outcome>) -> Outcome {
    tokio::time::timeout(STEP_LIMIT, step).await.unwrap_or_else(|_| Err("the step timed out".to_owned()))
}

fn report(step: &str, outcome: Outcome) -> Verdict {
    let verdict = if outcome.is_ok() { Verdict::Passed } else { Verdict::Failed };
    let ok = outcome.is_ok();
    let (Ok(detail) | Err(detail)) = outcome;
    // Fails if the driver has closed the pipe after a timeout.
    let _ = writeln!(io::stdout(), "{}", json!({"step": step, "ok": ok, "detail": detail}));
    verdict
}

fn expect<T: PartialEq + std::fmt::Debug>(got: &T, wanted: &T) -> Result<(), String> {
    if got == wanted { Ok(()) } else { Err(format!("got {got:?}, wanted {wanted:?}")) }
}
