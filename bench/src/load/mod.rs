//! The load generator: a closed loop on raw sockets. It does as little work per call as possible,
//! because it shares its cores with the server.

mod call;
mod histogram;
mod response;
pub(crate) mod target;
mod worker;

use std::io::Write as _;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::call::{Call, MOST_CONNECTIONS, Way};
use self::target::Target;
use self::worker::{Schedule, Tally, Until};
use crate::Error;

#[derive(Debug, Args)]
pub(crate) struct Command {
    #[command(flatten)]
    plan: Plan,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Plan {
    /// The MCP endpoint.
    #[arg(long)]
    pub(crate) url: String,
    /// Connections, each with one call in flight.
    #[arg(long, default_value_t = 32)]
    pub(crate) connections: usize,
    /// Sessions that the connections share. With 0, requests are stateless (2026-07-28).
    #[arg(long, default_value_t = 32)]
    pub(crate) sessions: usize,
    /// How long to count, after the warmup.
    #[arg(long, default_value_t = 3.0, conflicts_with = "requests")]
    pub(crate) seconds: f64,
    /// Count this many requests instead.
    #[arg(long)]
    pub(crate) requests: Option<u64>,
    /// Seconds of load before counting starts.
    #[arg(long, default_value_t = 0.5)]
    pub(crate) warmup: f64,
    /// Threads of the generator. One is cheapest and enough for two cores.
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: usize,
    /// The response of the server is constant: open no session and do not check the id.
    #[arg(long)]
    pub(crate) constant: bool,
    /// The tool that is called.
    #[arg(long, default_value = "tiny")]
    pub(crate) tool: String,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    pub(crate) connections: usize,
    pub(crate) sessions: usize,
    /// Correct responses within the counted time.
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first_error: Option<String>,
    pub(crate) seconds: f64,
    pub(crate) requests_per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// All requests, also those of the warmup.
    pub(crate) sent: u64,
}

pub(crate) fn run_command(command: &Command) -> Result<(), Error> {
    let report = run(&command.plan)?;
    let mut stdout = std::io::stdout().lock();
    if command.json {
        writeln!(stdout, "{}", serde_json::to_string(&report)?)?;
    } else {
        let Report { requests_per_second, p50_us, p99_us, errors, .. } = report;
        writeln!(
            stdout,
            "{requests_per_second:.0} requests/s, p50 {p50_us:.0} us, p99 {p99_us:.0} us, {errors} errors"
        )?;
        if let Some(error) = report.first_error {
            writeln!(stdout, "first error: {error}")?;
        }
    }
    Ok(())
}

/// Runs the whole plan on a new runtime.
pub(crate) fn run(plan: &Plan) -> Result<Report, Error> {
    if plan.connections == 0 || plan.connections > MOST_CONNECTIONS {
        return Err(format!("1 to {MOST_CONNECTIONS} connections are allowed").into());
    }
    runtime(plan.threads)?.block_on(generate(plan))
}

pub(crate) fn runtime(threads: usize) -> std::io::Result<Runtime> {
    // A current-thread runtime wakes its tasks without futexes and almost without atomics.
    let mut builder = if threads > 1 { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    builder.worker_threads(threads.max(1)).enable_all().build()
}

async fn generate(plan: &Plan) -> Result<Report, Error> {
    let target = Target::parse(&plan.url)?;
    let mut sessions = Vec::new();
    while !plan.constant && sessions.len() < plan.sessions {
        sessions.push(target.open_session().await?);
    }

    let count_from = Instant::now() + Duration::try_from_secs_f64(plan.warmup)?;
    let end = count_from + Duration::try_from_secs_f64(plan.seconds)?;
    let mut workers = JoinSet::new();
    for connection in 0..plan.connections {
        let until = plan.requests.map_or(Until::Time(end), |requests| {
            Until::Count(share(requests, plan.connections as u64, connection as u64))
        });
        if matches!(until, Until::Count(0)) {
            continue;
        }
        let way = match sessions.get(connection % plan.sessions.max(1)) {
            Some(session) => Way::InSession(session),
            None if plan.constant => Way::Constant,
            None => Way::Stateless,
        };
        let call = Call::new(&target, way, &plan.tool, connection);
        workers.spawn(worker::run(target.clone(), call, Schedule { count_from, until }));
    }
    let mut tally = Tally::new();
    while let Some(done) = workers.join_next().await {
        tally.merge(done?);
    }

    let counted_until = if plan.requests.is_some() { tally.end } else { end };
    let seconds = (counted_until - count_from).as_secs_f64();
    let requests = tally.latencies.total();
    Ok(Report {
        connections: plan.connections,
        sessions: plan.sessions,
        requests,
        errors: tally.errors,
        first_error: tally.first_error,
        seconds,
        requests_per_second: requests as f64 / seconds,
        p50_us: tally.latencies.quantile_us(0.5),
        p99_us: tally.latencies.quantile_us(0.99),
        sent: tally.sent,
    })
}

/// Returns the share of `total` for one of `parts`.
fn share(total: u64, parts: u64, index: u64) -> u64 {
    total / parts + u64::from(index < total % parts)
}
