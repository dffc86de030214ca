//! JSON-RPC messages: encoding what the client sends, and parsing what a server sent.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use steadfast_wire::envelope::{self, EnvelopeError};
use steadfast_wire::rpc::json_string;
use steadfast_wire::{Body, Message, MessageKind, RequestId, Revision};

/// The answer of a server to a call: the JSON text of its result, or of its error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Result(Bytes),
    Error(Bytes),
}

impl Answer {
    /// The code of an error. `None` for a result.
    pub fn code(&self) -> Option<i64> {
        #[derive(Deserialize)]
        struct Error {
            code: i64,
        }
        match self {
            Self::Result(_) => None,
            Self::Error(text) => serde_json::from_slice::<Error>(text).ok().map(|error| error.code),
        }
    }
}

/// A message from the server. Payloads are slices of the received bytes and are not re-encoded.
#[derive(Clone, Debug)]
pub(crate) struct ServerMessage {
    pub(crate) kind: MessageKind,
    pub(crate) method: String,
    pub(crate) params: Option<Bytes>,
    /// The answer, if the message is a JSON-RPC response.
    pub(crate) answer: Option<Answer>,
}

impl ServerMessage {
    /// Parses a body or an event: one message or a batch. Only 2025-03-26 has batches, but php-sdk
    /// sends a batch in every revision with sessions if it has several messages for a response, so
    /// the client accepts batches in all of these.
    pub(crate) fn parse(
        bytes: &Bytes,
        revision: Revision,
        max_batch: usize,
    ) -> Result<Vec<Self>, EnvelopeError> {
        let own = |message: Message<'_>| Self {
            params: message.params.map(|params| bytes.slice_ref(params.as_bytes())),
            answer: message.answer.map(|answer| match answer {
                envelope::Answer::Result(text) => Answer::Result(bytes.slice_ref(text.as_bytes())),
                envelope::Answer::Error(text) => Answer::Error(bytes.slice_ref(text.as_bytes())),
            }),
            method: message.method.into_owned(),
            kind: message.kind,
        };
        match Body::parse(bytes, max_batch)? {
            Body::One(message) => Ok(vec![own(message)]),
            Body::Batch(list) if !revision.is_modern() => Ok(list.into_iter().map(own).collect()),
            Body::Batch(_) => Err(EnvelopeError::Shape(format!("{revision} has no batches"))),
        }
    }

    /// The answer in this message, if it answers the request `id`. An answer without an id belongs
    /// to no known request.
    pub(crate) fn answer_to(&self, id: &RequestId) -> Option<Answer> {
        match &self.kind {
            MessageKind::Response(Some(other)) if other == id => self.answer.clone(),
            _ => None,
        }
    }

    /// The error in this message, if it answers the request `id` or has no id: a server
    /// that rejects a request may not have read its id.
    pub(crate) fn error_for(&self, id: &RequestId) -> Option<Answer> {
        match &self.kind {
            MessageKind::Response(None) => self.answer.clone(),
            _ => self.answer_to(id),
        }
    }

    pub(crate) fn progress_token(&self) -> Option<RequestId> {
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(borrow, rename = "progressToken")]
            token: &'a RawValue,
        }
        let params: Params<'_> = serde_json::from_slice(self.params.as_ref()?).ok()?;
        RequestId::from_json(params.token.get()).ok()
    }
}

pub(crate) fn request(id: &RequestId, method: &str, params: Option<&str>) -> Bytes {
    with_method(&format!(r#""id":{id},"#), method, params)
}

pub(crate) fn notification(method: &str, params: Option<&str>) -> Bytes {
    with_method("", method, params)
}

/// Encodes a message with a method. Allocates once, because parameters may be long.
fn with_method(id: &str, method: &str, params: Option<&str>) -> Bytes {
    let method = json_string(method);
    let parts = [
        r#"{"jsonrpc":"2.0","#,
        id,
        r#""method":"#,
        &method,
        params.map_or("", |_| r#","params":"#),
        params.unwrap_or_default(),
        "}",
    ];
    parts.concat().into()
}

pub(crate) fn result(id: &RequestId, result: &[u8]) -> Bytes {
    let mut text = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#).into_bytes();
    text.extend_from_slice(result);
    text.push(b'}');
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> Option<Answer> {
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        let list = ServerMessage::parse(&bytes, Revision::V2025_11_25, 1).unwrap();
        list[0].answer_to(&RequestId::Number(7))
    }

    #[test]
    fn an_answer_is_a_slice_of_the_received_bytes() {
        let result = |text: &'static str| Some(Answer::Result(Bytes::from_static(text.as_bytes())));
        for (text, expect) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{ "b":1, "a":1.0 }}"#, result(r#"{ "b":1, "a":1.0 }"#)),
            (r#"{"jsonrpc":"2.0","id":7,"result":null}"#, result("null")),
            (r#"{"jsonrpc":"2.0","id":"7","result":{}}"#, None),
            (r#"{"jsonrpc":"2.0","id":8,"result":{}}"#, None),
            (r#"{"jsonrpc":"2.0","method":"x"}"#, None),
            (r#"{"jsonrpc":"2.0","error":{"code":1,"message":""}}"#, None),
        ] {
            assert_eq!(answer(text), expect, "{text}");
        }
        let error = answer(r#"{"error":{"code":-32601,"message":"no"},"id":7,"jsonrpc":"2.0"}"#).unwrap();
        assert_eq!(error.code(), Some(-32601));
    }

    #[test]
    fn batches_are_read_in_revisions_with_sessions() {
        let bytes = Bytes::from_static(br#"[{"jsonrpc":"2.0","method":"a"},{"jsonrpc":"2.0","method":"b"}]"#);
        let count = |revision| ServerMessage::parse(&bytes, revision, 2).map(|list| list.len());
        for revision in Revision::LEGACY {
            assert_eq!(count(revision), Ok(2), "{revision}");
        }
        assert!(count(Revision::V2026_07_28).is_err());
        assert!(ServerMessage::parse(&bytes, Revision::V2025_03_26, 1).is_err());
    }
}
