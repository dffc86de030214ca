//! Conversion of the server's messages for the client: their class, and the progress tokens that
//! they carry.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use steadfast_client::{Notification, ServerRequest};
use steadfast_engine::Class;
use steadfast_wire::rpc::{ErrorObject, json_string};
use steadfast_wire::{RawObject, Reason, RequestId};

const PROGRESS: &str = "notifications/progress";

/// Returns the client's progress token, as JSON text.
pub(crate) fn progress_token(params: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow, rename = "_meta")]
        meta: Option<Meta<'a>>,
    }
    #[derive(Deserialize)]
    struct Meta<'a> {
        #[serde(borrow, rename = "progressToken")]
        token: Option<&'a RawValue>,
    }
    // Most requests have no token, and are not parsed for it.
    if !params.contains("progressToken") {
        return None;
    }
    let params: Params<'_> = serde_json::from_str(params).ok()?;
    Some(params.meta?.token?.get().to_owned())
}

/// Converts a notification that belongs to a call. `id` is the request id of the call at the
/// server. `convert` changes the parameters of its progress for the client, and returns `None` if
/// the client asked for no progress. Returns `None` for progress of another call.
pub(crate) fn for_call(
    notification: Notification,
    id: &RequestId,
    convert: impl FnOnce(&mut RawObject) -> Option<()>,
) -> Option<(Class, Bytes)> {
    if notification.method != PROGRESS {
        return Some(to_message(&notification));
    }
    let text = notification.params.as_deref().and_then(|params| std::str::from_utf8(params).ok())?;
    let mut params = RawObject::parse(text).ok()?;
    if params.get("progressToken") != Some(id.to_string().as_str()) {
        return None;
    }
    convert(&mut params)?;
    Some(progress(&params))
}

/// Returns the message of a progress notification.
pub(crate) fn progress(params: &RawObject) -> (Class, Bytes) {
    let params = Some(Bytes::from(params.to_string()));
    to_message(&Notification { method: PROGRESS.to_owned(), params })
}

/// Converts a notification that belongs to no call. Returns `None` for progress, whose token would
/// mean nothing to the client.
pub(crate) fn for_session(notification: &Notification) -> Option<(Class, Bytes)> {
    (notification.method != PROGRESS).then(|| to_message(notification))
}

fn to_message(notification: &Notification) -> (Class, Bytes) {
    let Notification { method, params } = notification;
    let class = match method.as_str() {
        PROGRESS | "notifications/message" => Class::Droppable,
        _ => Class::Notification,
    };
    let mut text = br#"{"jsonrpc":"2.0","#.to_vec();
    push_method_and_params(&mut text, method, params.as_deref());
    (class, text.into())
}

/// Returns the text of a server request from `"method"` on. The engine puts an id before it.
pub(crate) fn without_id(server_request: &ServerRequest) -> Bytes {
    let mut text = Vec::new();
    push_method_and_params(&mut text, &server_request.method, server_request.params.as_deref());
    text.into()
}

fn push_method_and_params(text: &mut Vec<u8>, method: &str, params: Option<&[u8]>) {
    text.extend_from_slice(br#""method":"#);
    text.extend_from_slice(json_string(method).as_bytes());
    if let Some(params) = params {
        text.extend_from_slice(br#","params":"#);
        text.extend_from_slice(params);
    }
    text.push(b'}');
}

/// Extracts the client's answer to a server request from its JSON-RPC message.
pub(crate) fn answer(message: &Bytes) -> Result<Bytes, ErrorObject> {
    #[derive(Deserialize)]
    struct Response<'a> {
        #[serde(borrow)]
        result: Option<&'a RawValue>,
        #[serde(borrow)]
        error: Option<&'a RawValue>,
    }
    let unread = || Reason::BadResponse.error("The client's answer cannot be read.");
    let response: Response<'_> = serde_json::from_slice(message).map_err(|_| unread())?;
    match (response.error, response.result) {
        (Some(error), _) => Err(ErrorObject::parse(error.get().as_bytes()).unwrap_or_else(unread)),
        (None, Some(result)) => Ok(message.slice_ref(result.get().as_bytes())),
        (None, None) => Err(unread()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(token: &str) -> Notification {
        let params = format!(r#"{{"progressToken":{token},"progress":1.50}}"#);
        Notification { method: PROGRESS.to_owned(), params: Some(params.into()) }
    }

    #[test]
    fn progress_carries_the_token_of_the_client() {
        let id = RequestId::Number(7);
        let text = |notification, token: Option<&str>| {
            let convert = |params: &mut RawObject| {
                params.set("progressToken", token?);
                Some(())
            };
            for_call(notification, &id, convert).map(|(_, text)| String::from_utf8(text.to_vec()).unwrap())
        };
        assert_eq!(
            text(sent("7"), Some(r#""abc""#)).as_deref(),
            Some(
                r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"abc","progress":1.50}}"#
            )
        );
        // Another call, a call without a token, and a token of another type with the same digits.
        assert_eq!(text(sent("8"), Some("1")), None);
        assert_eq!(text(sent("7"), None), None);
        assert_eq!(text(sent(r#""7""#), Some("1")), None);
        assert_eq!(for_session(&sent("7")), None);
        let plain = Notification { method: "notifications/x".to_owned(), params: None };
        assert_eq!(text(plain, None).as_deref(), Some(r#"{"jsonrpc":"2.0","method":"notifications/x"}"#));
    }

    #[test]
    fn tokens_keep_their_type() {
        assert_eq!(progress_token(r#"{"_meta":{"progressToken":"1"}}"#).as_deref(), Some(r#""1""#));
        assert_eq!(progress_token(r#"{"_meta":{"progressToken":1}}"#).as_deref(), Some("1"));
        assert_eq!(progress_token(r#"{"arguments":{"progressToken":1}}"#), None);
        assert_eq!(progress_token("{}"), None);
    }

    #[test]
    fn answers_are_extracted_unchanged() {
        let read = |text: &'static str| answer(&Bytes::from_static(text.as_bytes()));
        assert_eq!(read(r#"{"id":1,"result":{ "a":1.0 }}"#).unwrap(), r#"{ "a":1.0 }"#);
        assert_eq!(read(r#"{"id":1,"error":{"code":-1,"message":"no"}}"#).unwrap_err().code, -1);
        assert!(read(r#"{"id":1}"#).is_err());
    }
}
