//! The entries of a history: what clients and servers have observed or done.

use serde::{Deserialize, Serialize};

/// One observation of a client or of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Milliseconds since the history began.
    pub at: u64,
    #[serde(flatten)]
    pub seen: Seen,
}

/// What was observed. The recorder chooses the names of sessions and calls. The name of a call is
/// unique. It is in the arguments of the call, and in every message that the server sends because
/// of the call, as a [mark](crate::mark).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Seen {
    /// A client has opened a session.
    Opened { session: String },
    /// A client starts to delete its session. From here on it has no expectations of the session.
    Deleted { session: String },
    /// The server has responded that the session does not exist.
    Lost { session: String, on: String },
    /// A client sends a call. `safe`: the tool is declared idempotent.
    Sent { call: String, session: String, id: i64, tool: String, safe: bool },
    /// The call was refused with a status that says that it was not executed.
    Refused { call: String, status: u16, reason: String },
    /// It is unknown whether the call arrived: the connection broke, or a proxy gave up, before the
    /// first byte of the response.
    Unheard { call: String, why: String },
    /// The head of a response with a stream has arrived.
    Accepted { call: String },
    /// The client cancels the call, which may still be answered.
    Cancelled { call: String },
    /// The client no longer waits for the call, because it deletes the session.
    Abandoned { call: String },
    /// A client starts to read a response: the stream of a call, or a standalone stream (`of` is
    /// `None`).
    Connected { connection: u64, session: String, of: Option<String>, after: Option<String> },
    /// An event of a response has arrived.
    Event { connection: u64, id: Option<String>, data: String },
    /// The connection broke, or the client has closed it.
    Broken { connection: u64 },
    /// The response has ended regularly.
    Ended { connection: u64 },
    /// The server has refused to resume a stream, and the refusal is final.
    NotResumed { session: String, of: Option<String>, after: String, status: u16, reason: String },
    /// The client has sent the response to a server request (`ask` is its id), and got this status.
    /// Status 0: the result is unknown.
    Replied { session: String, call: String, ask: String, reply: String, status: u16 },
    /// A fault begins or is over. People who read the history need it; no checker uses it.
    Fault { fault: String, over: bool },
    /// The last fault is over, and all processes are started again.
    Calm,
    /// The run is over. An outcome that has not arrived by now is missing.
    Over,
    /// The gateways are configured with this concurrency limit per session.
    Limited { calls: usize },
    /// By the server: it executes a call now. `place` is the upstream session.
    Executed { call: String, tool: String, place: String },
    /// By the server: it has executed the call and is about to answer.
    Done { call: String, place: String },
    /// By the server: a call has received the response to its server request.
    Heard { call: String, reply: String },
}

/// Reads a history from its lines. Ignores an incomplete last line, which a killed process leaves.
pub fn parse(text: &str) -> Result<Vec<Entry>, ParseError> {
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let lines = text[..whole].lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let entry = |(at, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| ParseError { line: at + 1, why: error.to_string() })
    };
    lines.map(entry).collect()
}

/// The recorder has written a line that is not an entry.
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
