//! The client's messages as rmcp's types.
//!
//! Each is read as what its method says it is. rmcp's own way tries one type after the other and copies the
//! parameters for each, which takes seconds for a body that is made for it, and a known method with wrong parameters
//! would pass as a custom one.
#![expect(deprecated, reason = "what 2026-07-28 deprecates is alive in every revision before")]

use std::sync::Arc;

use http::request::Parts;
use rmcp::model::{
    ClientNotification, ClientRequest, CustomNotification, CustomRequest, GetExtensions, GetMeta,
    PaginatedRequestParams, RequestMetaObject, RequestParamsMeta,
};
use serde::de::DeserializeOwned;
use steadfast_engine::Incoming;
use steadfast_wire::rpc::{self, ErrorObject};

use crate::session::Session;

/// A request, the `_meta` that came with it, and the head of the HTTP request.
pub(super) fn request(incoming: Incoming) -> Result<(ClientRequest, RequestMetaObject, Parts), ErrorObject> {
    let Incoming { method, params, http } = incoming;
    let (request, meta) = read_request(&method, params.as_deref().unwrap_or(b"{}"))?;
    Ok((request, meta, parts(http)))
}

/// The same for a request of a stateless revision, which has methods of its own.
pub(super) fn stateless_request(
    incoming: Incoming,
) -> Result<(ClientRequest, RequestMetaObject, Parts), ErrorObject> {
    let Incoming { method, params, http } = incoming;
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
            // A list would do as well for serde, and subscribe to nothing.
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

/// A notification; `None` if it makes no sense, in which case nobody is to be told.
pub(super) fn notification(incoming: Incoming, session: Session) -> Option<ClientNotification> {
    let Incoming { method, params, http } = incoming;
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

/// rmcp's handlers expect the parts themselves. They are cloned only if somebody else still holds them.
pub(super) fn parts(http: Arc<Parts>) -> Parts {
    Arc::try_unwrap(http).unwrap_or_else(|shared| Parts::clone(&shared))
}

#[derive(serde::Deserialize)]
struct OnlyMeta<M: Default> {
    #[serde(rename = "_meta", default)]
    meta: M,
}

#[derive(serde::Deserialize)]
struct OnlyFilter {
    #[serde(rename = "notifications")]
    _filter: serde_json::Map<String, serde_json::Value>,
}

fn read<T: DeserializeOwned>(method: &str, params: &[u8]) -> Result<T, ErrorObject> {
    let wrong = |why: &str| {
        let why: String = why.chars().take(200).collect();
        ErrorObject::new(rpc::INVALID_PARAMS, format!("The parameters of {method} are not right: {why}"))
    };
    // A list could be read as the members of an object in their order, which nobody means.
    if params.first() == Some(&b'[') {
        return Err(wrong("they must be an object"));
    }
    serde_json::from_slice(params).map_err(|error| wrong(&error.to_string()))
}
