//! The benchmark `gateway`: steadfast and other proxies in front of one fast upstream server.

use std::io::Write as _;

use clap::Args;
use serde_json::json;

use super::measure::{Group, Rounds, measure};
use super::peer::{Earlier, Peer};
use super::report;
use crate::Error;
use crate::serve::{nginx, proxy};

#[derive(Debug, Args)]
pub(crate) struct Gateway {
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    earlier: Earlier,
    /// Worker threads of each gateway, and workers of nginx.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Measure only peers whose names contain this. There are no ratios without nginx.
    #[arg(long, default_value = "")]
    only: String,
}

/// The peer that ratios refer to.
const BASELINE: &str = "nginx";
const DIRECT: &str = "direct";
const STEADFAST: &str = "steadfast memory";
const SQLITE: &str = "steadfast sqlite";

/// The targets: the requests/s of steadfast over those of another peer.
const TARGETS: [(&str, &str, f64); 5] = [
    (STEADFAST, BASELINE, 0.7),
    (STEADFAST, "mcp-proxy (Rust)", 2.0),
    (STEADFAST, "mcp-proxy (PyPI)", 10.0),
    (STEADFAST, "FastMCP", 10.0),
    (SQLITE, STEADFAST, 0.6),
];
/// By how many microseconds a call on one connection may be slower than without gateway.
const ADDED_P50: f64 = 150.0;

pub(super) fn run(options: &Gateway) -> Result<(), Error> {
    let peers: Vec<Peer> =
        peers(options).into_iter().filter(|peer| peer.name.contains(&options.only)).collect();
    let groups = measure(&peers, &[32], &options.rounds)?;
    let alone = Rounds { connections: 1, ..options.rounds.clone() };
    let near: Vec<Peer> = peers.iter().filter(|peer| near(peer)).cloned().collect();
    let latencies = measure(&near, &[1], &alone)?;
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(report::table(&groups, BASELINE).as_bytes())?;
    writeln!(stdout, "\none connection:")?;
    stdout.write_all(report::table(&latencies, BASELINE).as_bytes())?;
    writeln!(stdout)?;
    for line in verdicts(&groups, &latencies) {
        writeln!(stdout, "{line}")?;
    }
    let both = json!({
        "bench": "gateway",
        "together": serde_json::from_str::<serde_json::Value>(&report::json("gateway", &options.rounds, &groups, BASELINE)?)?,
        "alone": serde_json::from_str::<serde_json::Value>(&report::json("gateway", &alone, &latencies, BASELINE)?)?,
    });
    writeln!(stdout, "{both}")?;
    let errors: u64 = groups
        .iter()
        .chain(&latencies)
        .flat_map(|group| &group.peers)
        .filter(|peer| peer.name.starts_with("steadfast"))
        .map(|peer| peer.median.errors)
        .sum();
    if errors > 0 { Err(format!("{errors} calls through steadfast failed").into()) } else { Ok(()) }
}

/// The peers of which only the latency is measured.
fn near(peer: &Peer) -> bool {
    [DIRECT, BASELINE, STEADFAST, SQLITE].contains(&peer.name)
}

fn peers(options: &Gateway) -> Vec<Peer> {
    let threads = options.threads.to_string();
    let before = |name, args: &[&str]| {
        let args: Vec<&str> = ["proxy"].iter().chain(args).copied().chain(["--threads", &threads]).collect();
        Peer { upstream: Some(vec!["fast".to_owned()]), ..Peer::new(name, &args) }
    };
    let mut peers = vec![
        Peer::new(DIRECT, &["fast"]),
        before(STEADFAST, &["steadfast", "--store", "memory:"]),
        before(SQLITE, &["steadfast", "--store", "sqlite:sessions.db"]),
    ];
    peers.extend(options.earlier.peers(&peers[1..], &["earlier memory", "earlier sqlite"]));
    if nginx::is_installed() {
        peers.push(before(BASELINE, &["nginx"]));
    }
    for (name, program, argument, tool, patience) in [
        ("mcp-proxy (Rust)", "bin/mcp-proxy", "mcp-proxy-rust", "fast/tiny", 1.0),
        ("mcp-proxy (PyPI)", "mcp-proxy/venv/bin/mcp-proxy", "mcp-proxy-python", "tiny", 1.0),
        ("FastMCP", "fastmcp/venv/bin/python", "fastmcp", "tiny", 6.0),
    ] {
        if proxy::has_peer(program) {
            peers.push(Peer { tool, patience, ..before(name, &[argument]) });
        } else {
            eprintln!(
                "{name} is not installed: {program} is missing; `cargo xtask bench gateway` installs it"
            );
        }
    }
    peers
}

/// Returns a line for each target and whether it was met.
fn verdicts(groups: &[Group], latencies: &[Group]) -> Vec<String> {
    let find = |groups: &[Group], name: &str| {
        groups.iter().flat_map(|group| &group.peers).find(|peer| peer.name == name).map(|peer| peer.median)
    };
    let met = |met: bool| if met { "met" } else { "missed" };
    let mut lines = Vec::new();
    for (ours, theirs, target) in TARGETS {
        let Some((ours_found, theirs_found)) = find(groups, ours).zip(find(groups, theirs)) else {
            lines.push(format!("{ours} / {theirs}: not measured (target {target}x)"));
            continue;
        };
        let ratio = ours_found.requests_per_second / theirs_found.requests_per_second;
        lines.push(format!("{ours} / {theirs}: {ratio:.2}x (target {target}x: {})", met(ratio >= target)));
    }
    if let Some((through, direct)) = find(latencies, STEADFAST).zip(find(latencies, DIRECT)) {
        let added = through.p50_us - direct.p50_us;
        let met = met(added <= ADDED_P50);
        lines.push(format!("added p50 at one connection: {added:.0} us (target {ADDED_P50} us: {met})"));
    }
    lines
}
