//! The benchmark `library`: one handler behind the session layer of each library.

use std::io::Write as _;

use clap::Args;

use super::measure::{Rounds, measure};
use super::peer::{Earlier, Peer};
use super::report;
use crate::{Error, serve};

#[derive(Debug, Args)]
pub(crate) struct Library {
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    earlier: Earlier,
    /// Worker threads of each server.
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

/// The peer that ratios refer to.
const BASELINE: &str = "rmcp";
/// One session shared by all connections, one per connection, and none: stateless requests of
/// 2026-07-28.
const SESSIONS: [usize; 3] = [1, 32, 0];

pub(super) fn run(options: &Library) -> Result<(), Error> {
    let groups = measure(&peers(options), &SESSIONS, &options.rounds)?;
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(report::table(&groups, BASELINE).as_bytes())?;
    writeln!(stdout, "{}", report::json("library", &options.rounds, &groups, BASELINE)?)?;
    let errors: u64 = groups.iter().flat_map(|group| &group.peers).map(|peer| peer.median.errors).sum();
    if errors > 0 {
        Err(format!("{errors} calls failed, so the numbers mean nothing").into())
    } else {
        Ok(())
    }
}

fn peers(options: &Library) -> Vec<Peer> {
    let threads = options.threads.to_string();
    let steadfast = |name, store| Peer::new(name, &["steadfast", "--store", store, "--threads", &threads]);
    let mut peers = vec![
        Peer::new(BASELINE, &["rmcp", "--threads", &threads]),
        steadfast("steadfast memory", "memory:"),
        steadfast("steadfast sqlite", "sqlite:sessions.db"),
        // The handler declares that it sends nothing but responses, which is true.
        Peer::new("steadfast silent", &["steadfast", "--silent", "--threads", &threads]),
    ];
    peers.extend(options.earlier.peers(&peers[1..], &["earlier memory", "earlier sqlite", "earlier silent"]));
    if serve::nginx::is_installed() {
        peers.push(Peer { constant: true, ..Peer::new("nginx", &["nginx"]) });
    }
    peers
}
