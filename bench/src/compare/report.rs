//! Prints a comparison as a table and as one line of JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::measure::{Group, Measured, Rounds};

/// Returns a table with one line per peer and number of sessions.
pub(super) fn table(groups: &[Group], baseline: &str) -> String {
    let mut text = format!(
        "{:>8}  {:<18} {:>11} {:>9} {:>9} {:>13} {:>7} {:>10}\n",
        "sessions", "server", "requests/s", "p50 us", "p99 us", "server CPU us", "errors", "ratio"
    );
    for group in groups {
        for Measured { name, median } in &group.peers {
            let cpu = median.server_cpu_us.map_or_else(|| "-".to_owned(), |cpu| format!("{cpu:.1}"));
            let ratio =
                ratio(group, name, baseline).map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}x"));
            // Writing to a String does not fail.
            let _ = writeln!(
                text,
                "{:>8}  {name:<18} {:>11.0} {:>9.0} {:>9.0} {cpu:>13} {:>7} {ratio:>10}",
                group.sessions, median.requests_per_second, median.p50_us, median.p99_us, median.errors
            );
        }
    }
    text
}

pub(super) fn json(
    bench: &str,
    rounds: &Rounds,
    groups: &[Group],
    baseline: &str,
) -> Result<String, serde_json::Error> {
    let mut results = Vec::new();
    for group in groups {
        for Measured { name, median } in &group.peers {
            let mut row = serde_json::to_value(median)?;
            row["server"] = json!(name);
            row["sessions"] = json!(group.sessions);
            row["ratio"] = ratio(group, name, baseline).map_or(Value::Null, |ratio| json!(ratio));
            results.push(row);
        }
    }
    serde_json::to_string(
        &json!({ "bench": bench, "baseline": baseline, "plan": rounds, "results": results }),
    )
}

/// Returns the requests/s of a peer over those of the baseline in the same group.
fn ratio(group: &Group, name: &str, baseline: &str) -> Option<f64> {
    let of = |wanted| {
        group.peers.iter().find(|peer| peer.name == wanted).map(|peer| peer.median.requests_per_second)
    };
    Some(of(name)? / of(baseline).filter(|requests| *requests > 0.0)?)
}
