//! Promise `sessions`: a session exists until its client deletes it, also if processes die.

use crate::grouped_history::Digest;
use crate::verdict::{Bounds, Verdict, Violation};

pub(crate) fn check(digest: &Digest<'_>, _bounds: &Bounds, verdict: &mut Verdict) {
    for (name, session) in &digest.sessions {
        let early = session.lost.iter().find(|(at, _)| session.deleted.is_none_or(|deleted| *at < deleted));
        verdict.check(early.is_none(), || {
            let (at, on) = early.copied().unwrap_or_default();
            Violation::new(
                at,
                *name,
                format!(
                    "its client has not deleted it, and the server responds to {on} that it does not exist"
                ),
            )
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::Seen;
    use crate::test_history::{History, check};

    #[test]
    fn only_the_client_ends_a_session() {
        let lost = Seen::Lost { session: "s".into(), on: "POST".into() };
        let deleted = Seen::Deleted { session: "s".into() };
        check("sessions", &History::new(), &[]);
        check("sessions", &History::new().and(deleted.clone()).and(lost.clone()), &[]);
        check("sessions", &History::new().and(lost.clone()), &["s"]);
        check("sessions", &History::new().and(lost).and(deleted), &["s"]);
    }
}
