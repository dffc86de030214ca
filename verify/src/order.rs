//! Promise `order`: the events of a stream arrive in order. Their numbers increase by one, and a
//! client that resumes gets exactly the events that follow. Events that were dropped because a
//! limit was exceeded are announced.

use std::collections::BTreeMap;

use serde_json::Value;
use steadfast_wire::EventId;

use crate::grouped_history::{Connection, Digest, Event};
use crate::verdict::{Bounds, Verdict, Violation};

pub(crate) fn check(digest: &Digest<'_>, _bounds: &Bounds, verdict: &mut Verdict) {
    // The number of the stream of each call.
    let mut streams: BTreeMap<&str, u64> = BTreeMap::new();
    for connection in digest.connections.values() {
        check_connection(connection, verdict);
        let first = connection.events.iter().find_map(|event| Some((event.at, event.position()?.stream)));
        if let (Some(call), Some((at, stream))) = (connection.of, first) {
            let known = *streams.entry(call).or_insert(stream);
            verdict.check(known == stream, || {
                Violation::new(at, call, format!("its stream was {known} before and is {stream} now"))
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
            let what = format!("an event has the id {:?}, which the gateway does not issue", event.id);
            verdict.check(false, || Violation::new(event.at, of, what));
            continue;
        };
        let expected = match last {
            // An event without data only tells the client its position.
            None if event.data.is_empty() => position,
            None if connection.of.is_some() => EventId { seq: 1 + announced, ..position },
            None => position,
            // A resumed stream starts with the position that it resumes from.
            Some(last) if event.data.is_empty() => last,
            Some(last) => EventId { seq: last.seq + 1 + announced, ..last },
        };
        verdict.check(position == expected, || {
            let after = last.map_or_else(|| "the beginning".to_owned(), |last| last.to_string());
            let what = format!("after {after} comes {position} instead of {expected}");
            Violation::new(event.at, of, what)
        });
        announced = 0;
        last = Some(position);
    }
}

/// Returns the number of dropped events that a warning announces.
fn dropped(event: &Event<'_>) -> u64 {
    let message: Value = serde_json::from_str(event.data).unwrap_or_default();
    let data = &message["params"]["data"];
    if data["reason"] == "overflow" { data["dropped"].as_u64().unwrap_or_default() } else { 0 }
}

#[cfg(test)]
mod tests {
    use crate::Seen;
    use crate::test_history::{History, check};

    fn begun() -> History {
        History::new().sent("a", 1, "echo").accepted("a", 1).event(1, 7, 0, "")
    }

    #[test]
    fn events_in_order_are_right() {
        check("order", &begun().event(1, 7, 1, "x").event(1, 7, 2, "y"), &[]);
        let not_primed = History::new().sent("a", 1, "echo").accepted("a", 1);
        check("order", &not_primed.event(1, 7, 1, "x"), &[]);
        check("order", &begun().event(1, 7, 1, "x").resumed(Some("a"), 2, 7, 1).event(2, 7, 2, "y"), &[]);
        check("order", &begun().event(1, 7, 1, "x").resumed(Some("a"), 2, 7, 0).event(2, 7, 1, "x"), &[]);
        let resumed = begun().event(1, 7, 1, "x").resumed(Some("a"), 2, 7, 1).event(2, 7, 1, "");
        check("order", &resumed.clone().event(2, 7, 2, "y"), &[]);
        check("order", &resumed.event(2, 7, 1, "x"), &["a"]);
        check("order", &begun().event(1, 7, 1, "x").resumed(Some("a"), 2, 7, 1).event(2, 7, 0, ""), &["a"]);
        // A standalone stream may start at any number.
        check("order", &History::new().listening(1).event(1, 0, 5, "").event(1, 0, 6, "x"), &[]);
    }

    #[test]
    fn skipped_doubled_and_reordered_events_are_violations() {
        check("order", &begun().event(1, 7, 2, "y"), &["a"]);
        check("order", &begun().event(1, 7, 1, "x").event(1, 7, 1, "x"), &["a"]);
        check("order", &begun().event(1, 7, 1, "x").event(1, 7, 2, "y").event(1, 7, 1, "x"), &["a"]);
        check("order", &begun().resumed(Some("a"), 2, 7, 0).event(2, 7, 2, "y"), &["a"]);
        check("order", &begun().event(1, 7, 1, "x").resumed(Some("a"), 2, 7, 1).event(2, 7, 1, "x"), &["a"]);
        check("order", &History::new().sent("a", 1, "echo").accepted("a", 1).event(1, 7, 2, "y"), &["a"]);
    }

    #[test]
    fn a_call_keeps_its_stream() {
        check("order", &begun().event(1, 8, 1, "x"), &["a"]);
        check("order", &begun().resumed(Some("a"), 2, 8, 0).event(2, 8, 1, "x"), &["a"]);
        let id = Some("what".to_owned());
        check("order", &begun().and(Seen::Event { connection: 1, id, data: "x".into() }), &["a"]);
    }

    #[test]
    fn an_announced_gap_is_right() {
        let warning = r#"{"params":{"data":{"reason":"overflow","dropped":2}}}"#;
        let warned = begun().and(Seen::Event { connection: 1, id: None, data: warning.into() });
        check("order", &warned.clone().event(1, 7, 3, "z"), &[]);
        check("order", &warned.clone().event(1, 7, 2, "y"), &["a"]);
        check("order", &warned.event(1, 7, 3, "z").event(1, 7, 6, "z"), &["a"]);
    }
}
