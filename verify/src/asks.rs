//! An ask is answered once, by the session that was asked: of several answers one is taken, and the asker gets that one.

use std::collections::BTreeMap;

use crate::digest::{Digest, Said};
use crate::marks::word;
use crate::verdict::{Bounds, Verdict, Violation};

pub(crate) fn check(digest: &Digest<'_>, _bounds: &Bounds, verdict: &mut Verdict) {
    taken_once(digest, verdict);
    heard_as_sent(digest, verdict);
    answered_with_what_was_heard(digest, verdict);
}

fn taken_once(digest: &Digest<'_>, verdict: &mut Verdict) {
    let mut taken: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    for reply in &digest.replies {
        verdict.check(digest.session_of(reply.call) == Some(reply.session), || {
            let what = format!("its ask was put to session {}", reply.session);
            Violation::new(reply.at, reply.call, what)
        });
        if !(200..300).contains(&reply.status) {
            continue;
        }
        let before = taken.insert((reply.session, reply.ask), reply.reply);
        verdict.check(before.is_none_or(|before| before == reply.reply), || {
            let what =
                format!("two answers to its ask were taken: {} and {}", before.unwrap_or(""), reply.reply);
            Violation::new(reply.at, reply.call, what)
        });
    }
}

/// What an asker hears is what a client has sent for this very call.
fn heard_as_sent(digest: &Digest<'_>, verdict: &mut Verdict) {
    let mut sent: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for reply in &digest.replies {
        sent.entry(reply.call).or_default().push(reply.reply);
    }
    for (call, heard) in &digest.heard {
        for (i, (at, reply)) in heard.iter().enumerate() {
            let is_sent = sent.get(call).is_some_and(|sent| sent.contains(reply));
            verdict.check(is_sent, || {
                Violation::new(*at, *call, format!("its asker heard {reply}, which nobody said to it"))
            });
            verdict.check(!heard[..i].iter().any(|(_, before)| before == reply), || {
                Violation::new(*at, *call, format!("its asker heard {reply} twice"))
            });
        }
    }
}

/// The result of a call that asked says what it heard.
fn answered_with_what_was_heard(digest: &Digest<'_>, verdict: &mut Verdict) {
    for (name, call) in &digest.calls {
        for answer in &call.answers {
            let Said::Result(text) = &answer.said else { continue };
            let Some(reply) = word(text, "reply") else { continue };
            let heard =
                digest.heard.get(name).is_some_and(|heard| heard.iter().any(|(_, one)| *one == reply));
            verdict.check(heard, || {
                Violation::new(answer.at, *name, format!("its answer repeats {reply}, which it never heard"))
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Seen;
    use crate::sample::{History, check};

    fn replied(session: &str, reply: &str, status: u16) -> Seen {
        let (session, reply) = (session.into(), reply.into());
        Seen::Replied { session, call: "a".into(), ask: "q1".into(), reply, status }
    }

    fn heard(reply: &str) -> Seen {
        Seen::Heard { call: "a".into(), reply: reply.into() }
    }

    fn asked() -> History {
        History::new().sent("a", 1, "ask").accepted("a", 1)
    }

    #[test]
    fn one_answer_is_taken_and_heard() {
        let good = asked().and(replied("s", "x", 202)).and(replied("s", "y", 400)).and(heard("x"));
        check("asks", &good.clone().result(1, 1, 1, 1, "a", "reply=x"), &[]);
        check("asks", &good.result(1, 1, 1, 1, "a", "reply=y"), &["a"]);
        // Nobody knows what came of it: it may have been heard.
        check("asks", &asked().and(replied("s", "x", 0)).and(heard("x")), &[]);
    }

    #[test]
    fn two_are_not() {
        check("asks", &asked().and(replied("s", "x", 202)).and(replied("s", "y", 202)), &["a"]);
        check("asks", &asked().and(replied("s", "x", 202)).and(heard("x")).and(heard("x")), &["a"]);
    }

    #[test]
    fn nobody_else_answers() {
        check("asks", &asked().and(replied("t", "x", 202)), &["a"]);
        check("asks", &asked().and(replied("s", "x", 202)).and(heard("z")), &["a"]);
    }
}
