//! How a call ended for the client, and why a step failed.

use std::fmt;

use serde_json::Value;

/// How a call ended for the client. Every call gets one of these.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// The text of a tool's result.
    Text(String),
    /// A JSON-RPC error on the call's stream.
    Error { code: i64, message: String },
    /// An HTTP error instead of a stream.
    Refused { status: u16, body: String },
    /// The connection could not be made, broke, or ended without an answer.
    Lost(String),
    /// No response arrived within the time limit.
    Hangs,
}

impl Outcome {
    /// Reads a JSON-RPC response.
    pub(crate) fn of(response: &Value) -> Self {
        if let Some(error) = response.get("error") {
            let message = error["message"].as_str().unwrap_or_default().to_owned();
            return Self::Error { code: error["code"].as_i64().unwrap_or_default(), message };
        }
        match response.pointer("/result/content/0/text").and_then(Value::as_str) {
            Some(text) => Self::Text(text.to_owned()),
            None => Self::Text(response["result"].to_string()),
        }
    }

    pub(crate) fn is_text(&self, text: &str) -> bool {
        matches!(self, Self::Text(got) if got == text)
    }

    /// Returns true if an error told the client that it will get no result.
    pub(crate) fn is_explicit_error(&self) -> bool {
        matches!(self, Self::Error { .. } | Self::Refused { .. })
    }

    /// Fails unless the call ended with this text.
    pub(crate) fn expect_text(self, text: &str, what: &str) -> Result<(), Fault> {
        if self.is_text(text) { Ok(()) } else { Err(self.fault(what)) }
    }

    /// Returns the fault that this outcome is where another one was expected.
    pub(crate) fn fault(&self, what: &str) -> Fault {
        let kind = match self {
            Self::Text(_) => FaultKind::Wrong,
            Self::Error { .. } => FaultKind::Error,
            Self::Refused { status, .. } => FaultKind::Status(*status),
            Self::Lost(_) => FaultKind::Lost,
            Self::Hangs => FaultKind::Hangs,
        };
        Fault::new(kind, format!("{what}: {self}"))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{:?}", shortened(text)),
            Self::Error { code, message } => write!(f, "error {code} ({})", shortened(message)),
            Self::Refused { status, body } => write!(f, "HTTP {status} ({})", shortened(body)),
            Self::Lost(how) => write!(f, "no response ({how})"),
            Self::Hangs => f.write_str("hangs"),
        }
    }
}

/// Why a step failed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    pub(crate) detail: String,
}

impl Fault {
    pub(crate) fn new(kind: FaultKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }
}

/// The kind of a fault. The table shows it as a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// The step does not apply here.
    NotApplicable,
    Hangs,
    /// A response or a message did not arrive.
    Lost,
    /// A call received a message of another call.
    Crossed,
    /// A message arrived twice.
    Twice,
    /// The content of the response is wrong.
    Wrong,
    /// An error instead of a result.
    Error,
    /// The server does not support resuming.
    NoResume,
    /// An HTTP error.
    Status(u16),
    /// The step could not be tried, because of the machine or of a program.
    Broken,
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotApplicable => "-",
            Self::Hangs => "hangs",
            Self::Lost => "lost",
            Self::Crossed => "crossed",
            Self::Twice => "twice",
            Self::Wrong => "wrong",
            Self::Error => "error",
            Self::NoResume => "no resume",
            Self::Status(status) => return write!(f, "{status}"),
            Self::Broken => "broken",
        })
    }
}

/// Returns the start of a text on one line, enough to recognise the text.
pub(crate) fn shortened(text: &str) -> String {
    const MAX: usize = 100;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut short: String = text.chars().take(MAX).collect();
    if text.chars().nth(MAX).is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn responses_are_read() {
        let check = |response: Value, expect: &str| assert_eq!(Outcome::of(&response).to_string(), expect);
        check(json!({"id": 1, "result": {"content": [{"type": "text", "text": "hi"}]}}), r#""hi""#);
        check(json!({"id": 1, "result": {}}), r#""{}""#);
        check(json!({"id": 1, "error": {"code": -32603, "message": "gone"}}), "error -32603 (gone)");
    }

    #[test]
    fn an_outcome_has_a_kind_of_fault() {
        let check = |outcome: Outcome, expect: &str| {
            assert_eq!(outcome.fault("it").kind.to_string(), expect);
        };
        check(Outcome::Text("a".to_owned()), "wrong");
        check(Outcome::Error { code: 1, message: String::new() }, "error");
        check(Outcome::Refused { status: 404, body: String::new() }, "404");
        check(Outcome::Lost(String::new()), "lost");
        check(Outcome::Hangs, "hangs");
    }
}
