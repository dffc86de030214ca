//! A soak test: clients that use other SDKs work through the load balancer, while one gateway after
//! the other is killed or restarted.

use std::io::{self, Read as _, Write as _};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde::Deserialize;

use crate::clock::Clock;
use crate::deployment::{ClientPath, Config, Deployment, DeploymentOptions};
use crate::failure::Failure;
use crate::faults::{Fault, FaultSequence, Nemesis};
use crate::progress_line::ProgressLine;
use crate::recorder::Recorder;

/// How long a client may take to exit after its time is over.
const EXIT_LIMIT: Duration = Duration::from_secs(60);
/// Concurrent calls of a client in one session, and sessions of a client. The programs `soak` in
/// `interop/clients` have the same constants.
const WORKERS: u64 = 4;
const SESSIONS: u64 = 2;

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    deployment: DeploymentOptions,
    /// For how many seconds clients work
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// The command of a client; the URL and the seconds are appended, and exit code 0 means success
    #[arg(long, required = true)]
    client: Vec<String>,
}

pub(crate) async fn run(options: Options) -> Result<ExitCode, Failure> {
    let clock = Clock::start();
    let seed = options.deployment.seed;
    let config = Config { client_path: ClientPath::Direct, ..options.deployment.config()? };
    let progress_line = ProgressLine::new();
    progress_line.show(&format!("seed {seed}: starting gateways, store and servers"));
    let deployment = Arc::new(Deployment::start(&config, clock).await?);
    let url = format!("http://{}/mcp", deployment.address());
    let mut clients = Vec::new();
    for command in &options.client {
        let script = format!("exec {command} {url} {}", options.seconds);
        clients.push(Command::new("sh").args(["-c", &script]).stdout(Stdio::piped()).spawn()?);
    }
    let nemesis = Nemesis::start(&deployment, &[FaultSequence::Restarts], seed, &Recorder::new(clock));
    let end = options.seconds * 1000;
    while clock.now() < end && clients.iter_mut().any(is_running) {
        tokio::time::sleep(progress_line.interval()).await;
        let current = nemesis.current().join(", ");
        progress_line.show(&format!(
            "{:>4} s: {:?} so far, now {current}",
            clock.now() / 1000,
            nemesis.counts()
        ));
    }
    let faults = nemesis.stop().await?;
    progress_line.end();
    // A gateway that drains must not fail any call, so only kills count.
    let kills = faults.get(&Fault::KillGateway(0).name()).copied().unwrap_or_default();
    let mut is_success = true;
    let mut out = io::stdout();
    for mut client in clients {
        is_success &= exits_with_success(&mut client).await;
        let mut output = String::new();
        if let Some(mut stdout) = client.stdout.take() {
            stdout.read_to_string(&mut output)?;
        }
        write!(out, "{output}")?;
        if let Err(violation) = check_counts(&output, kills) {
            writeln!(out, "{violation}")?;
            is_success = false;
        }
    }
    for (fault, times) in faults {
        writeln!(out, "{fault}: {times}")?;
    }
    Ok(if is_success { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The outcomes that a client has counted, as it prints them.
#[derive(Debug, Deserialize)]
struct ClientCounts {
    client: String,
    #[serde(default, rename = "explicit errors")]
    errors: u64,
    #[serde(default, rename = "cut before the first word")]
    cut: u64,
    /// Also cut before the response, but the SDK does not report the reason.
    #[serde(default, rename = "ended without a word")]
    silent: u64,
    #[serde(default, rename = "lost with the SDK's session")]
    lost: u64,
}

/// Checks that a client has no more failed calls than the kills explain. A client checks its
/// responses itself, but does not know how often a gateway was killed.
fn check_counts(output: &str, kills: u64) -> Result<(), String> {
    let line = output.lines().last().unwrap_or_default();
    let ClientCounts { client, errors, cut, silent, lost } = serde_json::from_str(line)
        .map_err(|error| format!("the last line of a client is not its counts: {error}"))?;
    let cut = cut + silent;
    let (in_flight, may_be_lost) = (kills * SESSIONS * WORKERS, cut * WORKERS);
    for (what, count) in [("explicit errors", errors), ("cut before the first word", cut)] {
        if count > in_flight {
            return Err(format!("{client}: {count} {what}, but only {in_flight} in flight at {kills} kills"));
        }
    }
    if lost > may_be_lost {
        return Err(format!(
            "{client}: {lost} lost with a session, but only {may_be_lost} in flight in sessions that {cut} cuts ended"
        ));
    }
    Ok(())
}

fn is_running(client: &mut Child) -> bool {
    matches!(client.try_wait(), Ok(None))
}

/// Waits for a client to exit, and kills it after [`EXIT_LIMIT`]. Returns true for exit code 0.
async fn exits_with_success(client: &mut Child) -> bool {
    let step = Duration::from_millis(100);
    let mut waited = Duration::ZERO;
    while waited < EXIT_LIMIT {
        if let Ok(Some(status)) = client.try_wait() {
            return status.success();
        }
        tokio::time::sleep(step).await;
        waited += step;
    }
    // A client that hangs has failed.
    let _ = client.kill();
    let _ = client.wait();
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_calls_are_bounded_by_kills() {
        let check = |cut: u64, lost: u64, kills: u64, expect: Result<(), &str>| {
            let output = format!(
                r#"{{"client": "C", "answers": 9, "cut before the first word": {cut}, "lost with the SDK's session": {lost}}}"#
            );
            assert_eq!(check_counts(&output, kills), expect.map_err(str::to_owned), "{output}");
        };
        check(0, 0, 0, Ok(()));
        check(8, 32, 1, Ok(()));
        check(9, 0, 1, Err("C: 9 cut before the first word, but only 8 in flight at 1 kills"));
        check(1, 5, 1, Err("C: 5 lost with a session, but only 4 in flight in sessions that 1 cuts ended"));
        check(0, 1, 7, Err("C: 1 lost with a session, but only 0 in flight in sessions that 0 cuts ended"));
        let silent = r#"{"client": "C", "ended without a word": 1, "lost with the SDK's session": 4}"#;
        assert_eq!(check_counts(silent, 1), Ok(()));
        assert!(check_counts(silent, 0).is_err());
        assert_eq!(check_counts("{\"client\": \"C\", \"answers\": 9}\n", 0), Ok(()));
        let refused = r#"{"client": "C", "explicit errors": 1}"#;
        assert_eq!(check_counts(refused, 1), Ok(()));
        assert_eq!(
            check_counts(refused, 0),
            Err("C: 1 explicit errors, but only 0 in flight at 0 kills".to_owned())
        );
        assert!(check_counts("", 9).is_err());
        assert!(check_counts("Traceback\n", 9).is_err());
    }
}
