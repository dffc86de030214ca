//! What it costs to share sessions: throughput on each database, what a call asks of it, how long it takes to go on with a
//! stream at another node, and what an idle session takes.

mod redis;
mod resume;

use std::io::Write as _;

use clap::Args;
use serde_json::json;

use super::measure::{Group, Rounds, measure};
use super::peer::{Peer, Running};
use super::report;
use crate::Error;
use crate::load;
use crate::load::target::{Connection, Target};
use crate::serve::database::Database;

#[derive(Debug, Args)]
pub(crate) struct Nodes {
    #[command(flatten)]
    rounds: Rounds,
    /// Worker threads of each gateway.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Streams that are resumed at the same node, and as many at another.
    #[arg(long, default_value_t = 200)]
    resumes: usize,
    /// Idle sessions that the database is given.
    #[arg(long, default_value_t = 2000)]
    idle: usize,
    /// Calls of which the requests to the database are counted.
    #[arg(long, default_value_t = 1000)]
    calls: u64,
}

const MEMORY: &str = "steadfast memory";

/// A database, what its gateway is called in the table, and the least ratio to memory.
const DATABASES: [(Database, &str, f64); 2] =
    [(Database::Redis, "steadfast redis", 0.4), (Database::Postgres, "steadfast postgres", 0.2)];
/// By how much the median of a resume elsewhere may be slower, in milliseconds.
const ADDED_RESUME_MS: f64 = 5.0;
/// Requests to the database that a call may wait for.
const ROUND_TRIPS: f64 = 2.0;
/// What an idle session may take in Redis, in bytes.
const IDLE_BYTES: f64 = 1024.0;

pub(super) fn run(options: &Nodes) -> Result<(), Error> {
    let mut databases = Vec::new();
    for (database, name, target) in DATABASES {
        if database.is_installed() {
            let server = Peer::new(database.name(), &["database", database.name()]).start()?;
            databases.push((database, name, target, server));
        } else {
            eprintln!("{} is not installed here: it is left out", database.name());
        }
    }
    let mut peers = vec![gateway(MEMORY, "memory:", options)];
    peers.extend(databases.iter().map(|(_, name, _, server)| gateway(name, server.url(), options)));
    let groups = measure(&peers, &[32], &options.rounds)?;
    let mut lines = verdicts(&groups);
    let mut details = Vec::new();
    for (database, name, _, server) in &databases {
        if *database == Database::Redis {
            let cost = redis::cost(&gateway(name, server.url(), options), server, options)?;
            lines.extend(cost.lines());
            details.push(cost.json());
        }
        let resumes = load::runtime(1)?
            .block_on(resume::compare(&gateway(name, server.url(), options), options.resumes))?;
        lines.push(format!("{name}: {resumes}"));
        details.push(json!({ "server": name, "resume": resumes.json() }));
    }
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(report::table(&groups, MEMORY).as_bytes())?;
    writeln!(stdout)?;
    for line in lines {
        writeln!(stdout, "{line}")?;
    }
    let report = json!({
        "bench": "nodes",
        "throughput": serde_json::from_str::<serde_json::Value>(&report::json("nodes", &options.rounds, &groups, MEMORY)?)?,
        "details": details,
    });
    writeln!(stdout, "{report}")?;
    Ok(())
}

/// A gateway on this store, in front of a server that costs next to nothing.
fn gateway(name: &'static str, store: &str, options: &Nodes) -> Peer {
    let threads = options.threads.to_string();
    let args = ["proxy", "steadfast", "--store", store, "--threads", &threads];
    Peer { upstream: Some(vec!["fast".to_owned()]), ..Peer::new(name, &args) }
}

fn verdicts(groups: &[Group]) -> Vec<String> {
    let find = |name: &str| {
        let mut peers = groups.iter().flat_map(|group| &group.peers);
        peers.find(|peer| peer.name == name).map(|peer| peer.median.requests_per_second)
    };
    let line = |(_, name, target): &(Database, &str, f64)| {
        let ratio = find(name)? / find(MEMORY)?;
        Some(format!("{name} / {MEMORY}: {ratio:.2}x (target {target}x: {})", met(ratio >= *target)))
    };
    DATABASES.iter().filter_map(line).collect()
}

fn met(met: bool) -> &'static str {
    if met { "met" } else { "missed" }
}

/// Opens sessions that nobody uses.
async fn fill(gateway: &Running, sessions: usize) -> Result<(), Error> {
    let target = Target::parse(gateway.url())?;
    let mut connection = Connection::open(&target).await?;
    for _ in 0..sessions {
        target.open_session_over(&mut connection).await?;
    }
    Ok(())
}
