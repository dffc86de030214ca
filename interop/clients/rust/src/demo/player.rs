//! The client under test.

use std::sync::Arc;

use rmcp::ServiceExt;
use rmcp::model::{CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, ServerResult};
use rmcp::service::{
    ClientInitializeError, Peer, PeerRequestOptions, RequestHandle, RoleClient, RunningService, ServiceError,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::Value;

use super::listener::Listener;

#[derive(Debug)]
pub(crate) struct Player {
    pub(crate) url: Arc<str>,
    pub(crate) listener: Listener,
    /// Gone when the session was ended.
    pub(crate) service: Option<RunningService<RoleClient, Listener>>,
    pub(crate) peer: Peer<RoleClient>,
}

impl Player {
    pub(crate) async fn connect(url: &str) -> Result<Self, ClientInitializeError> {
        let listener = Listener::default();
        // A session that is lost must show, and not be replaced by a new one.
        let config = StreamableHttpClientTransportConfig::with_uri(url).reinit_on_expired_session(false);
        let transport = StreamableHttpClientTransport::from_config(config);
        let service = listener.clone().serve(transport).await?;
        let peer = service.peer().clone();
        Ok(Self { url: url.into(), listener, service: Some(service), peer })
    }

    /// Calls a tool and gives the text that it answers with.
    pub(crate) async fn call(&self, name: &'static str, arguments: Value) -> Result<String, String> {
        let handle = self.start(name, arguments).await.map_err(|error| error.to_string())?;
        text(handle.await_response().await.map_err(|error| error.to_string())?)
    }

    /// Calls a tool without waiting for its answer.
    pub(crate) async fn start(
        &self,
        name: &'static str,
        arguments: Value,
    ) -> Result<RequestHandle<RoleClient>, ServiceError> {
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        let params = CallToolRequestParams::new(name).with_arguments(arguments);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        self.peer.send_request_with_option(request, PeerRequestOptions::no_options()).await
    }
}

pub(crate) fn text(result: ServerResult) -> Result<String, String> {
    match result {
        ServerResult::CallToolResult(CallToolResult { content, .. }) => {
            let text = content.first().and_then(|block| block.as_text());
            text.map(|text| text.text.clone()).ok_or_else(|| format!("no text: {content:?}"))
        }
        other => Err(format!("not a tool's answer: {other:?}")),
    }
}
