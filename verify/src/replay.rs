//! What was read can be read again, byte for byte: an event id stands for one message, on every connection, at every
//! process, after every restart. Only the stream of a call that has its answer may be gone.

use std::collections::BTreeMap;

use crate::digest::Digest;
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
        // A session that is not there any more is another promise's business.
        let excused = ended || refusal.status == 404 || refusal.of.is_some_and(is_over);
        verdict.check(excused, || {
            let (after, status) = (refusal.after, refusal.status);
            let what = format!("event {after} was read and is refused with {status} now: {}", refusal.reason);
            Violation::new(refusal.at, refusal.of.unwrap_or(refusal.session), what)
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::Seen;
    use crate::sample::{History, check};

    #[test]
    fn the_same_id_is_the_same_message() {
        let read = History::new().sent("a", 1, "echo").accepted("a", 1).event(1, 7, 1, "x");
        check("replay", &read.clone().resumed(Some("a"), 2, 7, 0).event(2, 7, 1, "x"), &[]);
        check("replay", &read.clone().resumed(Some("a"), 2, 7, 0).event(2, 7, 1, "y"), &["a"]);
        // Another session numbers its own.
        let other = read.sent_in("t", "b", 1, "echo").accepted("b", 2).event(2, 7, 1, "y");
        check("replay", &other, &[]);
    }

    #[test]
    fn what_was_read_can_be_resumed_from() {
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
