//! Promise `server_requests`: a server request gets one response, of the session that received it.
//! If the client sends several, one is accepted, and the server gets that one.

use std::collections::BTreeMap;

use crate::grouped_history::{Digest, Said};
use crate::marks::word;
use crate::verdict::{Bounds, Verdict, Violation};

pub(crate) fn check(digest: &Digest<'_>, _bounds: &Bounds, verdict: &mut Verdict) {
    accepted_once(digest, verdict);
    received_as_sent(digest, verdict);
    answered_with_what_was_received(digest, verdict);
}

fn accepted_once(digest: &Digest<'_>, verdict: &mut Verdict) {
    let mut accepted: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    for reply in &digest.replies {
        verdict.check(digest.session_of(reply.call) == Some(reply.session), || {
            let what = format!("its server request went to session {}", reply.session);
            Violation::new(reply.at, reply.call, what)
        });
        if !(200..300).contains(&reply.status) {
            continue;
        }
        let before = accepted.insert((reply.session, reply.ask), reply.reply);
        verdict.check(before.is_none_or(|before| before == reply.reply), || {
            let what = format!(
                "two responses to its server request were accepted: {} and {}",
                before.unwrap_or(""),
                reply.reply
            );
            Violation::new(reply.at, reply.call, what)
        });
    }
}

/// A response that the server has received was sent by a client for this call.
fn received_as_sent(digest: &Digest<'_>, verdict: &mut Verdict) {
    let mut sent: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for reply in &digest.replies {
        sent.entry(reply.call).or_default().push(reply.reply);
    }
    for (call, received) in &digest.received_replies {
        for (i, (at, reply)) in received.iter().enumerate() {
            let is_sent = sent.get(call).is_some_and(|sent| sent.contains(reply));
            verdict.check(is_sent, || {
                Violation::new(
                    *at,
                    *call,
                    format!("the server received {reply}, which no client has sent for this call"),
                )
            });
            verdict.check(!received[..i].iter().any(|(_, before)| before == reply), || {
                Violation::new(*at, *call, format!("the server received {reply} twice"))
            });
        }
    }
}

/// The result of a call repeats the response that the call has received.
fn answered_with_what_was_received(digest: &Digest<'_>, verdict: &mut Verdict) {
    for (name, call) in &digest.calls {
        for answer in &call.answers {
            let Said::Result(text) = &answer.said else { continue };
            let Some(reply) = word(text, "reply") else { continue };
            let was_received = digest
                .received_replies
                .get(name)
                .is_some_and(|received| received.iter().any(|(_, one)| *one == reply));
            verdict.check(was_received, || {
                Violation::new(
                    answer.at,
                    *name,
                    format!("its result repeats {reply}, which the server has not received"),
                )
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Seen;
    use crate::test_history::{History, check};

    fn replied(session: &str, reply: &str, status: u16) -> Seen {
        let (session, reply) = (session.into(), reply.into());
        Seen::Replied { session, call: "a".into(), ask: "q1".into(), reply, status }
    }

    fn received(reply: &str) -> Seen {
        Seen::Heard { call: "a".into(), reply: reply.into() }
    }

    fn call() -> History {
        History::new().sent("a", 1, "ask").accepted("a", 1)
    }

    #[test]
    fn one_response_is_accepted_and_received() {
        let good = call().and(replied("s", "x", 202)).and(replied("s", "y", 400)).and(received("x"));
        check("server_requests", &good.clone().result(1, 1, 1, 1, "a", "reply=x"), &[]);
        check("server_requests", &good.result(1, 1, 1, 1, "a", "reply=y"), &["a"]);
        // The result of the POST is unknown: the server may have received the response.
        check("server_requests", &call().and(replied("s", "x", 0)).and(received("x")), &[]);
    }

    #[test]
    fn two_responses_are_a_violation() {
        check("server_requests", &call().and(replied("s", "x", 202)).and(replied("s", "y", 202)), &["a"]);
        check(
            "server_requests",
            &call().and(replied("s", "x", 202)).and(received("x")).and(received("x")),
            &["a"],
        );
    }

    #[test]
    fn a_response_of_another_session_is_a_violation() {
        check("server_requests", &call().and(replied("t", "x", 202)), &["a"]);
        check("server_requests", &call().and(replied("s", "x", 202)).and(received("z")), &["a"]);
    }
}
