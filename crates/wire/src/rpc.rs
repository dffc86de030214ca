//! JSON-RPC error codes and the messages that we write ourselves.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::id::RequestId;

pub const PARSE_ERROR: i32 = -32700;
pub const INVALID_REQUEST: i32 = -32600;
pub const METHOD_NOT_FOUND: i32 = -32601;
pub const INVALID_PARAMS: i32 = -32602;
pub const INTERNAL_ERROR: i32 = -32603;
/// Up to 2025-11-25; later revisions say [`INVALID_PARAMS`].
pub const RESOURCE_NOT_FOUND: i32 = -32002;
/// In 2025-11-25 alone.
pub const URL_ELICITATION_REQUIRED: i32 = -32042;
pub const HEADER_MISMATCH: i32 = -32020;
pub const MISSING_CLIENT_CAPABILITY: i32 = -32021;
pub const UNSUPPORTED_PROTOCOL_VERSION: i32 = -32022;

/// How many characters of a foreign error message [`ErrorObject::short_message`] keeps.
const MAX_SHORT_MESSAGE: usize = 300;

/// What went wrong, in JSON-RPC terms. `data` is JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorObject {
    pub code: i32,
    pub message: String,
    pub data: Option<String>,
}

impl ErrorObject {
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// Reads the JSON text of an error. `data` stays as it came.
    pub fn parse(text: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Parts<'a> {
            code: i32,
            #[serde(default)]
            message: String,
            #[serde(borrow)]
            data: Option<&'a RawValue>,
        }
        let Parts { code, message, data } = serde_json::from_slice(text).ok()?;
        Some(Self { code, message, data: data.map(|data| data.get().to_owned()) })
    }

    /// The message for a log line or as a part of another message: bounded, and on one line.
    pub fn short_message(&self) -> String {
        let mut short = String::new();
        for (no, c) in self.message.chars().enumerate() {
            match c {
                _ if no == MAX_SHORT_MESSAGE => {
                    short.push('…');
                    break;
                }
                c if c.is_control() => short.extend(c.escape_default()),
                c => short.push(c),
            }
        }
        short
    }

    /// The whole JSON-RPC message. Without an id the member is left out: `null` is not a legal MCP
    /// id.
    pub fn to_message(&self, id: Option<&RequestId>) -> Vec<u8> {
        let id = id.map(|id| format!(r#""id":{id},"#)).unwrap_or_default();
        let data = self.data.as_deref().map(|data| format!(r#","data":{data}"#)).unwrap_or_default();
        let Self { code, message, .. } = self;
        let message = json_string(message);
        format!(r#"{{"jsonrpc":"2.0",{id}"error":{{"code":{code},"message":{message}{data}}}}}"#).into_bytes()
    }
}

/// A `notifications/message` at warning level in our own name.
pub fn warning(data_json: &str) -> Vec<u8> {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"warning","logger":"steadfast","data":{data_json}}}}}"#
    )
    .into_bytes()
}

/// `text` as a JSON string, quotes included.
pub fn json_string(text: &str) -> String {
    // A `str` always serialises: the only failures of serde_json are non-string keys and IO.
    serde_json::to_string(text).unwrap_or_else(|_| String::from("\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason::Reason;

    #[test]
    fn an_error_without_id_has_no_id_member() {
        let error = ErrorObject::new(PARSE_ERROR, "bad \"json\"");
        assert_eq!(
            String::from_utf8(error.to_message(None)).unwrap(),
            r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"bad \"json\""}}"#
        );
    }

    #[test]
    fn an_error_is_read_as_it_came() {
        let read = |text: &str| ErrorObject::parse(text.as_bytes());
        let error = read(r#"{"code":-32002,"message":"no","data":{ "b":1.0 }}"#).unwrap();
        assert_eq!((error.code, error.message.as_str()), (-32002, "no"));
        assert_eq!(error.data.as_deref(), Some(r#"{ "b":1.0 }"#));
        assert_eq!(read(r#"{"code":1}"#).unwrap().data, None);
        assert_eq!(read(r#"{"message":"no"}"#), None);
    }

    #[test]
    fn a_short_message_is_bounded_and_on_one_line() {
        let short = |message: &str| ErrorObject::new(1, message).short_message();
        assert_eq!(short("täglich \"x\"\r\n\u{1b}[0m"), "täglich \"x\"\\r\\n\\u{1b}[0m");
        assert_eq!(short(&"é".repeat(300)), "é".repeat(300));
        assert_eq!(short(&"é".repeat(9000)), "é".repeat(300) + "…");
    }

    #[test]
    fn an_error_echoes_the_id_with_its_type() {
        let error = Reason::Deadline.error_retryable(true, "too late");
        assert_eq!(
            String::from_utf8(error.to_message(Some(&RequestId::text("7")))).unwrap(),
            r#"{"jsonrpc":"2.0","id":"7","error":{"code":-32603,"message":"too late","data":{"reason":"deadline","retryable":true}}}"#
        );
    }
}
