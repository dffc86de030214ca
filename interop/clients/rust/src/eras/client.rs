//! An rmcp client of one era, with a session or without.

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, LoggingLevel, ProtocolVersion, RequestMetaObject,
};
use rmcp::service::{
    ClientLifecycleMode, ClientServiceExt, PeerRequestOptions, RequestHandle, RoleClient, RunningService,
    ServiceError,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::Value;

use super::handler::Handler;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    Legacy,
    Modern,
}

#[derive(Debug)]
pub(crate) struct TestClient {
    pub(crate) era: Era,
    pub(crate) handler: Handler,
    pub(crate) service: RunningService<RoleClient, Handler>,
}

impl TestClient {
    pub(crate) async fn connect(url: &str, era: Era) -> Result<Self, String> {
        let handler = Handler::default();
        // A lost session must be visible, so rmcp must not open a new one.
        let config = StreamableHttpClientTransportConfig::with_uri(url).reinit_on_expired_session(false);
        let transport = StreamableHttpClientTransport::from_config(config);
        let lifecycle = match era {
            Era::Legacy => ClientLifecycleMode::Initialize,
            Era::Modern => {
                ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
            }
        };
        let service = handler.clone().serve_with_lifecycle(transport, lifecycle).await;
        Ok(Self { era, handler, service: service.map_err(|error| error.to_string())? })
    }

    /// Calls a tool, responds to its requests, and returns the text of its result.
    pub(crate) async fn text_of(&self, name: &'static str, arguments: Value) -> Result<String, String> {
        let params = CallToolRequestParams::new(name);
        let params = params.with_arguments(arguments.as_object().cloned().unwrap_or_default());
        self.call(params).await.map_err(|error| error.to_string())
    }

    /// Calls a tool without waiting for its result.
    pub(crate) async fn start(
        &self,
        name: &'static str,
        arguments: Value,
    ) -> Result<RequestHandle<RoleClient>, String> {
        let params = CallToolRequestParams::new(name);
        let params = params.with_arguments(arguments.as_object().cloned().unwrap_or_default());
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let sent = self.service.peer().send_request_with_option(request, PeerRequestOptions::no_options());
        sent.await.map_err(|error| error.to_string())
    }

    /// Calls a tool that logs, and enables its logs.
    pub(crate) async fn text_with_logs(&self, name: &'static str) -> Result<String, String> {
        let mut params = CallToolRequestParams::new(name);
        if self.era == Era::Modern {
            let mut meta = RequestMetaObject::new();
            meta.set_log_level(LoggingLevel::Info);
            params.meta = Some(meta);
        }
        self.call(params).await.map_err(|error| error.to_string())
    }

    pub(crate) async fn call(&self, params: CallToolRequestParams) -> Result<String, ServiceError> {
        let result = self.service.call_tool(params).await?;
        let text = result.content.first().and_then(|block| block.as_text());
        Ok(text.map_or_else(|| "(no text)".to_owned(), |text| text.text.clone()))
    }
}
