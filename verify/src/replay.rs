//! Promise `replay`: an event that was read can be read again, byte for byte. An event id means one
//! message on every connection, at every node, after every restart. Only the stream of a call that
//! has its answer may be removed.

use std::collections::BTreeMap;

use crate::grouped_history::Digest;
use crate::verdict::{Bounds, Verdict, Violation};

pub(crate) fn check(digest: &Digest<'_>, _bounds: &Bounds, verdict: &mut Verdict) {
    let mut known: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    for connection in digest.connections.values() {
        for event in connection.events.iter().filter(|event| !event.data.is_empty()) {
            let Some(id) = event.id else { continue };
            let first = *known.entry((connection.session, id)).or_insert(event.data);
            verdict.check(first == event.data, || {
                let what = format!("event {id} was {first} and is {} now", event.data);
                Violation::new(event.at, connection.of.unwrap_or(connection.session), what)
            });
        }
    }
    for refusal in &digest.not_resumed {
        let is_over = |call: &str| {
            digest.calls.get(call).is_some_and(|call| !call.answers.is_empty() || call.cancelled)
        };
        let ended = digest
            .sessions
            .get(refusal.session)
            .is_some_and(|session| session.deleted.is_some_and(|deleted| deleted <= refusal.at));
        // The promise `sessions` covers a session that does not exist.
        let is_allowed = ended || refusal.status == 404 || refusal.of.is_some_and(is_over);
        verdict.check(is_allowed, || {
            let (after, status) = (refusal.after, refusal.status);
            let what = format!("event {after} was read and is refused with {status} now: {}", refusal.reason);
            Violation::new(refusal.at, refusal.of.unwrap_or(refusal.session), what)
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::Seen;
    use crate::test_history::{History, check};

    #[test]
    fn an_event_id_means_one_message() {
        let read = History::new().sent("a", 1, "echo").accepted("a", 1).event(1, 7, 1, "x");
        check("replay", &read.clone().resumed(Some("a"), 2, 7, 0).event(2, 7, 1, "x"), &[]);
        check("replay", &read.clone().resumed(Some("a"), 2, 7, 0).event(2, 7, 1, "y"), &["a"]);
        // Each session has its own event ids.
        let other = read.sent_in("t", "b", 1, "echo").accepted("b", 2).event(2, 7, 1, "y");
        check("replay", &other, &[]);
    }

    #[test]
    fn a_stream_can_be_resumed_after_an_event_that_was_read() {
        let refused = |call: Option<&str>, status| Seen::NotResumed {
            session: "s".into(),
            of: call.map(str::to_owned),
            after: "7-1-00000001".into(),
            status,
            reason: "Last-Event-ID names no event".into(),
        };
        let read = History::new().sent("a", 1, "echo").accepted("a", 1).event(1, 7, 1, "x");
        check("replay", &read.clone().and(refused(Some("a"), 400)), &["a"]);
        check("replay", &read.clone().and(refused(None, 400)), &["s"]);
        check("replay", &read.clone().and(refused(Some("a"), 404)), &[]);
        check(
            "replay",
            &read.clone().and(Seen::Deleted { session: "s".into() }).and(refused(None, 400)),
            &[],
        );
        check(
            "replay",
            &read.clone().and(refused(None, 400)).and(Seen::Deleted { session: "s".into() }),
            &["s"],
        );
        check("replay", &read.result(1, 7, 2, 1, "a", "").and(refused(Some("a"), 400)), &[]);
    }
}
