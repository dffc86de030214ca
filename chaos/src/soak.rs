//! Clients of others' making at work through the balancer while one gateway after the other is killed or restarted.

use std::io::{self, Read as _, Write as _};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde::Deserialize;

use crate::clock::Clock;
use crate::failure::Failure;
use crate::nemesis::Nemesis;
use crate::plan::{Fault, Lane};
use crate::recorder::Recorder;
use crate::watch::Watch;
use crate::world::{Recipe, Setting, World};

/// How long clients may take to end after their time is over.
const LAST_CALLS: Duration = Duration::from_secs(60);
/// Calls that a client has under way at a time, in a session and in all: `WORKERS` and `SESSIONS` of each soak.
const WORKERS: u64 = 4;
const SESSIONS: u64 = 2;

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    setting: Setting,
    /// How long clients work
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// The command of a client, which gets the URL and the seconds as its last words and ends with 0 if all was well
    #[arg(long, required = true)]
    client: Vec<String>,
}

pub(crate) async fn run(options: Options) -> Result<ExitCode, Failure> {
    let clock = Clock::start();
    let seed = options.setting.seed;
    let recipe = Recipe { direct: true, ..options.setting.recipe()? };
    let watch = Watch::new();
    watch.say(&format!("seed {seed}: starting gateways, store and servers"));
    let world = Arc::new(World::start(&recipe, clock).await?);
    let url = format!("http://{}/mcp", world.address());
    let mut clients = Vec::new();
    for command in &options.client {
        let words = format!("exec {command} {url} {}", options.seconds);
        clients.push(Command::new("sh").args(["-c", &words]).stdout(Stdio::piped()).spawn()?);
    }
    let nemesis = Nemesis::start(&world, &[Lane::Restarts], seed, &Recorder::new(clock));
    let end = options.seconds * 1000;
    while clock.now() < end && clients.iter_mut().any(is_running) {
        tokio::time::sleep(watch.interval()).await;
        let now = nemesis.now().join(", ");
        watch.say(&format!("{:>4} s: {:?} so far, now {now}", clock.now() / 1000, nemesis.counts()));
    }
    let faults = nemesis.stop().await?;
    watch.end();
    // A gateway that is stopped in good order costs nobody anything.
    let kills = faults.get(&Fault::KillGateway(0).name()).copied().unwrap_or_default();
    let mut well = true;
    let mut out = io::stdout();
    for mut client in clients {
        well &= ended_well(&mut client).await;
        let mut said = String::new();
        if let Some(mut stdout) = client.stdout.take() {
            stdout.read_to_string(&mut said)?;
        }
        write!(out, "{said}")?;
        if let Err(complaint) = judge(&said, kills) {
            writeln!(out, "{complaint}")?;
            well = false;
        }
    }
    for (fault, times) in faults {
        writeln!(out, "{fault}: {times}")?;
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What a client has counted.
#[derive(Debug, Deserialize)]
struct Account {
    client: String,
    #[serde(default, rename = "explicit errors")]
    errors: u64,
    #[serde(default, rename = "cut before the first word")]
    cut: u64,
    /// The same, but the client was not told why its session ended.
    #[serde(default, rename = "ended without a word")]
    silent: u64,
    #[serde(default, rename = "lost with the SDK's session")]
    lost: u64,
}

/// A client judges its own answers. How often a gateway was killed, and what that may cost, is not known to it.
fn judge(said: &str, kills: u64) -> Result<(), String> {
    let line = said.lines().last().unwrap_or_default();
    let Account { client, errors, cut, silent, lost } = serde_json::from_str(line)
        .map_err(|error| format!("a client gives no account of itself: {error}"))?;
    let cut = cut + silent;
    let (under_way, may_be_lost) = (kills * SESSIONS * WORKERS, cut * WORKERS);
    for (what, count) in [("explicit errors", errors), ("cut before the first word", cut)] {
        if count > under_way {
            return Err(format!("{client}: {count} {what}, {under_way} under way at {kills} kills"));
        }
    }
    if lost > may_be_lost {
        return Err(format!(
            "{client}: {lost} lost with a session, {may_be_lost} under way in those that {cut} cuts ended"
        ));
    }
    Ok(())
}

fn is_running(client: &mut Child) -> bool {
    matches!(client.try_wait(), Ok(None))
}

async fn ended_well(client: &mut Child) -> bool {
    let step = Duration::from_millis(100);
    let mut waited = Duration::ZERO;
    while waited < LAST_CALLS {
        if let Ok(Some(status)) = client.try_wait() {
            return status.success();
        }
        tokio::time::sleep(step).await;
        waited += step;
    }
    // It hangs, and that is its result.
    let _ = client.kill();
    let _ = client.wait();
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kill_costs_is_bounded() {
        let check = |cut: u64, lost: u64, kills: u64, expect: Result<(), &str>| {
            let said = format!(
                r#"{{"client": "C", "answers": 9, "cut before the first word": {cut}, "lost with the SDK's session": {lost}}}"#
            );
            assert_eq!(judge(&said, kills), expect.map_err(str::to_owned), "{said}");
        };
        check(0, 0, 0, Ok(()));
        check(8, 32, 1, Ok(()));
        check(9, 0, 1, Err("C: 9 cut before the first word, 8 under way at 1 kills"));
        check(1, 5, 1, Err("C: 5 lost with a session, 4 under way in those that 1 cuts ended"));
        check(0, 1, 7, Err("C: 1 lost with a session, 0 under way in those that 0 cuts ended"));
        let silent = r#"{"client": "C", "ended without a word": 1, "lost with the SDK's session": 4}"#;
        assert_eq!(judge(silent, 1), Ok(()));
        assert!(judge(silent, 0).is_err());
        assert_eq!(judge("{\"client\": \"C\", \"answers\": 9}\n", 0), Ok(()));
        let refused = r#"{"client": "C", "explicit errors": 1}"#;
        assert_eq!(judge(refused, 1), Ok(()));
        assert_eq!(judge(refused, 0), Err("C: 1 explicit errors, 0 under way at 0 kills".to_owned()));
        assert!(judge("", 9).is_err());
        assert!(judge("Traceback\n", 9).is_err());
    }
}
