//! Parses the client's requests and notifications into rmcp's types.
//!
//! The method decides the type. rmcp's own deserialiser tries one type after the other and copies
//! the parameters for each. A hostile body makes that take seconds, and a known method with wrong
//! parameters becomes a custom request.
#![expect(deprecated, reason = "revisions before 2026-07-28 still have the methods that it deprecates")]

use std::sync::Arc;

use http::request::Parts;
use rmcp::model::{
    ClientNotification, ClientRequest, CustomNotification, CustomRequest, GetExtensions, GetMeta,
    PaginatedRequestParams, RequestMetaObject, RequestParamsMeta,
};
use serde::de::DeserializeOwned;
use steadfast_engine::IncomingMessage;
use steadfast_wire::rpc::{self, ErrorObject};

use crate::session::Session;

/// Parses a request of a session. Returns it with its `_meta` and the head of the HTTP request.
pub(super) fn request(
    incoming: IncomingMessage,
) -> Result<(ClientRequest, RequestMetaObject, Parts), ErrorObject> {
    let IncomingMessage { method, params, http } = incoming;
    let (request, meta) = read_request(&method, params.as_deref().unwrap_or(b"{}"))?;
    Ok((request, meta, parts(http)))
}

/// Parses a stateless request, whose revision has additional methods. Returns it with its `_meta`
/// and the head of the HTTP request.
pub(super) fn stateless_request(
    incoming: IncomingMessage,
) -> Result<(ClientRequest, RequestMetaObject, Parts), ErrorObject> {
    let IncomingMessage { method, params, http } = incoming;
    let (request, meta) = read_stateless_request(&method, params.as_deref().unwrap_or(b"{}"))?;
    Ok((request, meta, parts(http)))
}

fn read_stateless_request(
    method: &str,
    params: &[u8],
) -> Result<(ClientRequest, RequestMetaObject), ErrorObject> {
    macro_rules! with_params {
        ($variant:ident) => {{
            let mut params = read(method, params)?;
            let meta = RequestParamsMeta::meta_mut(&mut params).take().unwrap_or_default();
            (ClientRequest::$variant(rmcp::model::$variant::new(params)), meta)
        }};
    }
    Ok(match method {
        "server/discover" => {
            (ClientRequest::DiscoverRequest(Default::default()), read::<OnlyMeta<_>>(method, params)?.meta)
        }
        "subscriptions/listen" => {
            // serde would accept an array as the filter, which subscribes to nothing.
            read::<OnlyFilter>(method, params)?;
            with_params!(SubscriptionsListenRequest)
        }
        "tasks/get" => with_params!(GetTaskRequest),
        "tasks/update" => with_params!(UpdateTaskRequest),
        "tasks/cancel" => with_params!(CancelTaskRequest),
        _ => read_request(method, params)?,
    })
}

fn read_request(method: &str, params: &[u8]) -> Result<(ClientRequest, RequestMetaObject), ErrorObject> {
    macro_rules! with_params {
        ($variant:ident) => {{
            let mut params = read(method, params)?;
            let meta = RequestParamsMeta::meta_mut(&mut params).take().unwrap_or_default();
            (ClientRequest::$variant(rmcp::model::$variant::new(params)), meta)
        }};
    }
    macro_rules! one_page {
        ($variant:ident) => {{
            let mut params: PaginatedRequestParams = read(method, params)?;
            let meta = params.meta.take().unwrap_or_default();
            (ClientRequest::$variant(rmcp::model::$variant::with_param(params)), meta)
        }};
    }
    Ok(match method {
        "tools/call" => with_params!(CallToolRequest),
        "tools/list" => one_page!(ListToolsRequest),
        "prompts/get" => with_params!(GetPromptRequest),
        "prompts/list" => one_page!(ListPromptsRequest),
        "resources/read" => with_params!(ReadResourceRequest),
        "resources/list" => one_page!(ListResourcesRequest),
        "resources/templates/list" => one_page!(ListResourceTemplatesRequest),
        "resources/subscribe" => with_params!(SubscribeRequest),
        "resources/unsubscribe" => with_params!(UnsubscribeRequest),
        "completion/complete" => with_params!(CompleteRequest),
        "logging/setLevel" => with_params!(SetLevelRequest),
        "ping" => (ClientRequest::PingRequest(Default::default()), read::<OnlyMeta<_>>(method, params)?.meta),
        other => {
            let meta = read::<OnlyMeta<_>>(method, params)?.meta;
            (ClientRequest::CustomRequest(CustomRequest::new(other, Some(read(method, params)?))), meta)
        }
    })
}

/// Parses a notification. Returns `None` if its parameters are wrong: JSON-RPC has no answer to a
/// notification, so there is no error either.
pub(super) fn notification(incoming: IncomingMessage, session: Session) -> Option<ClientNotification> {
    let IncomingMessage { method, params, http } = incoming;
    let params = params.as_deref().unwrap_or(b"{}");
    let mut notification = match &*method {
        "notifications/initialized" => ClientNotification::InitializedNotification(Default::default()),
        "notifications/roots/list_changed" => {
            ClientNotification::RootsListChangedNotification(Default::default())
        }
        "notifications/cancelled" => {
            let params = read(&method, params).ok()?;
            ClientNotification::CancelledNotification(rmcp::model::CancelledNotification::new(params))
        }
        "notifications/progress" => {
            let params = read(&method, params).ok()?;
            ClientNotification::ProgressNotification(rmcp::model::ProgressNotification::new(params))
        }
        other => {
            let params = Some(read(other, params).ok()?);
            ClientNotification::CustomNotification(CustomNotification::new(other, params))
        }
    };
    if let Ok(OnlyMeta { meta }) = read(&method, params) {
        *notification.get_meta_mut() = meta;
    }
    notification.extensions_mut().insert(parts(http));
    notification.extensions_mut().insert(session);
    Some(notification)
}

/// Returns the head of the HTTP request by value, as rmcp's handlers expect it. Clones it only if
/// it is shared.
pub(super) fn parts(http: Arc<Parts>) -> Parts {
    Arc::try_unwrap(http).unwrap_or_else(|shared| Parts::clone(&shared))
}

/// Parameters of which only `_meta` is read.
#[derive(serde::Deserialize)]
struct OnlyMeta<M: Default> {
    #[serde(rename = "_meta", default)]
    meta: M,
}

/// Parameters of which only the filter is read, which must be an object.
#[derive(serde::Deserialize)]
struct OnlyFilter {
    #[serde(rename = "notifications")]
    _filter: serde_json::Map<String, serde_json::Value>,
}

fn read<T: DeserializeOwned>(method: &str, params: &[u8]) -> Result<T, ErrorObject> {
    let wrong = |why: &str| {
        let why: String = why.chars().take(200).collect();
        ErrorObject::new(rpc::INVALID_PARAMS, format!("The parameters of {method} are invalid: {why}"))
    };
    // serde would read an array as the members of a struct in their order.
    if params.first() == Some(&b'[') {
        return Err(wrong("they must be an object"));
    }
    serde_json::from_slice(params).map_err(|error| wrong(&error.to_string()))
}
