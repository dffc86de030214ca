//! Parses the outer members of JSON-RPC messages: kind, id, method, params, result, error. The
//! message itself stays unparsed text.

use std::borrow::Cow;
use std::fmt;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::id::{IdError, RequestId};

/// How deep the JSON of a body may nest. No client needs more, and deeper JSON exhausts the stack
/// of recursive parsers in servers behind the gateway.
pub const MAX_DEPTH: usize = 128;

/// How many characters of a parser's error message are passed on.
const MAX_PARSER_MESSAGE: usize = 160;

/// The body of a POST: one message, or a batch (revision 2025-03-26 only).
#[derive(Debug)]
pub enum Body<'a> {
    One(Message<'a>),
    Batch(Vec<Message<'a>>),
}

/// One message, borrowed from the body that contains it.
#[derive(Clone, Debug)]
pub struct Message<'a> {
    pub kind: MessageKind,
    pub method: Cow<'a, str>,
    /// The JSON text of `params`, if the message has any.
    pub params: Option<&'a str>,
    /// The answer, if the message is a JSON-RPC response.
    pub answer: Option<Answer<'a>>,
    /// The JSON text of the whole message.
    pub text: &'a str,
}

/// The JSON text of the result or of the error in a JSON-RPC response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    Result(&'a str),
    Error(&'a str),
}

/// The kind of a message, with its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageKind {
    Request(RequestId),
    Notification,
    /// A result or an error. An error can lack an id: then the request that it answers is unknown.
    Response(Option<RequestId>),
}

/// Why a body was refused. Every case is an error of the sender.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    #[error("the body is not valid JSON: {0}")]
    Syntax(String),
    #[error("the body is not valid UTF-8")]
    NotUtf8,
    #[error("the body nests deeper than {MAX_DEPTH} levels")]
    TooDeep,
    #[error("not a JSON-RPC message: {0}")]
    Shape(String),
    #[error("{error}")]
    Id { error: IdError },
    #[error("the batch is empty")]
    EmptyBatch,
    #[error("the batch has more than {limit} messages")]
    BatchTooLong { limit: usize },
}

impl EnvelopeError {
    /// Returns the JSON-RPC error code.
    pub fn code(&self) -> i32 {
        match self {
            Self::Syntax(_) | Self::NotUtf8 => crate::rpc::PARSE_ERROR,
            _ => crate::rpc::INVALID_REQUEST,
        }
    }
}

impl<'a> Body<'a> {
    /// Parses a body. `max_batch` limits the messages of a batch.
    pub fn parse(bytes: &'a [u8], max_batch: usize) -> Result<Self, EnvelopeError> {
        let text = std::str::from_utf8(bytes).map_err(|_| EnvelopeError::NotUtf8)?;
        // Nesting n levels takes 2n bytes, so a short body cannot be too deep.
        if text.len() > 2 * MAX_DEPTH && nesting_depth(bytes) > MAX_DEPTH {
            return Err(EnvelopeError::TooDeep);
        }
        let first = text.bytes().find(|b| !matches!(b, b' ' | b'\t' | b'\r' | b'\n'));
        if first != Some(b'[') {
            return Message::parse(text).map(Self::One);
        }
        let items = split_batch(text, max_batch)?;
        if items.is_empty() {
            return Err(EnvelopeError::EmptyBatch);
        }
        items.into_iter().map(|item| Message::parse(item.get())).collect::<Result<_, _>>().map(Self::Batch)
    }
}

impl<'a> Message<'a> {
    /// Parses one message.
    pub fn parse(text: &'a str) -> Result<Self, EnvelopeError> {
        let raw: RawMessage<'a> = serde_json::from_str(text).map_err(parser_error)?;
        // serde also parses a JSON array as a struct, item by item.
        if text.trim_ascii_start().starts_with('[') {
            return Err(shape_error("it is a list"));
        }
        match raw.jsonrpc.as_deref() {
            Some("2.0") => {}
            Some(_) | None => return Err(shape_error("\"jsonrpc\" must be \"2.0\"")),
        }
        let answers = raw.result.is_some() as u8 + raw.error.is_some() as u8;
        let (kind, method) = match (raw.method, answers) {
            (Some(method), 0) => (request_or_notification(raw.id)?, method),
            (None, 1) => {
                (MessageKind::Response(response_id(raw.id, raw.result.is_some())?), Cow::Borrowed(""))
            }
            (None, 0) => return Err(shape_error("it has neither \"method\" nor \"result\" nor \"error\"")),
            (None, _) => return Err(shape_error("it has both \"result\" and \"error\"")),
            (Some(_), _) => return Err(shape_error("it has both \"method\" and an answer")),
        };
        if let Some(error) = raw.error {
            check_error_object(error)?;
        }
        let params = raw.params.map(RawValue::get);
        if params.is_some_and(|params| !params.starts_with(['{', '['])) {
            return Err(shape_error("\"params\" must be an object"));
        }
        let result = raw.result.map(|result| Answer::Result(result.get()));
        let answer = result.or_else(|| raw.error.map(|error| Answer::Error(error.get())));
        Ok(Self { kind, method, params, answer, text: text.trim_ascii() })
    }

    pub fn id(&self) -> Option<&RequestId> {
        match &self.kind {
            MessageKind::Request(id) => Some(id),
            MessageKind::Notification => None,
            MessageKind::Response(id) => id.as_ref(),
        }
    }

    pub fn is_request(&self) -> bool {
        matches!(self.kind, MessageKind::Request(_))
    }

    pub fn is_response(&self) -> bool {
        matches!(self.kind, MessageKind::Response(_))
    }
}

/// Splits a batch into its items. If it has more than `limit`, the rest is still checked for valid
/// JSON, so that the error says what is wrong.
fn split_batch(text: &str, limit: usize) -> Result<Vec<&RawValue>, EnvelopeError> {
    struct Items(usize);
    impl<'de> Visitor<'de> for Items {
        type Value = Option<Vec<&'de RawValue>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a batch")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut items = Vec::new();
            while let Some(item) = list.next_element()? {
                if items.len() == self.0 {
                    while list.next_element::<IgnoredAny>()?.is_some() {}
                    return Ok(None);
                }
                items.push(item);
            }
            Ok(Some(items))
        }
    }
    let mut parser = serde_json::Deserializer::from_str(text);
    let items = parser.deserialize_seq(Items(limit)).map_err(parser_error)?;
    parser.end().map_err(parser_error)?;
    items.ok_or(EnvelopeError::BatchTooLong { limit })
}

#[derive(Deserialize)]
struct RawMessage<'a> {
    #[serde(borrow)]
    jsonrpc: Option<Cow<'a, str>>,
    // A member with the value `null` must differ from an absent member. serde's `Option` treats
    // both as `None`, so these members are parsed by `present`.
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

fn request_or_notification(id: Option<&RawValue>) -> Result<MessageKind, EnvelopeError> {
    match id {
        Some(raw) => {
            RequestId::from_raw(raw).map(MessageKind::Request).map_err(|error| EnvelopeError::Id { error })
        }
        None => Ok(MessageKind::Notification),
    }
}

/// Checks the id of a JSON-RPC response. A result needs an id. An error may lack it, or have
/// `null`, if its sender could not read the id of the request.
fn response_id(id: Option<&RawValue>, is_result: bool) -> Result<Option<RequestId>, EnvelopeError> {
    match id.map(RequestId::from_raw) {
        Some(Ok(id)) => Ok(Some(id)),
        None | Some(Err(IdError::Null)) if !is_result => Ok(None),
        None => Err(shape_error("a result needs the id of its request")),
        Some(Err(error)) => Err(EnvelopeError::Id { error }),
    }
}

fn check_error_object(raw: &RawValue) -> Result<(), EnvelopeError> {
    const WRONG: &str = "\"error\" needs an integer \"code\" and a string \"message\"";
    if !raw.get().starts_with('{') {
        return Err(shape_error(WRONG));
    }
    #[derive(Deserialize)]
    struct Object<'a> {
        #[serde(rename = "code")]
        _code: i64,
        #[serde(rename = "message", borrow)]
        _message: Cow<'a, str>,
    }
    serde_json::from_str::<Object<'_>>(raw.get()).map(|_| ()).map_err(|_| shape_error(WRONG))
}

fn shape_error(what: &str) -> EnvelopeError {
    EnvelopeError::Shape(what.to_owned())
}

fn parser_error(error: serde_json::Error) -> EnvelopeError {
    // The parser quotes its input, which may be the whole body.
    let mut what = error.to_string();
    if let Some((end, _)) = what.char_indices().nth(MAX_PARSER_MESSAGE) {
        what.truncate(end);
        what.push('…');
    }
    match error.classify() {
        serde_json::error::Category::Data => EnvelopeError::Shape(what),
        _ => EnvelopeError::Syntax(what),
    }
}

/// Returns how deep the brackets outside of strings nest. The result is right for valid JSON.
/// Invalid JSON is refused by the parser later.
fn nesting_depth(bytes: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0usize, 0usize, false, false);
    for &byte in bytes {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
        } else {
            match byte {
                b'"' => in_string = true,
                b'{' | b'[' => {
                    depth += 1;
                    deepest = deepest.max(depth);
                }
                b'}' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
    }
    deepest
}

#[cfg(test)]
mod tests;
