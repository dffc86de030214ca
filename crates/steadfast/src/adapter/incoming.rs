//! The client's messages as rmcp's types.

use std::sync::Arc;

use http::request::Parts;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientNotification, ClientRequest, Extensions, GetExtensions,
    GetMeta, RequestMetaObject,
};
use steadfast_engine::Incoming;
use steadfast_wire::rpc::{self, ErrorObject};

use crate::session::Session;

/// Methods with a type of their own in rmcp. If one of these reads as a custom request, its parameters were wrong.
const TYPED: &[&str] = &[
    "ping",
    "initialize",
    "completion/complete",
    "logging/setLevel",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "tools/call",
    "tools/list",
];

/// What the context of a request carries besides the request.
pub(super) type ContextParts = (RequestMetaObject, Extensions);

/// A request, and what belongs into its context. `add` puts more into the latter.
pub(super) fn request(
    incoming: Incoming,
    add: impl FnOnce(RequestMetaObject, Extensions, Parts) -> ContextParts,
) -> Result<(ClientRequest, ContextParts), ErrorObject> {
    let Incoming { method, params, http } = incoming;
    let params = params.as_deref().unwrap_or(b"{}");
    let (request, meta, extensions) =
        if method == "tools/call" { tool_call(params)? } else { any_request(&method, params)? };
    Ok((request, add(meta, extensions, parts(http))))
}

/// By far the most common request, read without trying every other type first.
fn tool_call(params: &[u8]) -> Result<(ClientRequest, RequestMetaObject, Extensions), ErrorObject> {
    let mut params: CallToolRequestParams =
        serde_json::from_slice(params).map_err(|error| invalid_params("tools/call", &error.to_string()))?;
    let meta = params.meta.take().unwrap_or_default();
    Ok((ClientRequest::CallToolRequest(CallToolRequest::new(params)), meta, Extensions::new()))
}

fn any_request(
    method: &str,
    params: &[u8],
) -> Result<(ClientRequest, RequestMetaObject, Extensions), ErrorObject> {
    let mut request: ClientRequest = serde_json::from_slice(&with_method(method, params))
        .map_err(|error| invalid_params(method, &error.to_string()))?;
    if matches!(request, ClientRequest::CustomRequest(_)) && TYPED.contains(&method) {
        return Err(invalid_params(method, "they do not fit this method"));
    }
    let meta = std::mem::take(request.get_meta_mut());
    let extensions = std::mem::take(request.extensions_mut());
    Ok((request, meta, extensions))
}

/// A notification; `None` if it makes no sense, in which case nobody is to be told.
pub(super) fn notification(incoming: Incoming, session: Session) -> Option<ClientNotification> {
    let Incoming { method, params, http } = incoming;
    let params = params.as_deref().unwrap_or(b"{}");
    let mut notification: ClientNotification = serde_json::from_slice(&with_method(&method, params)).ok()?;
    notification.extensions_mut().insert(parts(http));
    notification.extensions_mut().insert(session);
    Some(notification)
}

/// rmcp's handlers expect the parts themselves. They are cloned only if somebody else still holds them.
pub(super) fn parts(http: Arc<Parts>) -> Parts {
    Arc::try_unwrap(http).unwrap_or_else(|shared| Parts::clone(&shared))
}

fn with_method(method: &str, params: &[u8]) -> Vec<u8> {
    let mut message = format!(r#"{{"method":{},"params":"#, rpc::json_string(method)).into_bytes();
    message.extend_from_slice(params);
    message.push(b'}');
    message
}

fn invalid_params(method: &str, why: &str) -> ErrorObject {
    ErrorObject::new(rpc::INVALID_PARAMS, format!("The parameters of {method} are not right: {why}"))
}
