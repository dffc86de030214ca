//! The client's answers as rmcp's types.
//!
//! Each is read as what its request asks for. rmcp's own way tries one type of message and of result after the other and
//! copies the answer for each.

use rmcp::ErrorData;
use rmcp::model::{ClientJsonRpcMessage, ClientResult, CustomResult, RequestId as RmcpId, ServerRequest};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use steadfast_engine::{Bytes, Refusal};

/// What a request to the client is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Sample,
    Roots,
    Form,
    /// Nothing that has a type, or nothing at all.
    Anything,
}

impl Wanted {
    pub(super) fn by(request: &ServerRequest) -> Self {
        match request {
            ServerRequest::CreateMessageRequest(_) => Self::Sample,
            ServerRequest::ListRootsRequest(_) => Self::Roots,
            ServerRequest::ElicitRequest(_) => Self::Form,
            _ => Self::Anything,
        }
    }

    /// A result of another form is handed on as it is: rmcp tells the handler that it was not expected.
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
            Self::Sample => typed(result, |result| ClientResult::CreateMessageResult(Box::new(result))),
            Self::Roots => typed(result, ClientResult::ListRootsResult),
            Self::Form => typed(result, ClientResult::ElicitResult),
            Self::Anything if result == "{}" => Ok(ClientResult::empty(())),
            Self::Anything => untyped(result),
        }
    }
}

/// The client's answer under the id that rmcp gave the request.
pub(super) fn message(id: RmcpId, wanted: Wanted, answer: Result<Bytes, Refusal>) -> ClientJsonRpcMessage {
    #[derive(Deserialize)]
    struct Answer<'a> {
        #[serde(borrow)]
        result: Option<&'a RawValue>,
        error: Option<ErrorData>,
    }
    let failed = |why: String| ErrorData::internal_error(why, None);
    let unread = |error: serde_json::Error| failed(format!("the client's answer could not be read: {error}"));
    let read = || {
        let answer = answer.map_err(|refusal| failed(refusal.to_string()))?;
        let answer: Answer<'_> = serde_json::from_slice(&answer).map_err(unread)?;
        match (answer.result, answer.error) {
            (_, Some(error)) => Err(error),
            (Some(result), None) => wanted.read(result.get()).map_err(unread),
            (None, None) => Err(failed("the client answered with nothing".into())),
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

    fn read(wanted: Wanted, answer: &'static str) -> String {
        let message = message(RmcpId::Number(7), wanted, Ok(Bytes::from_static(answer.as_bytes())));
        match message {
            JsonRpcMessage::Response(response) => format!("{:?}", response.result),
            JsonRpcMessage::Error(error) => format!("{} {}", error.error.code.0, error.error.message),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn answers_are_what_was_asked_for() {
        for (wanted, answer, expect) in [
            (Wanted::Roots, r#"{"jsonrpc":"2.0","id":"ask-1","result":{"roots":[]}}"#, "ListRootsResult("),
            (Wanted::Roots, r#"{"jsonrpc":"2.0","id":"ask-1","result":{"other":1}}"#, "CustomResult("),
            (
                Wanted::Sample,
                r#"{"id":"x","result":{"model":"m","role":"assistant","content":{"type":"text","text":"t"}}}"#,
                "CreateMessageResult(",
            ),
            (Wanted::Form, r#"{"id":"x","result":{"action":"decline"}}"#, "ElicitResult("),
            (Wanted::Anything, r#"{"id":"x","result":{}}"#, "EmptyResult("),
            (Wanted::Anything, r#"{"id":"x","result":{"a":1}}"#, "CustomResult("),
            (Wanted::Roots, r#"{"id":"x","error":{"code":-1,"message":"no"}}"#, "-1 no"),
            (Wanted::Roots, r#"{"id":"x","result":null}"#, "-32603 the client answered with nothing"),
        ] {
            assert!(
                read(wanted, answer).starts_with(expect),
                "{wanted:?} {answer}: {}",
                read(wanted, answer)
            );
        }
        let refused = message(RmcpId::Number(7), Wanted::Roots, Err(Refusal::AskDeadline));
        assert!(matches!(refused, JsonRpcMessage::Error(_)));
    }
}
