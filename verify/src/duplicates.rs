//! Promise `duplicates`: a message is on one stream, once. Only an idempotent call, which may be
//! executed twice, may repeat a message, on its own stream.

use std::collections::BTreeMap;

use crate::grouped_history::{Digest, answer};
use crate::marks::marks;
use crate::verdict::{Bounds, Verdict, Violation};

pub(crate) fn check(digest: &Digest<'_>, _bounds: &Bounds, verdict: &mut Verdict) {
    let mut known: BTreeMap<(&str, &str), (u64, &str)> = BTreeMap::new();
    for connection in digest.connections.values() {
        for event in &connection.events {
            let (Some(id), Some(position)) = (event.id, event.position()) else { continue };
            // The promise `outcomes` covers answers. A message without mark cannot be identified.
            let Some(call) = marks(event.data).next().filter(|_| answer(event.data).is_none()) else {
                continue;
            };
            let text = without_id(event.data);
            let (stream, first) = *known.entry((connection.session, text)).or_insert((position.stream, id));
            let may_repeat = digest.calls.get(call).is_some_and(|call| call.safe);
            let holds = first == id || stream == position.stream && may_repeat;
            verdict.check(holds, || {
                Violation::new(event.at, call, format!("events {first} and {id} are one message: {text}"))
            });
        }
    }
}

/// Returns the message without its id, which differs for each server request.
fn without_id(data: &str) -> &str {
    data.find("\"method\"").map_or(data, |at| &data[at..])
}

#[cfg(test)]
mod tests {
    use crate::mark;
    use crate::test_history::{History, check};

    fn begun(tool: &str) -> History {
        let note = mark("a");
        History::new().sent("a", 1, tool).accepted("a", 1).event(1, 7, 1, &note)
    }

    #[test]
    fn a_message_may_be_read_twice() {
        check("duplicates", &begun("echo").resumed(Some("a"), 2, 7, 0).event(2, 7, 1, &mark("a")), &[]);
    }

    #[test]
    fn a_message_on_its_stream_twice_is_a_violation() {
        check("duplicates", &begun("echo").event(1, 7, 2, &mark("a")), &["a"]);
        check("duplicates", &begun("safe").event(1, 7, 2, &mark("a")), &[]);
    }

    #[test]
    fn a_message_on_two_streams_is_a_violation() {
        for tool in ["echo", "safe"] {
            check("duplicates", &begun(tool).listening(2).event(2, 0, 1, &mark("a")), &["a"]);
        }
        let ask =
            |id: u64| format!(r#"{{"id":{id},"method":"elicitation/create","params":"{}"}}"#, mark("a"));
        check(
            "duplicates",
            &begun("echo").event(1, 7, 2, &ask(1)).listening(2).event(2, 0, 1, &ask(2)),
            &["a"],
        );
    }
}
