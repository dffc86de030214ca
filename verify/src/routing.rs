//! Promise `routing`: an answer is on the stream of its call, and no message reaches another
//! session.

use crate::grouped_history::{Connection, Digest, Event, Said, answer};
use crate::marks::marks;
use crate::verdict::{Bounds, Verdict, Violation};

pub(crate) fn check(digest: &Digest<'_>, _bounds: &Bounds, verdict: &mut Verdict) {
    for connection in digest.connections.values() {
        for event in &connection.events {
            match connection.of {
                Some(call) => on_stream_of(call, connection, event, digest, verdict),
                None => on_standalone_stream(connection, event, digest, verdict),
            }
        }
    }
}

/// The stream of a call contains the answer of that call, and messages that the server sends
/// because of that call.
fn on_stream_of(
    call: &str,
    connection: &Connection<'_>,
    event: &Event<'_>,
    digest: &Digest<'_>,
    verdict: &mut Verdict,
) {
    for marked in marks(event.data) {
        verdict.check(marked == call, || {
            let owner = owner_of(marked, connection.session, digest);
            Violation::new(
                event.at,
                call,
                format!("its stream has {} of call {marked}, {owner}", kind(event)),
            )
        });
    }
    let Some((to, said)) = answer(event.data) else { return };
    let Some(id) = digest.calls.get(call).map(|call| call.id) else { return };
    verdict.check(to == id.to_string(), || {
        Violation::new(event.at, call, format!("its stream has an answer to id {to} instead of id {id}"))
    });
    // Every result contains the mark of its call.
    let is_unmarked = matches!(&said, Said::Result(text) if marks(text).next().is_none());
    verdict.check(!is_unmarked, || Violation::new(event.at, call, "its result has no mark of a call"));
}

/// A standalone stream contains no answers, and no messages of another session.
fn on_standalone_stream(
    connection: &Connection<'_>,
    event: &Event<'_>,
    digest: &Digest<'_>,
    verdict: &mut Verdict,
) {
    let session = connection.session;
    for marked in marks(event.data) {
        verdict.check(digest.session_of(marked) == Some(session), || {
            let owner = owner_of(marked, session, digest);
            Violation::new(
                event.at,
                session,
                format!("its standalone stream has {} of call {marked}, {owner}", kind(event)),
            )
        });
    }
    if let Some((to, _)) = answer(event.data) {
        let what = format!("a standalone stream has an answer, to id {to}");
        verdict.check(false, || Violation::new(event.at, session, what));
    }
}

fn kind(event: &Event<'_>) -> &'static str {
    if answer(event.data).is_some() { "the answer" } else { "a message" }
}

fn owner_of(call: &str, session: &str, digest: &Digest<'_>) -> String {
    match digest.session_of(call) {
        None => "which no client made".to_owned(),
        Some(other) if other == session => "which is another call of this session".to_owned(),
        Some(other) => format!("which belongs to session {other}"),
    }
}

#[cfg(test)]
mod tests {
    use crate::mark;
    use crate::test_history::{History, check};

    fn two_calls() -> History {
        History::new().sent("a", 1, "echo").accepted("a", 1).sent_in("t", "b", 1, "echo").accepted("b", 2)
    }

    #[test]
    fn messages_on_their_streams_are_right() {
        check("routing", &two_calls().result(1, 1, 1, 1, "a", "").result(2, 1, 1, 1, "b", ""), &[]);
        check("routing", &two_calls().listening(3).event(3, 0, 1, &mark("a")), &[]);
    }

    #[test]
    fn answers_of_other_calls_are_violations() {
        check("routing", &two_calls().result(1, 1, 1, 1, "b", ""), &["a"]);
        check("routing", &two_calls().result(1, 1, 1, 2, "a", ""), &["a"]);
        check("routing", &two_calls().event(1, 1, 1, r#"{"id":1,"result":{}}"#), &["a"]);
        check("routing", &two_calls().listening(3).event(3, 0, 1, r#"{"id":1,"result":{}}"#), &["s"]);
    }

    #[test]
    fn messages_of_other_sessions_are_violations() {
        let progress = format!(r#"{{"method":"notifications/progress","params":"{}"}}"#, mark("b"));
        check("routing", &two_calls().event(1, 1, 1, &progress), &["a"]);
        check("routing", &two_calls().listening(3).event(3, 0, 1, &progress), &["s"]);
        check("routing", &two_calls().listening(3).event(3, 0, 1, &mark("unknown")), &["s"]);
    }
}
