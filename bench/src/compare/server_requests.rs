//! The benchmark `server-requests`: one call sends a thousand requests to its client at once and
//! ends when all have responses.

use std::io::{self, Write as _};

use clap::Args;
use memchr::memmem;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::measure::median;
use super::peer::Peer;
use crate::load::target::{Connection, Target};
use crate::{Error, load};

#[derive(Debug, Clone, Args, Serialize)]
pub(crate) struct ServerRequests {
    /// Server requests in flight at once.
    #[arg(long, default_value_t = 1000)]
    requests: u64,
    /// How often each peer is measured; medians are reported.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Connections that carry the responses.
    #[arg(long, default_value_t = 8)]
    connections: usize,
    /// Worker threads of each server.
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

/// The peer that ratios refer to.
const BASELINE: &str = "rmcp";

pub(super) fn run(options: &ServerRequests) -> Result<(), Error> {
    let threads = options.threads.to_string();
    let peers = [
        Peer::new(BASELINE, &["rmcp", "--threads", &threads]),
        Peer::new("steadfast memory", &["steadfast", "--threads", &threads]),
        Peer::new("steadfast sqlite", &["steadfast", "--store", "sqlite:sessions.db", "--threads", &threads]),
    ];
    let mut rates = vec![Vec::new(); peers.len()];
    for round in 0..options.rounds {
        let order = 0..peers.len();
        let order: Vec<_> = if round % 2 == 0 { order.collect() } else { order.rev().collect() };
        for index in order {
            let running = peers[index].start()?;
            let target = Target::parse(running.url())?;
            let seconds = load::runtime(1)?.block_on(fan(&target, options))?;
            let rate = options.requests as f64 / seconds;
            eprintln!(
                "round {} of {}, {}: {rate:.0} requests/s",
                round + 1,
                options.rounds,
                peers[index].name
            );
            rates[index].push(rate);
        }
    }
    report(options, &peers, &rates)
}

fn report(options: &ServerRequests, peers: &[Peer], rates: &[Vec<f64>]) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{:<18} {:>11} {:>8}", "server", "requests/s", "ratio")?;
    let medians: Option<Vec<f64>> = rates.iter().map(|rates| median(rates.iter().copied())).collect();
    let medians = medians.ok_or("at least one round is required")?;
    let mut results = Vec::new();
    for (peer, rate) in peers.iter().zip(&medians) {
        let ratio = rate / medians[0];
        writeln!(stdout, "{:<18} {rate:>11.0} {:>8}", peer.name, format!("{ratio:.2}x"))?;
        results.push(json!({ "server": peer.name, "requests_per_second": rate, "ratio": ratio }));
    }
    let line =
        json!({ "bench": "server-requests", "baseline": BASELINE, "plan": options, "results": results });
    writeln!(stdout, "{line}")?;
    Ok(())
}

/// Makes the server send requests and responds to them. Returns the seconds from the call to its
/// result.
async fn fan(target: &Target, options: &ServerRequests) -> Result<f64, Error> {
    let session = target.open_session().await?;
    // The first call is a warmup.
    answer_all(target, &session, options, options.requests.min(100)).await?;
    answer_all(target, &session, options, options.requests).await
}

async fn answer_all(
    target: &Target,
    session: &str,
    options: &ServerRequests,
    requests: u64,
) -> Result<f64, Error> {
    let mut responders = JoinSet::new();
    let mut senders = Vec::new();
    for _ in 0..options.connections.max(1) {
        let (sender, mut receiver) = mpsc::channel::<Vec<u8>>(options.requests.try_into()?);
        let mut connection = Connection::open(target).await?;
        responders.spawn(async move {
            while let Some(response) = receiver.recv().await {
                let status = connection.exchange(&response).await?.status();
                if status != 202 {
                    return Err(io::Error::other(format!("a response got status {status}")));
                }
            }
            Ok(())
        });
        senders.push(sender);
    }
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"fan","arguments":{{"requests":{requests}}}}}}}"#
    );
    let mut stream = target.connect().await?;
    let begun = Instant::now();
    stream.write_all(&target.post(Some(session), &body)).await?;
    let (mut unread, mut seen) = (Vec::new(), 0);
    loop {
        if stream.read_buf(&mut unread).await? == 0 {
            return Err(format!("the stream ended after {seen} requests").into());
        }
        while let Some(message) = next_message(&mut unread) {
            match message.method {
                Some(_) => {
                    let id = message.id.ok_or("a request without an id")?;
                    let response = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"roots":[]}}}}"#);
                    senders[seen % senders.len()].send(target.post(Some(session), &response)).await?;
                    seen += 1;
                }
                None if seen as u64 == requests => {
                    let seconds = begun.elapsed().as_secs_f64();
                    drop(senders);
                    while let Some(done) = responders.join_next().await {
                        done??;
                    }
                    return Ok(seconds);
                }
                None => return Err(format!("answered after {seen} of {requests} requests").into()),
            }
        }
    }
}

#[derive(Deserialize)]
struct Message {
    id: Option<Box<RawValue>>,
    method: Option<String>,
}

/// Removes the next message from the bytes that were read of a stream. The heads of chunks are
/// between events and are skipped.
fn next_message(unread: &mut Vec<u8>) -> Option<Message> {
    loop {
        let from = memmem::find(unread, b"data:")?;
        let length = memchr::memchr(b'\n', &unread[from..])?;
        let data = unread[from + "data:".len()..from + length].trim_ascii();
        let message = serde_json::from_slice(data).ok();
        unread.drain(..=from + length);
        if message.is_some() {
            return message;
        }
    }
}
