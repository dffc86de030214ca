//! Messages as they travel: what we write, and what a server wrote.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use steadfast_wire::envelope::{self, EnvelopeError};
use steadfast_wire::rpc::json_string;
use steadfast_wire::{Body, Message, MessageKind, RequestId, Revision};

/// What a server answered to a call: the JSON text of its result, or of its error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Result(Bytes),
    Error(Bytes),
}

impl Answer {
    /// The code of an error.
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

/// A message of the server, over bytes that stay as they came.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) kind: MessageKind,
    pub(crate) method: String,
    pub(crate) params: Option<Bytes>,
    /// What it answers, if it is an answer.
    pub(crate) answer: Option<Answer>,
}

impl Received {
    /// The messages in a body or an event: one, or a batch. Only 2025-03-26 has batches, but php-sdk writes one in every revision
    /// with sessions if it has several messages for a response, so they are read in all of these.
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

    /// The answer in it, if it answers this very call. One without an id answers nothing we know.
    pub(crate) fn answer_to(&self, id: &RequestId) -> Option<Answer> {
        match &self.kind {
            MessageKind::Response(Some(other)) if other == id => self.answer.clone(),
            _ => None,
        }
    }

    /// The error in a refusal of our request, whose sender may not have read as far as its id.
    pub(crate) fn refusal_of(&self, id: &RequestId) -> Option<Answer> {
        match &self.kind {
            MessageKind::Response(None) => self.answer.clone(),
            _ => self.answer_to(id),
        }
    }

    /// The token of a progress notification.
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
    told(&format!(r#""id":{id},"#), method, params)
}

pub(crate) fn notification(method: &str, params: Option<&str>) -> Bytes {
    told("", method, params)
}

/// A message with a method, put together in one piece: parameters may be long, and are copied once.
fn told(id: &str, method: &str, params: Option<&str>) -> Bytes {
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
        let list = Received::parse(&bytes, Revision::V2025_11_25, 1).unwrap();
        list[0].answer_to(&RequestId::Number(7))
    }

    #[test]
    fn an_answer_is_the_bytes_that_came() {
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
        let count = |revision| Received::parse(&bytes, revision, 2).map(|list| list.len());
        for revision in Revision::LEGACY {
            assert_eq!(count(revision), Ok(2), "{revision}");
        }
        assert!(count(Revision::V2026_07_28).is_err());
        assert!(Received::parse(&bytes, Revision::V2025_03_26, 1).is_err());
    }
}
