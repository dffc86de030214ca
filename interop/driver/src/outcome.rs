//! What became of a call, and of a step.

use std::fmt;

use serde_json::Value;

/// How a call ended for the client. Whoever asked gets one of these, whatever happens.
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
    /// Nothing came for as long as anybody would wait.
    Hangs,
}

impl Outcome {
    /// Of a JSON-RPC response.
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

    /// The client was told that it will get no result.
    pub(crate) fn is_explicit_error(&self) -> bool {
        matches!(self, Self::Error { .. } | Self::Refused { .. })
    }

    /// The call must have ended with this text.
    pub(crate) fn expect_text(self, text: &str, what: &str) -> Result<(), Fault> {
        if self.is_text(text) { Ok(()) } else { Err(self.fault(what)) }
    }

    /// Why that is not what was wanted.
    pub(crate) fn fault(&self, what: &str) -> Fault {
        let word = match self {
            Self::Text(_) => Word::Wrong,
            Self::Error { .. } => Word::Error,
            Self::Refused { status, .. } => Word::Status(*status),
            Self::Lost(_) => Word::Lost,
            Self::Hangs => Word::Hangs,
        };
        Fault::new(word, format!("{what}: {self}"))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{:?}", shortened(text)),
            Self::Error { code, message } => write!(f, "error {code} ({})", shortened(message)),
            Self::Refused { status, body } => write!(f, "HTTP {status} ({})", shortened(body)),
            Self::Lost(how) => write!(f, "no answer ({how})"),
            Self::Hangs => f.write_str("hangs"),
        }
    }
}

/// Why a step failed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fault {
    pub(crate) word: Word,
    pub(crate) detail: String,
}

impl Fault {
    pub(crate) fn new(word: Word, detail: impl Into<String>) -> Self {
        Self { word, detail: detail.into() }
    }
}

/// A fault in a word, for a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// It does not apply here.
    None,
    Hangs,
    /// An answer or a message that did not come.
    Lost,
    /// Somebody got what was meant for somebody else.
    Crossed,
    Twice,
    /// Not the answer to what was asked.
    Wrong,
    /// An error instead of an answer.
    Error,
    /// Nothing can be resumed, by design.
    NoResume,
    Status(u16),
    /// Nothing could be tried: the machine or a program is to blame.
    Broken,
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "-",
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

/// Enough of a text to recognise it, in a line.
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
    fn responses_are_told_apart() {
        let check = |response: Value, expect: &str| assert_eq!(Outcome::of(&response).to_string(), expect);
        check(json!({"id": 1, "result": {"content": [{"type": "text", "text": "hi"}]}}), r#""hi""#);
        check(json!({"id": 1, "result": {}}), r#""{}""#);
        check(json!({"id": 1, "error": {"code": -32603, "message": "gone"}}), "error -32603 (gone)");
    }

    #[test]
    fn faults_have_a_word() {
        let check = |outcome: Outcome, expect: &str| {
            assert_eq!(outcome.fault("it").word.to_string(), expect);
        };
        check(Outcome::Text("a".to_owned()), "wrong");
        check(Outcome::Error { code: 1, message: String::new() }, "error");
        check(Outcome::Refused { status: 404, body: String::new() }, "404");
        check(Outcome::Lost(String::new()), "lost");
        check(Outcome::Hangs, "hangs");
    }
}
