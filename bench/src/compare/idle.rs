//! The benchmark `idle`: the resident memory of an idle session.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::peer::{Peer, Running};
use crate::load::target::{Connection, Target};
use crate::{Error, load};

#[derive(Debug, Args)]
pub(crate) struct Idle {
    /// Sessions of each steadfast server.
    #[arg(long, default_value_t = 100_000)]
    sessions: usize,
    /// Sessions of rmcp. Each needs much more memory, so fewer are enough.
    #[arg(long, default_value_t = 3_000)]
    rmcp_sessions: usize,
    /// Connections over which sessions are opened. They stay open.
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Measure only servers whose names contain this. There are no ratios without rmcp.
    #[arg(long, default_value = "")]
    only: String,
    /// Worker threads of each server.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Seconds after the last request until a server counts as idle. steadfast drops its cache of a
    /// session after 30 s.
    #[arg(long, default_value_t = 35)]
    settle: u64,
    /// The longest wait, in seconds, for memory to stop falling.
    #[arg(long, default_value_t = 120)]
    patience: u64,
}

/// The peer that ratios refer to.
const BASELINE: &str = "rmcp";
/// How long the memory must not have fallen.
const STEADY: Duration = Duration::from_secs(5);
/// The interval between two lines of progress.
const TICK: Duration = Duration::from_secs(2);

/// A peer, the number of its sessions, and the target for each in bytes.
struct Trial {
    peer: Peer,
    sessions: usize,
    target: Option<u64>,
}

struct Outcome {
    name: &'static str,
    sessions: usize,
    target: Option<u64>,
    before: u64,
    after: u64,
}

pub(super) fn run(options: &Idle) -> Result<(), Error> {
    if options.sessions == 0 || options.rmcp_sessions == 0 || options.connections == 0 {
        return Err("at least one session and one connection are required".into());
    }
    let mut outcomes = Vec::new();
    for trial in trials(options).into_iter().filter(|trial| trial.peer.name.contains(&options.only)) {
        let (name, sessions, target) = (trial.peer.name, trial.sessions, trial.target);
        let running = trial.peer.start()?;
        let (before, after) = load::runtime(1)?.block_on(fill(name, &running, sessions, options))?;
        outcomes.push(Outcome { name, sessions, target, before, after });
    }
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(table(&outcomes).as_bytes())?;
    writeln!(stdout, "{}", json(&outcomes))?;
    Ok(())
}

fn trials(options: &Idle) -> Vec<Trial> {
    let threads = options.threads.to_string();
    let steadfast = |name, store, target| Trial {
        peer: Peer::new(name, &["steadfast", "--store", store, "--threads", &threads]),
        sessions: options.sessions,
        target: Some(target),
    };
    vec![
        Trial {
            peer: Peer::new(BASELINE, &["rmcp", "--threads", &threads]),
            sessions: options.rmcp_sessions,
            target: None,
        },
        steadfast("steadfast memory", "memory:", 2048),
        steadfast("steadfast sqlite", "sqlite:sessions.db", 200),
    ]
}

/// Opens the sessions and waits until the memory is stable. Returns the resident bytes before and
/// after.
async fn fill(name: &str, running: &Running, sessions: usize, options: &Idle) -> Result<(u64, u64), Error> {
    let target = Target::parse(running.url())?;
    let mut connections = Vec::new();
    for _ in 0..options.connections {
        let mut connection = Connection::open(&target).await?;
        // One session that is not counted, so that the server has made its one-time allocations.
        target.open_session_over(&mut connection).await?;
        connections.push(connection);
    }
    let before = running.resident()?;
    let connections = open(name, running, &target, connections, sessions).await?;
    let after = settle(name, running, options).await?;
    // Open until now, because a connection is no part of a session.
    drop(connections);
    Ok((before, after))
}

/// Opens this many sessions over these connections, and returns the connections.
async fn open(
    name: &str,
    running: &Running,
    target: &Target,
    connections: Vec<Connection>,
    sessions: usize,
) -> Result<Vec<Connection>, Error> {
    let begun = Arc::new(AtomicUsize::new(0));
    let mut workers = JoinSet::new();
    for mut connection in connections {
        let (target, begun) = (target.clone(), Arc::clone(&begun));
        workers.spawn(async move {
            while begun.fetch_add(1, Ordering::Relaxed) < sessions {
                target.open_session_over(&mut connection).await?;
            }
            Ok::<_, Error>(connection)
        });
    }
    let mut connections = Vec::new();
    let mut tick = tokio::time::interval(TICK);
    while !workers.is_empty() {
        tokio::select! {
            Some(done) = workers.join_next() => connections.push(done??),
            _ = tick.tick() => {
                let begun = begun.load(Ordering::Relaxed).min(sessions);
                eprintln!("{name}: {begun} of {sessions} sessions, {} resident", mib(running.resident()?));
            }
        }
    }
    Ok(connections)
}

/// Waits until the server has been idle for long enough and its memory has stopped falling.
async fn settle(name: &str, running: &Running, options: &Idle) -> Result<u64, Error> {
    let start = Instant::now();
    let (mut least, mut least_at) = (running.resident()?, start);
    loop {
        sleep(TICK).await;
        let (now, resident) = (Instant::now(), running.resident()?);
        // A page or two less counts as stable.
        if resident + (64 << 10) < least {
            (least, least_at) = (resident, now);
        }
        let idle_for = (now - start).as_secs();
        eprintln!("{name}: idle for {idle_for} s, {} resident", mib(resident));
        if idle_for >= options.settle && now - least_at >= STEADY || idle_for >= options.patience {
            return Ok(resident);
        }
    }
}

fn table(outcomes: &[Outcome]) -> String {
    let mut text = format!(
        "{:<18} {:>8} {:>11} {:>11} {:>14} {:>7} {:>5} {:>9}\n",
        "server", "sessions", "before", "after", "bytes/session", "target", "met", "ratio"
    );
    for outcome in outcomes {
        let Outcome { name, sessions, target, before, after } = outcome;
        let target = target.map_or_else(|| "-".to_owned(), |target| format!("{target}"));
        let met = outcome.met().map_or("-", |met| if met { "yes" } else { "NO" });
        let ratio = ratio(outcomes, outcome).map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.4}x"));
        // Writing to a String does not fail.
        let _ = writeln!(
            text,
            "{name:<18} {sessions:>8} {:>11} {:>11} {:>14.0} {target:>7} {met:>5} {ratio:>9}",
            mib(*before),
            mib(*after),
            outcome.bytes_per_session()
        );
    }
    text
}

fn json(outcomes: &[Outcome]) -> String {
    let row = |outcome: &Outcome| {
        json!({
            "server": outcome.name,
            "sessions": outcome.sessions,
            "bytes_per_session": outcome.bytes_per_session(),
            "target_bytes": outcome.target,
            "met": outcome.met(),
            "ratio": ratio(outcomes, outcome),
        })
    };
    let results: Vec<_> = outcomes.iter().map(row).collect();
    json!({ "bench": "idle", "baseline": BASELINE, "results": results }).to_string()
}

impl Outcome {
    fn bytes_per_session(&self) -> f64 {
        self.after.saturating_sub(self.before) as f64 / self.sessions as f64
    }

    fn met(&self) -> Option<bool> {
        self.target.map(|target| self.bytes_per_session() <= target as f64)
    }
}

/// Returns the cost of a session over its cost at the baseline.
fn ratio(outcomes: &[Outcome], outcome: &Outcome) -> Option<f64> {
    let baseline = outcomes.iter().find(|other| other.name == BASELINE)?.bytes_per_session();
    (baseline > 0.0).then(|| outcome.bytes_per_session() / baseline)
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
