//! What was seen, one entry after the other.

use serde::{Deserialize, Serialize};

/// One thing that somebody saw or did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Milliseconds since the history began.
    pub at: u64,
    #[serde(flatten)]
    pub seen: Seen,
}

/// Names of sessions and calls are the recorder's own. A call's name is used once; it stands in the call's arguments, and in
/// everything that a server says because of it, as a [mark](crate::mark).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Seen {
    /// A client has a session.
    Opened {
        session: String,
    },
    /// A client begins to end its session. From here on it expects nothing of it.
    Deleted {
        session: String,
    },
    /// The server says that there is no such session.
    Lost {
        session: String,
        on: String,
    },
    /// A request goes out. `safe`: the tool says that calling it twice does no harm.
    Sent {
        call: String,
        session: String,
        id: i64,
        tool: String,
        safe: bool,
    },
    /// It was refused, and whoever refused it says that nothing was done.
    Refused {
        call: String,
        status: u16,
        reason: String,
    },
    /// Nobody knows whether it arrived: the connection broke, or a proxy gave up, before a word of the server's.
    Unheard {
        call: String,
        why: String,
    },
    /// The head of a response with a stream is there.
    Accepted {
        call: String,
    },
    /// The client asks for the call to be cancelled. It may be answered all the same.
    Cancelled {
        call: String,
    },
    /// The client does not wait for it any more, because it ends the session.
    Abandoned {
        call: String,
    },
    /// A response begins to be read: the stream of a call, or a standalone one.
    Connected {
        connection: u64,
        session: String,
        of: Option<String>,
        after: Option<String>,
    },
    Event {
        connection: u64,
        id: Option<String>,
        data: String,
    },
    /// The connection broke, or the client had enough of it.
    Broken {
        connection: u64,
    },
    /// The response ended as it should.
    Ended {
        connection: u64,
    },
    /// A stream could not be resumed, and the refusal is final.
    NotResumed {
        session: String,
        of: Option<String>,
        after: String,
        status: u16,
        reason: String,
    },
    /// The client has answered an ask, and this came of it. Status 0: nobody knows.
    Replied {
        session: String,
        call: String,
        ask: String,
        reply: String,
        status: u16,
    },
    /// Somebody breaks something, or stops doing so. For whoever reads the history; no promise depends on it.
    Fault {
        fault: String,
        over: bool,
    },
    /// The last fault is over, and everything has been started again.
    Calm,
    /// Nobody waits any more. What has not come by now is missing.
    Over,
    /// Whoever sends calls to servers was told to let each have so many of a session at a time.
    Limited {
        calls: usize,
    },
    /// By the server: it does what a call wants, now. `place` is the server's own session.
    Executed {
        call: String,
        tool: String,
        place: String,
    },
    /// By the server: it has done that, and is about to answer.
    Done {
        call: String,
        place: String,
    },
    /// By the server: an asker has an answer.
    Heard {
        call: String,
        reply: String,
    },
}

/// Reads a history from its lines. A last line that is not whole, of somebody who was killed, is left out.
pub fn parse(text: &str) -> Result<Vec<Entry>, ParseError> {
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let lines = text[..whole].lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let entry = |(at, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| ParseError { line: at + 1, why: error.to_string() })
    };
    lines.map(entry).collect()
}

/// Whoever wrote the history is to blame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the history cannot be read: {why}")]
pub struct ParseError {
    pub line: usize,
    pub why: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_line() {
        let entries = vec![
            Entry { at: 1, seen: Seen::Opened { session: "s".to_owned() } },
            Entry { at: 2, seen: Seen::Event { connection: 7, id: None, data: "a\n\"b".to_owned() } },
            Entry { at: 3, seen: Seen::Calm },
        ];
        let line = |entry: &Entry| serde_json::to_string(entry).unwrap() + "\n";
        let text: String = entries.iter().map(line).collect();
        assert_eq!(text.lines().next(), Some(r#"{"at":1,"what":"opened","session":"s"}"#));
        assert_eq!(parse(&text), Ok(entries.clone()));
        assert_eq!(parse(&format!("{text}{{\"at\":4,")), Ok(entries), "a torn last line");
        let error = parse(&format!("{text}{{}}\n")).unwrap_err();
        assert_eq!(error.line, 4);
    }
}
