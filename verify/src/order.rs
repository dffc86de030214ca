//! Events of a stream come in order: numbers go up by one, and whoever resumes gets what follows, neither less nor more.
//! What was dropped for want of room is announced.

use std::collections::BTreeMap;

use serde_json::Value;
use steadfast_wire::EventId;

use crate::digest::{Connection, Digest, Event};
use crate::verdict::{Bounds, Verdict, Violation};

pub(crate) fn check(digest: &Digest<'_>, _bounds: &Bounds, verdict: &mut Verdict) {
    // The stream that the events of a call were on.
    let mut streams: BTreeMap<&str, u64> = BTreeMap::new();
    for connection in digest.connections.values() {
        check_connection(connection, verdict);
        let first = connection.events.iter().find_map(|event| Some((event.at, event.position()?.stream)));
        if let (Some(call), Some((at, stream))) = (connection.of, first) {
            let known = *streams.entry(call).or_insert(stream);
            verdict.check(known == stream, || {
                Violation::new(at, call, format!("its stream was {known} and is {stream} now"))
            });
        }
    }
}

fn check_connection(connection: &Connection<'_>, verdict: &mut Verdict) {
    let of = connection.of.unwrap_or(connection.session);
    let mut last = connection.after.and_then(EventId::parse);
    let mut announced = 0;
    for event in &connection.events {
        if event.id.is_none() {
            announced += dropped(event);
            continue;
        }
        let Some(position) = event.position() else {
            let what = format!("an event has the id {:?}, which is none of ours", event.id);
            verdict.check(false, || Violation::new(event.at, of, what));
            continue;
        };
        let expected = match last {
            // An event without data is where to come back to, and no event.
            None if event.data.is_empty() => position,
            None if connection.of.is_some() => EventId { seq: 1 + announced, ..position },
            None => position,
            // A resumed stream begins by repeating where it resumes from.
            Some(last) if event.data.is_empty() => last,
            Some(last) => EventId { seq: last.seq + 1 + announced, ..last },
        };
        verdict.check(position == expected, || {
            let after = last.map_or_else(|| "the beginning".to_owned(), |last| last.to_string());
            let what = format!("after {after} comes {position} in place of {expected}");
            Violation::new(event.at, of, what)
        });
        announced = 0;
        last = Some(position);
    }
}

/// How many events a warning says were dropped.
fn dropped(event: &Event<'_>) -> u64 {
    let message: Value = serde_json::from_str(event.data).unwrap_or_default();
    let data = &message["params"]["data"];
    if data["reason"] == "overflow" { data["dropped"].as_u64().unwrap_or_default() } else { 0 }
}

#[cfg(test)]
mod tests {
    use crate::Seen;
    use crate::sample::{History, check};

    fn begun() -> History {
        History::new().sent("a", 1, "echo").accepted("a", 1).event(1, 7, 0, "")
    }

    #[test]
    fn one_after_the_other() {
        check("order", &begun().event(1, 7, 1, "x").event(1, 7, 2, "y"), &[]);
        let not_primed = History::new().sent("a", 1, "echo").accepted("a", 1);
        check("order", &not_primed.event(1, 7, 1, "x"), &[]);
        check("order", &begun().event(1, 7, 1, "x").resumed(Some("a"), 2, 7, 1).event(2, 7, 2, "y"), &[]);
        check("order", &begun().event(1, 7, 1, "x").resumed(Some("a"), 2, 7, 0).event(2, 7, 1, "x"), &[]);
        let resumed = begun().event(1, 7, 1, "x").resumed(Some("a"), 2, 7, 1).event(2, 7, 1, "");
        check("order", &resumed.clone().event(2, 7, 2, "y"), &[]);
        check("order", &resumed.event(2, 7, 1, "x"), &["a"]);
        check("order", &begun().event(1, 7, 1, "x").resumed(Some("a"), 2, 7, 1).event(2, 7, 0, ""), &["a"]);
        // A listener begins where somebody has left off.
        check("order", &History::new().listening(1).event(1, 0, 5, "").event(1, 0, 6, "x"), &[]);
    }

    #[test]
    fn nothing_is_skipped_doubled_or_turned_round() {
        check("order", &begun().event(1, 7, 2, "y"), &["a"]);
        check("order", &begun().event(1, 7, 1, "x").event(1, 7, 1, "x"), &["a"]);
        check("order", &begun().event(1, 7, 1, "x").event(1, 7, 2, "y").event(1, 7, 1, "x"), &["a"]);
        check("order", &begun().resumed(Some("a"), 2, 7, 0).event(2, 7, 2, "y"), &["a"]);
        check("order", &begun().event(1, 7, 1, "x").resumed(Some("a"), 2, 7, 1).event(2, 7, 1, "x"), &["a"]);
        check("order", &History::new().sent("a", 1, "echo").accepted("a", 1).event(1, 7, 2, "y"), &["a"]);
    }

    #[test]
    fn a_stream_stays_the_same() {
        check("order", &begun().event(1, 8, 1, "x"), &["a"]);
        check("order", &begun().resumed(Some("a"), 2, 8, 0).event(2, 8, 1, "x"), &["a"]);
        let id = Some("what".to_owned());
        check("order", &begun().and(Seen::Event { connection: 1, id, data: "x".into() }), &["a"]);
    }

    #[test]
    fn a_gap_may_be_announced() {
        let warning = r#"{"params":{"data":{"reason":"overflow","dropped":2}}}"#;
        let warned = begun().and(Seen::Event { connection: 1, id: None, data: warning.into() });
        check("order", &warned.clone().event(1, 7, 3, "z"), &[]);
        check("order", &warned.clone().event(1, 7, 2, "y"), &["a"]);
        check("order", &warned.event(1, 7, 3, "z").event(1, 7, 6, "z"), &["a"]);
    }
}
