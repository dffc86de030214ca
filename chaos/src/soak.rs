//! Clients of others' making at work through the balancer while one gateway after the other is killed or restarted.

use std::process::{Child, Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use crate::clock::Clock;
use crate::failure::Failure;
use crate::nemesis::Nemesis;
use crate::plan::Lane;
use crate::recorder::Recorder;
use crate::watch::Watch;
use crate::world::{Recipe, Setting, World};

/// How long clients may take to end after their time is over.
const LAST_CALLS: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    setting: Setting,
    /// How long clients work
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// The command of a client, which gets the URL and the seconds as its last words and ends with 0 if all was well
    #[arg(long)]
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
        clients.push(Command::new("sh").args(["-c", &words]).spawn()?);
    }
    let nemesis = Nemesis::start(&world, &[Lane::Restarts], seed, &Recorder::new(clock));
    let end = options.seconds * 1000;
    while clock.now() < end && clients.iter_mut().any(is_running) {
        tokio::time::sleep(watch.interval()).await;
        let now = nemesis.now().join(", ");
        watch.say(&format!("{:>4} s: {:?} so far, now {now}", clock.now() / 1000, nemesis.counts()));
    }
    let faults = nemesis.stop().await?;
    let mut well = true;
    for mut client in clients {
        well &= ended_well(&mut client).await;
    }
    watch.end();
    for (fault, times) in faults {
        watch.say(&format!("{fault}: {times}"));
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
