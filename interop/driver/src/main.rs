//! Plays steps against an MCP server, directly or through the gateway, and prints a line of JSON for each.
//!
//! It speaks HTTP and JSON-RPC itself: it needs a say in ids, connections and cuts that SDKs do not give.
#![forbid(unsafe_code)]

mod exchange;
mod messages;
mod outcome;
mod process;
mod session;
mod steps;
mod stream;
mod target;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use serde_json::json;
use tokio::time::{Instant, timeout};

use outcome::{Fault, Word};
use steps::{STEPS, Step};
use target::Target;

/// Longer than any step takes that goes well.
const STEP_LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Parser)]
struct Cli {
    /// For logs and stores; must exist.
    #[arg(long)]
    folder: PathBuf,
    /// The `steadfast` program; without it the server is used directly.
    #[arg(long)]
    gateway: Option<PathBuf>,
    /// The gateway talks to the server on pipes and starts it itself.
    #[arg(long, requires = "gateway")]
    stdio: bool,
    /// Only this one, which may be given several times.
    #[arg(long = "step")]
    steps: Vec<String>,
    /// The server. It listens on `PORT`.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let played = play(&cli).await;
    if let Err(error) = &played {
        // Nowhere else to say it.
        let _ = writeln!(std::io::stderr(), "{error}");
    }
    if played.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn play(cli: &Cli) -> Result<(), String> {
    let mut target = Target::new(&cli.command, cli.gateway.as_deref(), cli.stdio, &cli.folder)?;
    for step in STEPS.iter().filter(|step| cli.steps.is_empty() || cli.steps.iter().any(|s| s == step.name)) {
        let started = Instant::now();
        let result = play_step(step, &mut target).await;
        let took = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (verdict, detail) = match &result {
            Ok(evidence) => ("ok".to_owned(), evidence),
            Err(fault) => (fault.word.to_string(), &fault.detail),
        };
        let line = json!({"step": step.name, "verdict": verdict, "detail": detail, "ms": took});
        writeln!(std::io::stdout(), "{line}").map_err(|error| error.to_string())?;
        if result.is_err() {
            // Whatever is left of it is not the next step's concern.
            target.stop();
        }
    }
    Ok(())
}

async fn play_step(step: &Step, target: &mut Target) -> Result<String, Fault> {
    target.ready().await?;
    let late = |_| Fault::new(Word::Hangs, format!("not over after {} s", STEP_LIMIT.as_secs()));
    timeout(STEP_LIMIT, (step.play)(target)).await.map_err(late)?
}
