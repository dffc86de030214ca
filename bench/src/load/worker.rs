//! One connection that makes calls in a closed loop.

use std::time::Duration;

use tokio::time::Instant;

use super::call::Call;
use super::histogram::Histogram;
use super::target::{Connection, Target};

/// When counting starts and when a connection stops.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schedule {
    pub(super) count_from: Instant,
    pub(super) until: Until,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Until {
    Time(Instant),
    Count(u64),
}

/// The results of one connection, or of all.
#[derive(Debug)]
pub(super) struct Tally {
    /// Latencies of the correct responses within the counted time.
    pub(super) latencies: Histogram,
    /// Wrong, late or missing responses, at any time.
    pub(super) errors: u64,
    pub(super) first_error: Option<String>,
    /// All requests, also those of the warmup.
    pub(super) sent: u64,
    pub(super) end: Instant,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self { latencies: Histogram::new(), errors: 0, first_error: None, sent: 0, end: Instant::now() }
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.latencies.merge(&other.latencies);
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
        self.sent += other.sent;
        self.end = self.end.max(other.end);
    }

    fn fail(&mut self, reason: impl FnOnce() -> String) {
        self.errors += 1;
        self.first_error.get_or_insert_with(reason);
    }
}

/// Makes calls until the schedule ends. A broken connection is an error and is opened again.
pub(super) async fn run(target: Target, mut call: Call, schedule: Schedule) -> Tally {
    let mut tally = Tally::new();
    let mut connection = None;
    let mut counted = 0;
    let mut now = Instant::now();
    loop {
        let open = match &mut connection {
            Some(open) => open,
            none => match Connection::open(&target).await {
                Ok(opened) => none.insert(opened),
                Err(error) => {
                    tally.fail(|| format!("cannot connect: {error}"));
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    now = Instant::now();
                    if schedule.is_over(now, counted) || tally.errors > 1000 {
                        break;
                    }
                    continue;
                }
            },
        };
        // The end of one call is the start of the next, so the clock is read once per call.
        let start = now;
        let outcome = open.exchange(call.next()).await;
        now = Instant::now();
        tally.sent += 1;
        let counts = now >= schedule.count_from;
        counted += u64::from(counts);
        if schedule.is_past(now) {
            break;
        }
        match outcome {
            Ok(response) if call.is_answered_by(response) => {
                if counts {
                    tally.latencies.record(now - start);
                }
            }
            Ok(response) => tally.fail(|| {
                format!("wrong response: {} {}", response.status(), String::from_utf8_lossy(response.body()))
            }),
            Err(error) => {
                tally.fail(|| error.to_string());
                connection = None;
            }
        }
        if schedule.is_over(now, counted) {
            break;
        }
    }
    tally.end = now;
    tally
}

impl Schedule {
    /// Returns true if a response that arrives now is after the counted time.
    fn is_past(&self, now: Instant) -> bool {
        matches!(self.until, Until::Time(end) if now >= end)
    }

    fn is_over(&self, now: Instant, counted: u64) -> bool {
        match self.until {
            Until::Time(end) => now >= end,
            Until::Count(count) => counted >= count,
        }
    }
}
