//! A message is on one stream, and there once. Only a call that may be made twice may say the same thing twice, where it
//! said it before.

use std::collections::BTreeMap;

use crate::digest::{Digest, answer};
use crate::marks::marks;
use crate::verdict::{Bounds, Verdict, Violation};

pub(crate) fn check(digest: &Digest<'_>, _bounds: &Bounds, verdict: &mut Verdict) {
    let mut known: BTreeMap<(&str, &str), (u64, &str)> = BTreeMap::new();
    for connection in digest.connections.values() {
        for event in &connection.events {
            let (Some(id), Some(position)) = (event.id, event.position()) else { continue };
            // Answers have a promise of their own; what has no mark cannot be told from its like.
            let Some(call) = marks(event.data).next().filter(|_| answer(event.data).is_none()) else {
                continue;
            };
            let text = without_id(event.data);
            let (stream, first) = *known.entry((connection.session, text)).or_insert((position.stream, id));
            let may_repeat = digest.calls.get(call).is_some_and(|call| call.safe);
            let holds = first == id || stream == position.stream && may_repeat;
            verdict.check(holds, || {
                Violation::new(
                    event.at,
                    call,
                    format!("events {first} and {id} are the same message: {text}"),
                )
            });
        }
    }
}

/// The message without the id that an ask gets for itself.
fn without_id(data: &str) -> &str {
    data.find("\"method\"").map_or(data, |at| &data[at..])
}

#[cfg(test)]
mod tests {
    use crate::mark;
    use crate::sample::{History, check};

    fn begun(tool: &str) -> History {
        let note = mark("a");
        History::new().sent("a", 1, tool).accepted("a", 1).event(1, 7, 1, &note)
    }

    #[test]
    fn a_message_may_be_read_twice() {
        check("once", &begun("echo").resumed(Some("a"), 2, 7, 0).event(2, 7, 1, &mark("a")), &[]);
    }

    #[test]
    fn a_message_is_not_there_twice() {
        check("once", &begun("echo").event(1, 7, 2, &mark("a")), &["a"]);
        check("once", &begun("safe").event(1, 7, 2, &mark("a")), &[]);
    }

    #[test]
    fn no_message_is_on_two_streams() {
        for tool in ["echo", "safe"] {
            check("once", &begun(tool).listening(2).event(2, 0, 1, &mark("a")), &["a"]);
        }
        let ask =
            |id: u64| format!(r#"{{"id":{id},"method":"elicitation/create","params":"{}"}}"#, mark("a"));
        check("once", &begun("echo").event(1, 7, 2, &ask(1)).listening(2).event(2, 0, 1, &ask(2)), &["a"]);
    }
}
