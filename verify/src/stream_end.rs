//! Promise `stream_end`: the stream of a call ends after its answer. A stream that stays open tells
//! the client that the call is still in flight.

use crate::grouped_history::{Digest, answer};
use crate::verdict::{Bounds, Verdict, Violation};

pub(crate) fn check(digest: &Digest<'_>, bounds: &Bounds, verdict: &mut Verdict) {
    for connection in digest.connections.values() {
        let Some(call) = connection.of else { continue };
        let Some(answered) = connection.events.iter().find(|event| answer(event.data).is_some()) else {
            continue;
        };
        // A fault may delay the end.
        let due = answered.at.max(digest.calm) + bounds.ending;
        // A connection that broke was open until then.
        let until = connection.ended.or(connection.broken).unwrap_or(digest.over);
        let is_late = until > due && until != u64::MAX;
        verdict.check(!is_late, || {
            Violation::new(answered.at, call, "has its answer, and its stream stays open")
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::Seen;
    use crate::test_history::{BOUNDS, History, STEP, check};

    #[test]
    fn a_stream_ends_in_time() {
        let answered = History::new().sent("a", 1, "echo").accepted("a", 1).result(1, 1, 1, 1, "a", "");
        let ended = Seen::Ended { connection: 1 };
        check("stream_end", &answered.clone().wait(BOUNDS.ending - STEP).and(ended.clone()), &[]);
        check("stream_end", &answered.clone().wait(BOUNDS.ending).and(ended.clone()), &["a"]);
        check("stream_end", &answered.clone().wait(BOUNDS.ending).and(Seen::Calm).and(ended), &[]);
        check("stream_end", &answered.clone().wait(BOUNDS.ending).and(Seen::Over), &["a"]);
        let broken = Seen::Broken { connection: 1 };
        check("stream_end", &answered.clone().and(broken.clone()).wait(BOUNDS.ending).and(Seen::Over), &[]);
        let long = answered.wait(BOUNDS.ending).and(broken);
        check("stream_end", &long.clone().and(Seen::Over), &["a"]);
        // The client closed it during a fault.
        check("stream_end", &long.and(Seen::Calm).wait(BOUNDS.ending).and(Seen::Over), &[]);
    }
}
