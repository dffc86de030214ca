//! The rmcp client that runs the script "demo".

use std::sync::Arc;

use rmcp::ServiceExt;
use rmcp::model::{CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, ServerResult};
use rmcp::service::{
    ClientInitializeError, Peer, PeerRequestOptions, RequestHandle, RoleClient, RunningService, ServiceError,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::Value;

use super::handler::Handler;

#[derive(Debug)]
pub(crate) struct TestClient {
    pub(crate) url: Arc<str>,
    pub(crate) handler: Handler,
    /// `None` after the end of the session.
    pub(crate) service: Option<RunningService<RoleClient, Handler>>,
    pub(crate) peer: Peer<RoleClient>,
}

impl TestClient {
    pub(crate) async fn connect(url: &str) -> Result<Self, ClientInitializeError> {
        let handler = Handler::default();
        // A lost session must be visible, so rmcp must not open a new one.
        let config = StreamableHttpClientTransportConfig::with_uri(url).reinit_on_expired_session(false);
        let transport = StreamableHttpClientTransport::from_config(config);
        let service = handler.clone().serve(transport).await?;
        let peer = service.peer().clone();
        Ok(Self { url: url.into(), handler, service: Some(service), peer })
    }

    /// Calls a tool and returns the text of its result.
    pub(crate) async fn call(&self, name: &'static str, arguments: Value) -> Result<String, String> {
        let handle = self.start(name, arguments).await.map_err(|error| error.to_string())?;
        text(handle.await_response().await.map_err(|error| error.to_string())?)
    }

    /// Calls a tool without waiting for its result.
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
        other => Err(format!("not the result of a tool: {other:?}")),
    }
}
