//! A chaos run: starts the deployment, causes faults while clients work, and checks every promise.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;
use steadfast_verify::{Bounds, Entry, Seen, judge, parse};
use tokio::task::JoinSet;

use crate::call_schedule::CallSchedule;
use crate::client::{self, Shared};
use crate::clock::Clock;
use crate::deployment::{Deployment, DeploymentOptions};
use crate::failure::Failure;
use crate::faults::{FaultSequence, Nemesis};
use crate::progress_line::ProgressLine;
use crate::recorder::{self, Recorder};
use crate::report::Report;
use crate::rng::Rng;

/// Time limits of the promises, in milliseconds. `death` is the time after which gateways reap a
/// dead gateway. `liveness` adds the ten seconds that gateways wait for an unreachable server, and
/// a margin for a busy machine.
const BOUNDS: Bounds = Bounds { liveness: 25_000, ending: 8_000, death: 5_000 };
/// The percentage of the calls that clients make after the last fault.
const CALM_PERCENT: u64 = 10;

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    deployment: DeploymentOptions,
    /// The total number of calls of all clients
    #[arg(long, default_value_t = 50_000)]
    calls: u64,
    /// Seconds over which the calls are spread; the run takes longer if calls wait for a gateway
    #[arg(long, default_value_t = 540)]
    seconds: u64,
    /// How many clients make the calls
    #[arg(long, default_value_t = 20)]
    clients: usize,
    /// Keep the history and the logs even if no promise was violated
    #[arg(long)]
    keep: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(options: Options) -> Result<ExitCode, Failure> {
    let clock = Clock::start();
    let config = options.deployment.config()?;
    let progress_line = ProgressLine::new();
    progress_line.show(&format!("seed {}: starting gateways, store and servers", options.deployment.seed));
    let deployment = Arc::new(Deployment::start(&config, clock).await?);
    let (history, faults) = work_under_faults(&options, &deployment, clock, &progress_line).await?;
    progress_line.end();
    // Stops all processes.
    drop(deployment);
    let history_path = config.folder.join("history.jsonl");
    let report =
        Report::new(options.deployment.seed, clock.now(), &history, faults, judge(&history, &BOUNDS));
    if options.keep || !report.holds() {
        recorder::write(&history, &history_path)?;
        report.print(options.json, Some(&history_path))?;
    } else {
        report.print(options.json, None)?;
        std::fs::remove_dir_all(&config.folder)?;
    }
    Ok(report.exit_code())
}

/// Checks a history that an earlier run has saved. Its seed is unknown.
pub(crate) fn judge_file(path: &Path) -> Result<ExitCode, Failure> {
    let history = parse(&std::fs::read_to_string(path)?)?;
    let duration_ms = history.last().map_or(0, |entry| entry.at);
    let report = Report::new(0, duration_ms, &history, BTreeMap::new(), judge(&history, &BOUNDS));
    report.print(false, Some(path))?;
    Ok(report.exit_code())
}

/// The names of all promises that a run checks.
pub(crate) fn promises() -> Vec<&'static str> {
    judge(&[], &BOUNDS).iter().map(|verdict| verdict.name).collect()
}

/// Lets the clients work while the nemesis causes faults. Returns the history, and how many faults
/// of each kind there were.
async fn work_under_faults(
    options: &Options,
    deployment: &Arc<Deployment>,
    clock: Clock,
    progress_line: &ProgressLine,
) -> Result<(Vec<Entry>, BTreeMap<String, u64>), Failure> {
    let recorder = Recorder::new(clock);
    if let Some(limit) = options.deployment.concurrency {
        recorder.record(Seen::Limited { calls: limit.get() });
    }
    let schedule = CallSchedule::new(options.calls, Duration::from_secs(options.seconds));
    let address = deployment.address();
    let shared = Arc::new(Shared { address, recorder: recorder.clone(), schedule, in_flight: 0.into() });
    let mut clients = JoinSet::new();
    for number in 0..options.clients {
        let rng = Rng::of(options.deployment.seed, &format!("client {number}"));
        clients.spawn(client::run(Arc::clone(&shared), number, rng));
    }
    let nemesis = Nemesis::start(deployment, &FaultSequence::CHAOS_RUN, options.deployment.seed, &recorder);
    wait_for_calls_under_faults(&nemesis, &shared, clock, progress_line).await;
    progress_line.show("no more faults; waiting for the end of the current ones");
    let faults = nemesis.stop().await?;
    recorder.record(Seen::Calm);
    finish_calls(&mut clients, &shared, clock, progress_line).await;
    recorder.record(Seen::Over);
    deployment.check().await?;
    for journal in deployment.journals() {
        recorder.add(parse(&std::fs::read_to_string(journal)?)?);
    }
    Ok((recorder.take(), faults))
}

/// Waits until clients have started all calls except those that follow the last fault.
async fn wait_for_calls_under_faults(
    nemesis: &Nemesis,
    shared: &Shared,
    clock: Clock,
    progress_line: &ProgressLine,
) {
    let schedule = &shared.schedule;
    let calls_under_faults = schedule.total() - schedule.total() * CALM_PERCENT / 100;
    let mut next_line = 0;
    while schedule.started() < calls_under_faults {
        if clock.now() >= next_line {
            next_line = clock.now() + u64::try_from(progress_line.interval().as_millis()).unwrap_or_default();
            let faults: u64 = nemesis.counts().values().sum();
            let line = progress(shared, clock);
            progress_line.show(&format!("{line}, {faults} faults, now {}", nemesis.current().join(", ")));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until the clients have ended. Stops them five seconds after the last call should have
/// ended.
async fn finish_calls(
    clients: &mut JoinSet<()>,
    shared: &Shared,
    clock: Clock,
    progress_line: &ProgressLine,
) {
    const STEP: Duration = Duration::from_millis(500);
    let limit = Duration::from_millis(BOUNDS.liveness + 5_000);
    let (mut since_last_call, mut since_line) = (Duration::ZERO, Duration::ZERO);
    while !clients.is_empty() && since_last_call < limit {
        let all = async { while clients.join_next().await.is_some() {} };
        if tokio::time::timeout(STEP, all).await.is_err() && since_line >= progress_line.interval() {
            progress_line.show(&format!("{}, no faults", progress(shared, clock)));
            since_line = Duration::ZERO;
        }
        since_line += STEP;
        if shared.schedule.started() == shared.schedule.total() {
            since_last_call += STEP;
        }
    }
    shared.schedule.stop();
    clients.shutdown().await;
}

fn progress(shared: &Shared, clock: Clock) -> String {
    let (started, total) = (shared.schedule.started(), shared.schedule.total());
    let in_flight = shared.in_flight.load(Ordering::Relaxed);
    format!("{:>4} s: {started} of {total} calls, {in_flight} in flight", clock.now() / 1000)
}
