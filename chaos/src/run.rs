//! A run, from the first process to the verdict.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;
use steadfast_verify::{Bounds, Entry, Seen, judge, parse};
use tokio::task::JoinSet;

use crate::client::{self, Shared};
use crate::clock::Clock;
use crate::failure::Failure;
use crate::nemesis::Nemesis;
use crate::plan::Lane;
use crate::recorder::{self, Recorder};
use crate::report::Report;
use crate::rng::Rng;
use crate::tickets::Tickets;
use crate::watch::Watch;
use crate::world::{Recipe, Setting, World};

/// A dead gateway is noticed after five seconds; a server that cannot be reached is waited for during ten.
const BOUNDS: Bounds = Bounds { liveness: 25_000, ending: 8_000, death: 5_000 };
/// Calls that are made after the last fault, in a hundred.
const CALM_PERCENT: u64 = 10;

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    setting: Setting,
    #[arg(long, default_value_t = 50_000)]
    calls: u64,
    /// How long these take, if nobody is slower
    #[arg(long, default_value_t = 540)]
    seconds: u64,
    #[arg(long, default_value_t = 20)]
    clients: usize,
    /// A variable for gateways, as NAME=VALUE
    #[arg(long)]
    variable: Vec<String>,
    /// Keep the history whatever comes of it
    #[arg(long)]
    keep: bool,
    /// Print JSON in place of a table
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(options: Options) -> Result<ExitCode, Failure> {
    let clock = Clock::start();
    let variable =
        |text: &String| text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    let variables = options.variable.iter().filter_map(variable).collect();
    let recipe = Recipe { variables, ..options.setting.recipe()? };
    let watch = Watch::new();
    watch.say(&format!("seed {}: starting gateways, store and servers", options.setting.seed));
    let world = Arc::new(World::start(&recipe, clock).await?);
    let (history, faults) = play(&options, &world, clock, &watch).await?;
    watch.end();
    drop(world);
    let kept = recipe.folder.join("history.jsonl");
    let report = Report::new(options.setting.seed, clock.now(), &history, faults, judge(&history, &BOUNDS));
    if options.keep || !report.holds() {
        recorder::write(&history, &kept)?;
        report.print(options.json, Some(&kept))?;
    } else {
        report.print(options.json, None)?;
        std::fs::remove_dir_all(&recipe.folder)?;
    }
    Ok(report.exit_code())
}

/// Judges a history that was kept.
pub(crate) fn judge_file(path: &Path) -> Result<ExitCode, Failure> {
    let history = parse(&std::fs::read_to_string(path)?)?;
    let took = history.last().map_or(0, |entry| entry.at);
    let report = Report::new(0, took, &history, BTreeMap::new(), judge(&history, &BOUNDS));
    report.print(false, Some(path))?;
    Ok(report.exit_code())
}

/// Everything that was seen, and the faults that there were.
async fn play(
    options: &Options,
    world: &Arc<World>,
    clock: Clock,
    watch: &Watch,
) -> Result<(Vec<Entry>, BTreeMap<String, u64>), Failure> {
    let recorder = Recorder::new(clock);
    if let Some(most) = options.setting.concurrency {
        recorder.note(Seen::Limited { calls: most.get() });
    }
    let tickets = Tickets::new(options.calls, Duration::from_secs(options.seconds));
    let address = world.address();
    let shared = Arc::new(Shared { address, recorder: recorder.clone(), tickets, in_flight: 0.into() });
    let mut clients = JoinSet::new();
    for number in 0..options.clients {
        let rng = Rng::of(options.setting.seed, &format!("client {number}"));
        clients.spawn(client::run(Arc::clone(&shared), number, rng));
    }
    let nemesis = Nemesis::start(world, &Lane::ALL, options.setting.seed, &recorder);
    until_calm(&nemesis, &shared, clock, watch).await;
    watch.say("no more faults: everybody is started again");
    let faults = nemesis.stop().await?;
    recorder.note(Seen::Calm);
    wind_up(&mut clients, &shared, clock, watch).await;
    recorder.note(Seen::Over);
    world.check().await?;
    for journal in world.journals() {
        recorder.add(parse(&std::fs::read_to_string(journal)?)?);
    }
    Ok((recorder.take(), faults))
}

/// Waits until most calls are made.
async fn until_calm(nemesis: &Nemesis, shared: &Shared, clock: Clock, watch: &Watch) {
    let tickets = &shared.tickets;
    let enough = tickets.in_all() - tickets.in_all() * CALM_PERCENT / 100;
    let mut said = 0;
    while tickets.taken() < enough {
        if clock.now() >= said {
            said = clock.now() + u64::try_from(watch.interval().as_millis()).unwrap_or_default();
            let faults: u64 = nemesis.counts().values().sum();
            let line = progress(shared, clock);
            watch.say(&format!("{line}, {faults} faults, now {}", nemesis.now().join(", ")));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Lets clients come to their end, for as long as anything may take; then nobody waits any more.
async fn wind_up(clients: &mut JoinSet<()>, shared: &Shared, clock: Clock, watch: &Watch) {
    const STEP: Duration = Duration::from_millis(500);
    let last = Duration::from_millis(BOUNDS.liveness + 5_000);
    let (mut waited, mut said) = (Duration::ZERO, Duration::ZERO);
    while !clients.is_empty() && waited < last {
        let all = async { while clients.join_next().await.is_some() {} };
        if tokio::time::timeout(STEP, all).await.is_err() && said >= watch.interval() {
            watch.say(&format!("{}, no faults", progress(shared, clock)));
            said = Duration::ZERO;
        }
        said += STEP;
        // The last calls are made by and by, and then the time begins.
        if shared.tickets.taken() == shared.tickets.in_all() {
            waited += STEP;
        }
    }
    shared.tickets.end();
    clients.shutdown().await;
}

fn progress(shared: &Shared, clock: Clock) -> String {
    let (taken, in_all) = (shared.tickets.taken(), shared.tickets.in_all());
    let in_flight = shared.in_flight.load(Ordering::Relaxed);
    format!("{:>4} s: {taken} of {in_all} calls, {in_flight} in flight", clock.now() / 1000)
}
