//! The benchmark `nodes`: the cost of shared sessions. Throughput on each database, requests to the
//! database per call, the time to resume a stream at another node, the size of an idle session.

mod redis;
mod resume;
mod rows;

use std::io::Write as _;

use clap::Args;
use serde_json::json;
use steadfast_store::testing::server::{PostgresServer, RedisServer};

use super::measure::{Group, Rounds, measure};
use super::peer::{Peer, Running};
use super::report;
use crate::load::target::{Connection, Target};
use crate::{Error, load};

#[derive(Debug, Args)]
pub(crate) struct Nodes {
    #[command(flatten)]
    rounds: Rounds,
    /// Worker threads of each gateway.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Streams that are resumed at their node, and as many at another node.
    #[arg(long, default_value_t = 200)]
    resumes: usize,
    /// Idle sessions in the database.
    #[arg(long, default_value_t = 2000)]
    idle: u32,
    /// Calls of which the requests to the database are counted.
    #[arg(long, default_value_t = 1000)]
    calls: u64,
}

const MEMORY: &str = "steadfast memory";

/// For each database the name of the gateway in the table, and the target ratio to memory.
const REDIS: (&str, f64) = ("steadfast redis", 0.4);
const POSTGRES: (&str, f64) = ("steadfast postgres", 0.2);
/// By how many milliseconds the median of a resume at another node may be slower.
const ADDED_RESUME_MS: f64 = 5.0;
/// Requests to the database that a call may wait for.
const ROUND_TRIPS: f64 = 2.0;
/// The target for the size of an idle session in Redis, in bytes.
const IDLE_BYTES: f64 = 1024.0;

pub(super) fn run(options: &Nodes) -> Result<(), Error> {
    // As our manual recommends: an acknowledged write reaches the disk within a second. PostgreSQL
    // has its default, which is before the acknowledgement.
    let redis = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "everysec"]);
    let postgres = PostgresServer::start(&["fsync=on", "full_page_writes=on", "shared_buffers=128MB"]);
    let redis_gateway = redis.as_ref().map(|server| gateway(REDIS.0, &server.url(), options));
    let postgres_gateway = postgres.as_ref().map(|server| gateway(POSTGRES.0, &server.url(), options));
    let shared: Vec<&Peer> = redis_gateway.iter().chain(&postgres_gateway).collect();
    let mut peers = vec![gateway(MEMORY, "memory:", options)];
    peers.extend(shared.iter().copied().cloned());
    let groups = measure(&peers, &[32], &options.rounds)?;
    let mut lines = verdicts(&groups);
    let mut details = Vec::new();
    if let (Some(gateway), Some(server)) = (&redis_gateway, &redis) {
        let cost = redis::cost(gateway, server, options)?;
        lines.extend(cost.lines());
        details.push(cost.json());
        let rows = rows::redis(server, options.idle)?;
        lines.push(rows.line());
        details.push(rows.json());
    }
    if let Some(server) = &postgres {
        let rows = rows::postgres(server, options.idle)?;
        lines.push(rows.line());
        details.push(rows.json());
    }
    for gateway in shared {
        let name = gateway.name;
        let resumes = load::runtime(1)?.block_on(resume::compare(gateway, options.resumes))?;
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

/// A gateway on this store, in front of a server that takes almost no time.
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
    let line = |(name, target): &(&str, f64)| {
        let ratio = find(name)? / find(MEMORY)?;
        Some(format!("{name} / {MEMORY}: {ratio:.2}x (target {target}x: {})", met(ratio >= *target)))
    };
    [REDIS, POSTGRES].iter().filter_map(line).collect()
}

fn met(met: bool) -> &'static str {
    if met { "met" } else { "missed" }
}

/// Opens idle sessions.
async fn fill(gateway: &Running, sessions: u32) -> Result<(), Error> {
    let target = Target::parse(gateway.url())?;
    let mut connection = Connection::open(&target).await?;
    for _ in 0..sessions {
        target.open_session_over(&mut connection).await?;
    }
    Ok(())
}
