//! Measures a list of peers in rounds, so that a slow minute of the machine affects all of them.

use clap::Args;
use serde::Serialize;

use super::peer::Peer;
use crate::Error;
use crate::load::{self, Plan};

#[derive(Debug, Clone, Args, Serialize)]
pub(crate) struct Rounds {
    /// How often each peer is measured; medians are reported.
    #[arg(long, default_value_t = 3)]
    pub(super) rounds: usize,
    /// Counted seconds per measurement.
    #[arg(long, default_value_t = 3.0)]
    pub(super) seconds: f64,
    /// Seconds of load before that, not counted.
    #[arg(long, default_value_t = 0.5)]
    pub(super) warmup: f64,
    /// Connections, each with one call in flight.
    #[arg(long, default_value_t = 32)]
    pub(super) connections: usize,
}

/// All peers under one number of sessions.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) sessions: usize,
    pub(super) peers: Vec<Measured>,
}

#[derive(Debug)]
pub(super) struct Measured {
    pub(super) name: &'static str,
    pub(super) median: Sample,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Sample {
    pub(super) requests_per_second: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    /// Processor time of the server per request. It varies less than requests/s on a busy machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) server_cpu_us: Option<f64>,
    pub(super) errors: u64,
}

pub(super) fn measure(peers: &[Peer], sessions: &[usize], rounds: &Rounds) -> Result<Vec<Group>, Error> {
    let mut samples = vec![vec![Vec::new(); peers.len()]; sessions.len()];
    for round in 0..rounds.rounds {
        for (group, &sessions) in samples.iter_mut().zip(sessions) {
            // Every other round is in reverse order, so that no peer always follows the same peer.
            let order = 0..peers.len();
            let order: Vec<_> = if round % 2 == 0 { order.collect() } else { order.rev().collect() };
            for index in order {
                let sample = sample(&peers[index], sessions, rounds)?;
                eprintln!(
                    "round {} of {}, {sessions} sessions, {}: {:.0} requests/s",
                    round + 1,
                    rounds.rounds,
                    peers[index].name,
                    sample.requests_per_second
                );
                group[index].push(sample);
            }
        }
    }
    let measured =
        |(peer, samples): (&Peer, &Vec<_>)| Some(Measured { name: peer.name, median: median_of(samples)? });
    let group = |(&sessions, samples): (_, &Vec<_>)| {
        Some(Group { sessions, peers: peers.iter().zip(samples).map(measured).collect::<Option<_>>()? })
    };
    let groups: Option<_> = sessions.iter().zip(&samples).map(group).collect();
    groups.ok_or_else(|| "at least one round is required".into())
}

/// Starts a server and measures it once.
fn sample(peer: &Peer, sessions: usize, rounds: &Rounds) -> Result<Sample, Error> {
    let running = peer.start()?;
    let before = running.processor_time();
    let report = load::run(&Plan {
        url: running.url().to_owned(),
        connections: rounds.connections,
        sessions,
        seconds: rounds.seconds * peer.patience,
        requests: None,
        warmup: rounds.warmup * peer.patience,
        threads: 1,
        constant: peer.constant,
        tool: peer.tool.to_owned(),
    })?;
    let spent = running.processor_time().zip(before).map(|(after, before)| after - before);
    if let Some(error) = &report.first_error {
        eprintln!("{}: {error}", peer.name);
    }
    Ok(Sample {
        requests_per_second: report.requests_per_second,
        p50_us: report.p50_us,
        p99_us: report.p99_us,
        server_cpu_us: spent.map(|spent| spent.as_secs_f64() * 1e6 / report.sent as f64),
        errors: report.errors,
    })
}

/// Returns the median of each number and the sum of all errors, or `None` without samples.
fn median_of(samples: &[Sample]) -> Option<Sample> {
    let of = |number: fn(&Sample) -> f64| median(samples.iter().map(number));
    Some(Sample {
        requests_per_second: of(|sample| sample.requests_per_second)?,
        p50_us: of(|sample| sample.p50_us)?,
        p99_us: of(|sample| sample.p99_us)?,
        server_cpu_us: median(samples.iter().filter_map(|sample| sample.server_cpu_us)),
        errors: samples.iter().map(|sample| sample.errors).sum(),
    })
}

/// Returns the middle value, or the mean of the two middle values, or `None` without values.
pub(super) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    let (upper, lower) = (values.len() / 2, values.len().saturating_sub(1) / 2);
    Some((values.get(upper)? + values.get(lower)?) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn medians() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), Some(2.5));
        assert_eq!(median(std::iter::empty()), None);
    }
}
