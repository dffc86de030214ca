//! Requests of 2026-07-28: one handler, one request, no session.
//!
//! What the protocol asks of a server and rmcp leaves to its transport is done here: capabilities that are not offered are
//! unknown methods, `Mcp-Param-…` headers agree with the arguments, `requestState` is sealed, and every result says
//! who gave it.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientRequest, ErrorCode, Implementation,
    InitializeRequestParams, InputRequiredResult, ProtocolVersion, RequestMetaObject, ServerCapabilities,
    ServerConfig, ServerResult,
};
use rmcp::service::{RequestContext, RoleServer, RunningService, Service};
use rmcp::{ErrorData, ServerHandler};
use serde_json::Value;
use steadfast_engine::{Answer, ExchangeHandle, Incoming};
use steadfast_wire::rpc::{self, ErrorObject};
use steadfast_wire::{Revision, mirrored};

use super::exchange_line::ExchangeLine;
use super::peer::{Line, Mute, open_line};
use super::{Speech, error_object, incoming, listen, results, rmcp_id};
use crate::declared;
use crate::seal::{Bound, Seal};
use crate::tasks::{self, Tasks};

/// What answers stateless requests, besides the handler.
pub(super) struct Stateless {
    pub(super) speech: Speech,
    pub(super) seal: Seal,
}

impl Stateless {
    pub(super) async fn answer<H: ServerHandler>(
        &self,
        handler: &H,
        exchange: ExchangeHandle,
        request: Incoming,
    ) -> Answer {
        let method = request.method.clone();
        let raw_params = request.params.clone().unwrap_or_default();
        let config = handler.get_info();
        // Before the parameters are read: what there is not has none.
        if !is_offered(&method, &config.capabilities) {
            return Err(ErrorObject::new(rpc::METHOD_NOT_FOUND, format!("This server has no {method}.")));
        }
        let (mut request, meta, parts) = incoming::stateless_request(request)?;
        if let ClientRequest::CallToolRequest(call) = &request {
            check_mirrored_params(handler, &call.params, &parts)?;
        }
        let bound_params = self.open_state(&exchange, &method, &raw_params, &mut request)?;
        let capabilities = meta.client_capabilities().unwrap_or_default();
        if method.starts_with("tasks/") {
            tasks::check_declared(&capabilities).map_err(error_object)?;
            if let Some(answer) = tasks::answer(&exchange, &request).await {
                return results::to_json(answer?, &config);
            }
        }
        let mut watched = Vec::new();
        if let ClientRequest::SubscriptionsListenRequest(listen) = &request {
            let requested = &listen.params.notifications;
            listen::check_size(requested)?;
            watched = listen::tasks(&exchange, &raw_params, &config, &capabilities).await?;
            if handler.accepted_subscription_filter(requested).is_none() {
                // A subscription may last for days, and needs its body no more.
                drop(raw_params);
                return listen::answer(&exchange, requested, watched, &config).await;
            }
        }
        // Held until the handler is done: what it sends through its peer goes this way.
        let line = self.open_line(&exchange, &meta, &capabilities, watched);
        let mut context = RequestContext::new(rmcp_id(exchange.id()), line.peer().clone());
        context.ct = exchange.cancelled().clone();
        context.meta = meta;
        context.extensions.insert(parts);
        context.extensions.insert(Tasks::new(exchange.clone()));
        let mut result = handler.handle_request(request, context).await.map_err(|error| {
            let unknown_task = method.starts_with("tasks/") && error.code == ErrorCode::METHOD_NOT_FOUND;
            if unknown_task { tasks::unknown() } else { failure(error) }
        })?;
        if let ServerResult::InputRequiredResult(required) = &mut result {
            check_input(required, &capabilities)?;
            let params = bound_params.unwrap_or_else(|| bound_form(&raw_params));
            let bound = Bound { principal: exchange.principal(), method: &method, params: &params };
            self.seal_state(required, bound)?;
        }
        if let ServerResult::DiscoverResult(discovered) = &mut result {
            discovered.supported_versions.retain(|version| Revision::parse(version.as_str()).is_some());
        }
        results::to_json(result, &config)
    }

    fn open_line(
        &self,
        exchange: &ExchangeHandle,
        meta: &RequestMetaObject,
        capabilities: &ClientCapabilities,
        watched: Vec<String>,
    ) -> RunningService<RoleServer, Mute> {
        let mut client = InitializeRequestParams::new(
            capabilities.clone(),
            meta.client_info().unwrap_or_else(|| Implementation::new("unknown", "0")),
        );
        client.protocol_version = ProtocolVersion::V_2026_07_28;
        let line = match self.speech {
            Speech::Free => Line::Exchange(Arc::new(ExchangeLine::new(exchange.clone(), meta, watched))),
            Speech::Silent => Line::Nowhere,
        };
        open_line(line, client, Mute)
    }

    /// Puts the state that the handler gave out in the place of the sealed one. Gives the parameters that it is bound to,
    /// if there is one.
    fn open_state(
        &self,
        exchange: &ExchangeHandle,
        method: &str,
        raw_params: &Bytes,
        request: &mut ClientRequest,
    ) -> Result<Option<String>, ErrorObject> {
        let state = match request {
            ClientRequest::CallToolRequest(request) => &mut request.params.request_state,
            ClientRequest::GetPromptRequest(request) => &mut request.params.request_state,
            ClientRequest::ReadResourceRequest(request) => &mut request.params.request_state,
            _ => return Ok(None),
        };
        let Some(sealed) = state else { return Ok(None) };
        let params = bound_form(raw_params);
        let bound = Bound { principal: exchange.principal(), method, params: &params };
        match self.seal.open(sealed, bound) {
            Ok(opened) => *sealed = opened,
            Err(error) => {
                tracing::debug!(%error, "a requestState is refused");
                return Err(ErrorObject::new(
                    rpc::INVALID_PARAMS,
                    format!("The requestState cannot be used: {error}. Send the request again without it."),
                ));
            }
        }
        Ok(Some(params))
    }

    fn seal_state(&self, required: &mut InputRequiredResult, bound: Bound<'_>) -> Result<(), ErrorObject> {
        let Some(state) = &mut required.request_state else { return Ok(()) };
        *state = self.seal.seal(state, bound).map_err(|error| {
            ErrorObject::new(
                rpc::INTERNAL_ERROR,
                format!("The handler's requestState cannot be sealed: {error}."),
            )
        })?;
        Ok(())
    }
}

/// A method that belongs to a capability which the server does not have is unknown.
fn is_offered(method: &str, capabilities: &ServerCapabilities) -> bool {
    match method.split('/').next() {
        Some("tools") => capabilities.tools.is_some(),
        Some("prompts") => capabilities.prompts.is_some(),
        Some("resources") => capabilities.resources.is_some(),
        Some("completion") => capabilities.completions.is_some(),
        Some("tasks") => capabilities.supports_tasks(),
        _ => true,
    }
}

/// Each argument that the tool's schema mirrors must be in its header, and say the same there.
fn check_mirrored_params<H: ServerHandler>(
    handler: &H,
    call: &CallToolRequestParams,
    parts: &Parts,
) -> Result<(), ErrorObject> {
    let Some(tool) = handler.get_tool(&call.name) else { return Ok(()) };
    // What the server got wrong in its own schema is not the client's fault.
    let annotations = mirrored::annotations_of(&tool.input_schema).unwrap_or_default();
    let none = serde_json::Map::new();
    let arguments = call.arguments.as_ref().unwrap_or(&none);
    for annotation in annotations {
        let mismatch = |why: &str| {
            ErrorObject::new(rpc::HEADER_MISMATCH, format!("The header {} {why}.", annotation.header))
        };
        let mut sent = parts.headers.get_all(&annotation.header).iter();
        let header = match (sent.next(), sent.next()) {
            (None, _) => None,
            (Some(value), None) => {
                Some(value.to_str().map_err(|_| mismatch("has characters that it must not have"))?)
            }
            (Some(_), Some(_)) => return Err(mismatch("was sent more than once")),
        };
        let header = header.map(|value| mirrored::decode(value.trim()));
        match (header, annotation.value(arguments)) {
            (None, None) => {}
            (None, Some(_)) => return Err(mismatch("is missing")),
            (Some(Err(_)), _) => return Err(mismatch("has a base64 value that is none")),
            (Some(Ok(_)), None) => return Err(mismatch("names what the body does not")),
            (Some(Ok(text)), Some(value)) if mirrored::matches(&text, value) => {}
            (Some(Ok(_)), Some(_)) => return Err(mismatch("is not what the body says")),
        }
    }
    Ok(())
}

/// The parameters that a retry must repeat, in a form that does not depend on how they are written.
fn bound_form(params: &Bytes) -> String {
    let mut params: Value = serde_json::from_slice(params).unwrap_or_default();
    // Needed only where somebody has told serde_json to keep the order.
    params.sort_all_objects();
    if let Value::Object(members) = &mut params {
        for own in ["_meta", "inputResponses", "requestState"] {
            members.remove(own);
        }
    }
    params.to_string()
}

/// A handler that needs input asks for it, or comes back to what it remembers, and asks a client for no more than that
/// has declared.
fn check_input(required: &InputRequiredResult, capabilities: &ClientCapabilities) -> Result<(), ErrorObject> {
    if required.input_requests.is_none() && required.request_state.is_none() {
        return Err(ErrorObject::new(
            rpc::INTERNAL_ERROR,
            "The handler needs input, and neither asks for it nor gives a state to come back with.",
        ));
    }
    let asked = required.input_requests.iter().flat_map(|requests| requests.values());
    declared::check(asked, capabilities).map_err(error_object)
}

/// A handler's error, without the codes that the revision has given up.
fn failure(error: ErrorData) -> ErrorObject {
    let mut error = error_object(error);
    error.code = match error.code {
        rpc::RESOURCE_NOT_FOUND => rpc::INVALID_PARAMS,
        rpc::URL_ELICITATION_REQUIRED => rpc::INTERNAL_ERROR,
        code => code,
    };
    error
}

/// Who the server says it is, for results.
pub(super) fn server_info(config: &ServerConfig) -> Value {
    serde_json::to_value(&config.server_info).unwrap_or_default()
}
