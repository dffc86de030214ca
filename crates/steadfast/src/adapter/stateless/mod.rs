//! Answers stateless requests (2026-07-28): one handler, one request, no session.
//!
//! This module does what the protocol requires of a server and rmcp leaves to its transport. A
//! method of a capability that the server does not offer is unknown. The `Mcp-Param-…` headers must
//! agree with the arguments. `requestState` is sealed. Every result names the server.

pub(super) mod notifier;
mod results;
mod subscriptions;

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
use steadfast_engine::{Answer, ExchangeHandle, IncomingMessage};
use steadfast_wire::rpc::{self, ErrorObject};
use steadfast_wire::{Revision, header_annotations};

use super::peer::{NoRequests, PeerTarget, connect_peer};
use super::{HandlerMessages, error_object, incoming, rmcp_id};
use crate::capability_check;
use crate::request_state::{Binding, Seal};
use crate::tasks::{self, Tasks};
use notifier::ExchangeNotifier;

/// Answers stateless requests with a handler.
pub(super) struct Stateless {
    pub(super) messages: HandlerMessages,
    pub(super) seal: Seal,
}

impl Stateless {
    pub(super) async fn answer<H: ServerHandler>(
        &self,
        handler: &H,
        exchange: ExchangeHandle,
        request: IncomingMessage,
    ) -> Answer {
        let method = request.method.clone();
        let raw_params = request.params.clone().unwrap_or_default();
        let config = handler.get_info();
        // Checked before the parameters are parsed: an unknown method has no parameters to be
        // wrong.
        if !is_offered(&method, &config.capabilities) {
            return Err(ErrorObject::new(rpc::METHOD_NOT_FOUND, format!("This server has no {method}.")));
        }
        let (mut request, meta, parts) = incoming::stateless_request(request)?;
        if let ClientRequest::CallToolRequest(call) = &request {
            check_mirrored_params(handler, &call.params, &parts)?;
        }
        let canonical = self.open_state(&exchange, &method, &raw_params, &mut request)?;
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
            subscriptions::check_size(requested)?;
            watched = subscriptions::tasks(&exchange, &raw_params, &config, &capabilities).await?;
            if handler.accepted_subscription_filter(requested).is_none() {
                // A subscription may last for days and does not need its body.
                drop(raw_params);
                return subscriptions::serve(&exchange, requested, watched, &config).await;
            }
        }
        // The peer works until this value is dropped, when the handler has returned.
        let service_loop = self.connect_peer(&exchange, &meta, &capabilities, watched);
        let mut context = RequestContext::new(rmcp_id(exchange.id()), service_loop.peer().clone());
        context.ct = exchange.cancelled().clone();
        context.meta = meta;
        context.extensions.insert(parts);
        context.extensions.insert(Tasks::new(exchange.clone()));
        let mut result = handler.handle_request(request, context).await.map_err(|error| {
            let unknown_task = method.starts_with("tasks/") && error.code == ErrorCode::METHOD_NOT_FOUND;
            if unknown_task { tasks::unknown() } else { without_removed_codes(error) }
        })?;
        if let ServerResult::InputRequiredResult(required) = &mut result {
            check_input(required, &capabilities)?;
            let params = canonical.unwrap_or_else(|| canonical_params(&raw_params));
            let binding = Binding { principal: exchange.principal(), method: &method, params: &params };
            self.seal_state(required, binding)?;
        }
        if let ServerResult::DiscoverResult(discovered) = &mut result {
            discovered.supported_versions.retain(|version| Revision::parse(version.as_str()).is_some());
        }
        results::to_json(result, &config)
    }

    /// Starts the service loop whose peer the handler sends messages through.
    fn connect_peer(
        &self,
        exchange: &ExchangeHandle,
        meta: &RequestMetaObject,
        capabilities: &ClientCapabilities,
        watched: Vec<String>,
    ) -> RunningService<RoleServer, NoRequests> {
        let mut client = InitializeRequestParams::new(
            capabilities.clone(),
            meta.client_info().unwrap_or_else(|| Implementation::new("unknown", "0")),
        );
        client.protocol_version = ProtocolVersion::V_2026_07_28;
        let target = match self.messages {
            HandlerMessages::Allowed => {
                PeerTarget::Exchange(Arc::new(ExchangeNotifier::new(exchange.clone(), meta, watched)))
            }
            HandlerMessages::Refused => PeerTarget::Refuse,
        };
        connect_peer(target, client, NoRequests)
    }

    /// Replaces the sealed `requestState` of the request by the state that the handler issued.
    /// Returns the canonical parameters if there is a state. Fails if the state is not valid for
    /// this request.
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
        let params = canonical_params(raw_params);
        let binding = Binding { principal: exchange.principal(), method, params: &params };
        match self.seal.open(sealed, binding) {
            Ok(opened) => *sealed = opened,
            Err(error) => {
                tracing::debug!(%error, "refused a requestState");
                return Err(ErrorObject::new(
                    rpc::INVALID_PARAMS,
                    format!("The requestState is not valid: {error}. Send the request again without it."),
                ));
            }
        }
        Ok(Some(params))
    }

    fn seal_state(
        &self,
        required: &mut InputRequiredResult,
        binding: Binding<'_>,
    ) -> Result<(), ErrorObject> {
        let Some(state) = &mut required.request_state else { return Ok(()) };
        *state = self.seal.seal(state, binding).map_err(|error| {
            ErrorObject::new(
                rpc::INTERNAL_ERROR,
                format!("The handler's requestState cannot be sealed: {error}."),
            )
        })?;
        Ok(())
    }
}

/// Returns false if the method belongs to a capability that the server does not have.
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

/// Checks the `Mcp-Param-…` headers. Each argument that the tool's schema mirrors in a header must
/// be in that header with the same value.
fn check_mirrored_params<H: ServerHandler>(
    handler: &H,
    call: &CallToolRequestParams,
    parts: &Parts,
) -> Result<(), ErrorObject> {
    let Some(tool) = handler.get_tool(&call.name) else { return Ok(()) };
    // The client is not to blame for an invalid annotation in the server's own schema.
    let annotations = header_annotations::annotations_of_object(&tool.input_schema).unwrap_or_default();
    let none = serde_json::Map::new();
    let arguments = call.arguments.as_ref().unwrap_or(&none);
    for annotation in annotations {
        let mismatch = |why: &str| {
            ErrorObject::new(rpc::HEADER_MISMATCH, format!("The header {} {why}.", annotation.header))
        };
        let mut sent = parts.headers.get_all(&annotation.header).iter();
        let header = match (sent.next(), sent.next()) {
            (None, _) => None,
            (Some(value), None) => Some(value.to_str().map_err(|_| mismatch("contains invalid characters"))?),
            (Some(_), Some(_)) => return Err(mismatch("was sent more than once")),
        };
        let header = header.map(|value| header_annotations::decode(value.trim()));
        match (header, annotation.value(arguments)) {
            (None, None) => {}
            (None, Some(_)) => return Err(mismatch("is missing")),
            (Some(Err(_)), _) => return Err(mismatch("contains invalid base64")),
            (Some(Ok(_)), None) => return Err(mismatch("has a value, but the body has no such argument")),
            (Some(Ok(text)), Some(value)) if header_annotations::matches(&text, value) => {}
            (Some(Ok(_)), Some(_)) => return Err(mismatch("differs from the argument in the body")),
        }
    }
    Ok(())
}

/// Returns the parameters that the client must repeat with a `requestState`, in a form that does
/// not depend on the order of members or on whitespace.
fn canonical_params(params: &Bytes) -> String {
    let mut params: Value = serde_json::from_slice(params).unwrap_or_default();
    // Needed if another crate of the build enables serde_json's `preserve_order`.
    params.sort_all_objects();
    if let Value::Object(members) = &mut params {
        // These differ between the rounds of one request.
        for own in ["_meta", "inputResponses", "requestState"] {
            members.remove(own);
        }
    }
    params.to_string()
}

/// Checks a result that requires input: it must have input requests or a state, and the client must
/// have declared the capabilities for the requests.
fn check_input(required: &InputRequiredResult, capabilities: &ClientCapabilities) -> Result<(), ErrorObject> {
    if required.input_requests.is_none() && required.request_state.is_none() {
        return Err(ErrorObject::new(
            rpc::INTERNAL_ERROR,
            "The handler requires input, but its result has neither input requests nor a requestState.",
        ));
    }
    let requests = required.input_requests.iter().flat_map(|requests| requests.values());
    capability_check::check(requests, capabilities).map_err(error_object)
}

/// Returns a handler's error; replaces the codes that 2026-07-28 no longer has.
fn without_removed_codes(error: ErrorData) -> ErrorObject {
    let mut error = error_object(error);
    error.code = match error.code {
        rpc::RESOURCE_NOT_FOUND => rpc::INVALID_PARAMS,
        rpc::URL_ELICITATION_REQUIRED => rpc::INTERNAL_ERROR,
        code => code,
    };
    error
}

/// Returns the server's name and version, for results.
pub(super) fn server_info(config: &ServerConfig) -> Value {
    serde_json::to_value(&config.server_info).unwrap_or_default()
}
