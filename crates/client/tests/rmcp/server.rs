//! rmcp's server on its own port.

use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CustomRequest, ElicitRequest,
    ElicitRequestParams, InputRequest, InputRequests, InputRequiredResult, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, ServerRequest, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::{ErrorData, ServerHandler};
use serde_json::{Value, json};
use steadfast_client::Uri;
use steadfast_http::listen;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// A state that changes if the client re-encodes it.
const STATE: &str = "st.ate/+= \"quotes\"\n\ttab ü";

/// How many reports fit into the channel.
pub(crate) const NEWS: usize = 8;

#[derive(Clone)]
pub(crate) struct Handler {
    /// Receives reports about calls that wait for cancellation.
    news: mpsc::Sender<&'static str>,
}

/// Serves until the test ends.
pub(crate) async fn start() -> (Uri, mpsc::Receiver<&'static str>) {
    let (news, heard) = mpsc::channel(NEWS);
    let handler = Handler { news };
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(handler.clone()), sessions, Default::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("an address")).parse();
    tokio::spawn(async move {
        let never = std::future::pending();
        listen::serve(listener, service, listen::Limits::default(), never).await.expect("the accept loop");
    });
    (url.expect("an address"), heard)
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools().into_iter().find(|tool| tool.name == name)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.clone().unwrap_or_default());
        let text = match request.name.as_ref() {
            "deploy" => arguments["region"].to_string(),
            "form" => match (&request.input_responses, request.request_state.as_deref()) {
                (Some(answers), Some(STATE)) => json!(answers).to_string(),
                _ => return Ok(form().into()),
            },
            "fan" => fan(arguments["n"].as_u64().unwrap_or_default(), context).await?,
            "until_cancelled" => {
                // A test that does not read the reports has dropped the receiver.
                let _ = self.news.send("begun").await;
                context.ct.cancelled().await;
                let _ = self.news.send("cancelled").await;
                String::new()
            }
            "until_heard" => {
                // One more than the channel holds.
                for news in ["begun"].into_iter().chain([""; NEWS]).chain(["done"]) {
                    let _ = self.news.send(news).await;
                }
                String::new()
            }
            // Sends notifications that belong to no call. The tool is not listed, so that tests
            // that call all tools do not trigger it.
            "announce" => {
                let _ = context.peer.notify_prompt_list_changed().await;
                String::new()
            }
            other => return Err(ErrorData::invalid_params(format!("there is no tool {other:?}"), None)),
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

fn tools() -> Vec<Tool> {
    let tool = |name: &'static str, properties: Value| {
        let schema = json!({"type": "object", "properties": properties});
        Tool::new(name, "a tool", Arc::new(schema.as_object().cloned().unwrap_or_default()))
    };
    vec![
        tool("deploy", json!({"region": {"type": "string", "x-mcp-header": "Region"}})),
        tool("broken", json!({"region": {"type": "number", "x-mcp-header": "Region"}})),
        tool("form", json!({})),
        tool("fan", json!({})),
        tool("until_cancelled", json!({})),
        tool("until_heard", json!({})),
    ]
}

/// A result with two input requests.
fn form() -> InputRequiredResult {
    let question = |message: &str| {
        InputRequest::Elicitation(ElicitRequest::new(ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: message.to_owned(),
            requested_schema: serde_json::from_value(json!({"type": "object", "properties": {}}))
                .expect("a schema"),
        }))
    };
    let mut requests = InputRequests::new();
    requests.insert("one".to_owned(), question("One?"));
    requests.insert("two".to_owned(), question("Two?"));
    InputRequiredResult::new(Some(requests), Some(STATE.to_owned()))
}

async fn fan(count: u64, context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
    let mut server_requests = JoinSet::new();
    for n in 0..count {
        let (peer, server_request) =
            (context.peer.clone(), CustomRequest::new("test/ask", Some(json!({"n": n}))));
        server_requests
            .spawn(async move { peer.send_request(ServerRequest::CustomRequest(server_request)).await });
    }
    let answers = server_requests.join_all().await;
    let failed = answers.iter().find_map(|answer| answer.as_ref().err());
    match failed {
        Some(error) => Err(ErrorData::internal_error(error.to_string(), None)),
        None => Ok(answers.len().to_string()),
    }
}
