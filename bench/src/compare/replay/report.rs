//! Prints the results of `replay` as a table and as one line of JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Attach, Length, Outcome};

/// How much the cost of attaching may depend on the position.
const ATTACH_TOLERANCE: f64 = 0.1;

pub(super) fn table(outcomes: &[Outcome]) -> String {
    let mut text = format!(
        "{:<18} {:>8} {:>9} {:>9} {:>9} {:>8} {:>5}\n",
        "server", "events", "seconds", "us/event", "MB/s", "target", "met"
    );
    // Writing to a String does not fail, here and below.
    for outcome in outcomes {
        for length in &outcome.lengths {
            let target = outcome.target.map_or_else(|| "-".to_owned(), |target| format!("{target:.0}"));
            let met = outcome.target.map_or("-", |target| word(length.speed() >= target));
            let _ = writeln!(
                text,
                "{:<18} {:>8} {:>9.3} {:>9.2} {:>9.0} {target:>8} {met:>5}",
                outcome.name,
                length.events,
                length.seconds,
                length.us_per_event(),
                length.speed()
            );
        }
    }
    let _ = writeln!(
        text,
        "\n{:<18} {:>10} {:>14} {:>14} {:>8} {:>8} {:>5} {:>14}",
        "first event after", "linear", "us at start", "us before end", "ratio", "target", "met", "us at end"
    );
    for outcome in outcomes {
        let Attach { at_start, before_end, at_end } = outcome.attach;
        let _ = writeln!(
            text,
            "{:<18} {:>9.2}x {at_start:>14.0} {before_end:>14.0} {:>7.2}x {:>8} {:>5} {at_end:>14.0}",
            outcome.name,
            outcome.linearity().unwrap_or(f64::NAN),
            outcome.attach.ratio(),
            "±10 %",
            word(outcome.attach.met())
        );
    }
    text
}

pub(super) fn json(outcomes: &[Outcome]) -> String {
    let length = |length: &Length| {
        json!({
            "events": length.events,
            "seconds": length.seconds,
            "us_per_event": length.us_per_event(),
            "mb_per_second": length.speed(),
        })
    };
    let row = |outcome: &Outcome| {
        json!({
            "server": outcome.name,
            "lengths": outcome.lengths.iter().map(length).collect::<Vec<_>>(),
            "mb_per_second": outcome.lengths.last().map(Length::speed),
            "target_mb_per_second": outcome.target,
            "met": outcome.met(),
            "us_per_event_longest_over_shortest": outcome.linearity(),
            "attach_start_us": outcome.attach.at_start,
            "attach_before_end_us": outcome.attach.before_end,
            "attach_end_us": outcome.attach.at_end,
            "attach_ratio": outcome.attach.ratio(),
            "attach_met": outcome.attach.met(),
        })
    };
    let results: Vec<Value> = outcomes.iter().map(row).collect();
    json!({ "bench": "replay", "results": results }).to_string()
}

fn word(met: bool) -> &'static str {
    if met { "yes" } else { "NO" }
}

impl Outcome {
    fn met(&self) -> Option<bool> {
        Some(self.lengths.last()?.speed() >= self.target?)
    }

    /// Returns the cost of an event of the longest stream over that of the shortest.
    fn linearity(&self) -> Option<f64> {
        Some(self.lengths.last()?.us_per_event() / self.lengths.first()?.us_per_event())
    }
}

impl Length {
    /// Returns megabytes of payload per second.
    fn speed(&self) -> f64 {
        self.payload as f64 / 1e6 / self.seconds
    }

    fn us_per_event(&self) -> f64 {
        self.seconds * 1e6 / self.events as f64
    }
}

impl Attach {
    fn ratio(&self) -> f64 {
        self.before_end / self.at_start
    }

    fn met(&self) -> bool {
        (self.ratio() - 1.0).abs() <= ATTACH_TOLERANCE
    }
}
