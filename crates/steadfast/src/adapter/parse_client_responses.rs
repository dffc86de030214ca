//! Parses the client's answers to server requests into rmcp's types.
//!
//! The server request decides the type of its result. rmcp's own deserialiser tries one type of
//! message and result after the other and copies the answer for each.

use rmcp::ErrorData;
use rmcp::model::{ClientJsonRpcMessage, ClientResult, CustomResult, RequestId as RmcpId, ServerRequest};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use steadfast_engine::{Bytes, Refusal};

/// The type of result that a server request expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpectedResult {
    CreateMessage,
    ListRoots,
    Elicit,
    /// An empty result, or one that rmcp has no type for.
    Other,
}

impl ExpectedResult {
    pub(super) fn of(request: &ServerRequest) -> Self {
        match request {
            ServerRequest::CreateMessageRequest(_) => Self::CreateMessage,
            ServerRequest::ListRootsRequest(_) => Self::ListRoots,
            ServerRequest::ElicitRequest(_) => Self::Elicit,
            _ => Self::Other,
        }
    }

    /// Parses a result. A result that is not of the expected type becomes a custom result, and rmcp
    /// returns an error to the handler.
    fn read(self, result: &str) -> Result<ClientResult, serde_json::Error> {
        fn typed<T: DeserializeOwned>(
            result: &str,
            of: impl FnOnce(T) -> ClientResult,
        ) -> Result<ClientResult, serde_json::Error> {
            match serde_json::from_str(result) {
                Ok(result) => Ok(of(result)),
                Err(_) => untyped(result),
            }
        }
        fn untyped(result: &str) -> Result<ClientResult, serde_json::Error> {
            serde_json::from_str(result).map(|result| ClientResult::CustomResult(CustomResult::new(result)))
        }
        match self {
            Self::CreateMessage => {
                typed(result, |result| ClientResult::CreateMessageResult(Box::new(result)))
            }
            Self::ListRoots => typed(result, ClientResult::ListRootsResult),
            Self::Elicit => typed(result, ClientResult::ElicitResult),
            Self::Other if result == "{}" => Ok(ClientResult::empty(())),
            Self::Other => untyped(result),
        }
    }
}

/// Returns the client's answer as a message for rmcp's service loop. `id` is rmcp's id of the
/// server request. A refusal becomes an error.
pub(super) fn message(
    id: RmcpId,
    expected: ExpectedResult,
    answer: Result<Bytes, Refusal>,
) -> ClientJsonRpcMessage {
    #[derive(Deserialize)]
    struct Answer<'a> {
        #[serde(borrow)]
        result: Option<&'a RawValue>,
        error: Option<ErrorData>,
    }
    let internal = |why: String| ErrorData::internal_error(why, None);
    let unparsable =
        |error: serde_json::Error| internal(format!("the client's answer cannot be parsed: {error}"));
    let read = || {
        let answer = answer.map_err(|refusal| internal(refusal.to_string()))?;
        let answer: Answer<'_> = serde_json::from_slice(&answer).map_err(unparsable)?;
        match (answer.result, answer.error) {
            (_, Some(error)) => Err(error),
            (Some(result), None) => expected.read(result.get()).map_err(unparsable),
            (None, None) => Err(internal("the client's answer has neither a result nor an error".into())),
        }
    };
    match read() {
        Ok(result) => ClientJsonRpcMessage::response(result, id),
        Err(error) => ClientJsonRpcMessage::error(error, Some(id)),
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::JsonRpcMessage;

    use super::*;

    fn read(expected: ExpectedResult, answer: &'static str) -> String {
        let message = message(RmcpId::Number(7), expected, Ok(Bytes::from_static(answer.as_bytes())));
        match message {
            JsonRpcMessage::Response(response) => format!("{:?}", response.result),
            JsonRpcMessage::Error(error) => format!("{} {}", error.error.code.0, error.error.message),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn answers_are_parsed_as_the_type_that_the_request_expects() {
        for (expected, answer, expect) in [
            (
                ExpectedResult::ListRoots,
                r#"{"jsonrpc":"2.0","id":"ask-1","result":{"roots":[]}}"#,
                "ListRootsResult(",
            ),
            (
                ExpectedResult::ListRoots,
                r#"{"jsonrpc":"2.0","id":"ask-1","result":{"other":1}}"#,
                "CustomResult(",
            ),
            (
                ExpectedResult::CreateMessage,
                r#"{"id":"x","result":{"model":"m","role":"assistant","content":{"type":"text","text":"t"}}}"#,
                "CreateMessageResult(",
            ),
            (ExpectedResult::Elicit, r#"{"id":"x","result":{"action":"decline"}}"#, "ElicitResult("),
            (ExpectedResult::Other, r#"{"id":"x","result":{}}"#, "EmptyResult("),
            (ExpectedResult::Other, r#"{"id":"x","result":{"a":1}}"#, "CustomResult("),
            (ExpectedResult::ListRoots, r#"{"id":"x","error":{"code":-1,"message":"no"}}"#, "-1 no"),
            (
                ExpectedResult::ListRoots,
                r#"{"id":"x","result":null}"#,
                "-32603 the client's answer has neither a result nor an error",
            ),
        ] {
            assert!(
                read(expected, answer).starts_with(expect),
                "{expected:?} {answer}: {}",
                read(expected, answer)
            );
        }
        let refused =
            message(RmcpId::Number(7), ExpectedResult::ListRoots, Err(Refusal::ServerRequestDeadline));
        assert!(matches!(refused, JsonRpcMessage::Error(_)));
    }
}
