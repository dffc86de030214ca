//! The server's messages on their way to the client: what they are worth, and whose tokens they carry.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use steadfast_client::{Ask, Notification};
use steadfast_engine::Class;
use steadfast_wire::RequestId;
use steadfast_wire::members::Members;
use steadfast_wire::rpc::{ErrorObject, json_string};

const PROGRESS: &str = "notifications/progress";

/// The token that a client gave for progress, as JSON text.
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
    // Most requests have none, and are not read twice.
    if !params.contains("progressToken") {
        return None;
    }
    let params: Params<'_> = serde_json::from_str(params).ok()?;
    Some(params.meta?.token?.get().to_owned())
}

/// A notification that came for a call: `id` is what the call is known by at the server, `token` what its client gave for
/// progress. `None` for progress of nobody.
pub(crate) fn for_call(
    notification: Notification,
    id: &RequestId,
    token: Option<&str>,
) -> Option<(Class, Bytes)> {
    if notification.method != PROGRESS {
        return Some(as_is(&notification));
    }
    let text = notification.params.as_deref().and_then(|params| std::str::from_utf8(params).ok())?;
    let mut params = Members::parse(text).ok()?;
    if params.get("progressToken") != Some(id.to_string().as_str()) {
        return None;
    }
    params.set("progressToken", token?);
    let params = Some(Bytes::from(params.to_string()));
    Some(as_is(&Notification { params, ..notification }))
}

/// A notification that came for no call. Progress belongs to a call, and without one its token means nothing.
pub(crate) fn for_session(notification: &Notification) -> Option<(Class, Bytes)> {
    (notification.method != PROGRESS).then(|| as_is(notification))
}

fn as_is(notification: &Notification) -> (Class, Bytes) {
    let Notification { method, params } = notification;
    let class = match method.as_str() {
        PROGRESS | "notifications/message" => Class::Chatter,
        _ => Class::Notice,
    };
    let mut text = br#"{"jsonrpc":"2.0","#.to_vec();
    push_rest(&mut text, method, params.as_deref());
    (class, text.into())
}

/// A request of the server from `"method"` on; the engine puts an id in front.
pub(crate) fn rest_of(ask: &Ask) -> Bytes {
    let mut text = Vec::new();
    push_rest(&mut text, &ask.method, ask.params.as_deref());
    text.into()
}

fn push_rest(text: &mut Vec<u8>, method: &str, params: Option<&[u8]>) {
    text.extend_from_slice(br#""method":"#);
    text.extend_from_slice(json_string(method).as_bytes());
    if let Some(params) = params {
        text.extend_from_slice(br#","params":"#);
        text.extend_from_slice(params);
    }
    text.push(b'}');
}

/// What the client answered to an ask, out of its response message.
pub(crate) fn answer(message: &Bytes) -> Result<Bytes, ErrorObject> {
    #[derive(Deserialize)]
    struct Response<'a> {
        #[serde(borrow)]
        result: Option<&'a RawValue>,
        #[serde(borrow)]
        error: Option<&'a RawValue>,
    }
    let unread = || ErrorObject::internal("bad_answer", "The client's answer cannot be read.", false);
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

    fn progress(token: &str) -> Notification {
        let params = format!(r#"{{"progressToken":{token},"progress":1.50}}"#);
        Notification { method: PROGRESS.to_owned(), params: Some(params.into()) }
    }

    #[test]
    fn progress_gets_the_token_of_its_client() {
        let id = RequestId::Number(7);
        let text = |notification, token| {
            for_call(notification, &id, token).map(|(_, text)| String::from_utf8(text.to_vec()).unwrap())
        };
        assert_eq!(
            text(progress("7"), Some(r#""abc""#)).as_deref(),
            Some(
                r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"abc","progress":1.50}}"#
            )
        );
        // Of another call, of a call whose client wants none, and of the same digits with another type.
        assert_eq!(text(progress("8"), Some("1")), None);
        assert_eq!(text(progress("7"), None), None);
        assert_eq!(text(progress(r#""7""#), Some("1")), None);
        assert_eq!(for_session(&progress("7")), None);
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
    fn answers_are_taken_out_as_they_came() {
        let read = |text: &'static str| answer(&Bytes::from_static(text.as_bytes()));
        assert_eq!(read(r#"{"id":1,"result":{ "a":1.0 }}"#).unwrap(), r#"{ "a":1.0 }"#);
        assert_eq!(read(r#"{"id":1,"error":{"code":-1,"message":"no"}}"#).unwrap_err().code, -1);
        assert!(read(r#"{"id":1}"#).is_err());
    }
}
