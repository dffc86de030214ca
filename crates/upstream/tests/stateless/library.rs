//! In front of the library of this very product.

use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult,
    PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler};
use steadfast::Server;
use steadfast_client::{Answer, CallEvent, CallOptions};
use steadfast_http::listen;
use tokio::sync::watch;

use super::front::Front;
use crate::support::{Value, json, value, within};

#[derive(Clone, Debug)]
struct Handler {
    cancelled: watch::Sender<bool>,
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::default();
        info.capabilities = ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        info
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema = json!({"type": "object"}).as_object().cloned().unwrap_or_default();
        Ok(ListToolsResult::with_all_items(vec![Tool::new("echo", "says it", schema)]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if let Some(token) = context.meta.get_progress_token() {
            let _ = context.peer.notify_progress(ProgressNotificationParam::new(token, 0.5)).await;
        }
        if request.name == "wait" {
            context.ct.cancelled().await;
            self.cancelled.send_replace(true);
        }
        let text = serde_json::to_string(&request.arguments).unwrap_or_default();
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

/// The library, the endpoint in front of it, and whether a call was cancelled.
async fn start() -> (Server, Front, watch::Receiver<bool>) {
    let (cancelled, seen) = watch::channel(false);
    let handler = Handler { cancelled };
    let server = Server::builder(move || handler.clone()).resume_grace(Duration::ZERO).start().await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = server.service();
    tokio::spawn(listen::serve(listener, service, listen::Limits::default(), std::future::pending()));
    let front = Front::of(format!("http://{address}/mcp").parse().unwrap()).await;
    (server, front, seen)
}

#[tokio::test]
async fn a_call_with_progress() {
    let (_server, front, _) = start().await;
    let client = front.client(()).await;
    let listed = within("tools", client.call("tools/list", None).unwrap().answer()).await;
    assert_eq!(value(listed)["tools"][0]["name"], "echo");
    let options = CallOptions { progress: true, ..CallOptions::default() };
    let params = json!({"name": "echo", "arguments": {"text": "é"}}).to_string();
    let mut call = client.call_with("tools/call", Some(&params), options).unwrap();
    let CallEvent::Notification(note) = within("progress", call.next()).await else { panic!("no progress") };
    let progress: Value = serde_json::from_slice(&note.params.unwrap()).unwrap();
    assert_eq!(progress["progressToken"].to_string(), call.id().to_string());
    let CallEvent::Done(answer) = within("the answer", call.next()).await else { panic!("no answer") };
    assert_eq!(value(answer)["content"][0]["text"], r#"{"text":"é"}"#);
}

#[tokio::test]
async fn a_client_that_goes_cancels_the_handler() {
    let (_server, front, mut cancelled) = start().await;
    let client = front.client(()).await;
    let options = CallOptions { progress: true, ..CallOptions::default() };
    let params = json!({"name": "wait", "arguments": {}}).to_string();
    let mut call = client.call_with("tools/call", Some(&params), options).unwrap();
    assert!(matches!(within("progress", call.next()).await, CallEvent::Notification(_)));
    drop(call);
    within("the cancellation", cancelled.wait_for(|done| *done)).await.unwrap();
}

#[tokio::test]
async fn a_subscription_hears_of_changes_until_the_server_goes() {
    let (server, front, _) = start().await;
    let client = front.client(()).await;
    let params = json!({"notifications": {"toolsListChanged": true}}).to_string();
    let mut call = client.call("subscriptions/listen", Some(&params)).unwrap();
    let id = call.id().to_string();
    let mut hear = async |method: &str| {
        let CallEvent::Notification(note) = within(method, call.next()).await else { panic!("no {method}") };
        assert_eq!(note.method, method);
        let params: Value = serde_json::from_slice(&note.params.unwrap()).unwrap();
        assert_eq!(params["_meta"]["io.modelcontextprotocol/subscriptionId"].to_string(), id);
    };
    hear("notifications/subscriptions/acknowledged").await;
    server.tools_changed();
    hear("notifications/tools/list_changed").await;
    server.tools_changed();
    hear("notifications/tools/list_changed").await;
    server.drain(Duration::from_secs(1)).await;
    let CallEvent::Done(Ok(Answer::Result(result))) = within("the end", call.next()).await else {
        panic!("no end")
    };
    let result: Value = serde_json::from_slice(&result).unwrap();
    assert_eq!(result["_meta"]["io.modelcontextprotocol/subscriptionId"].to_string(), id);
}

#[tokio::test]
async fn a_refusal_keeps_its_status() {
    let (_server, front, _) = start().await;
    let (status, _, body) = front.post("prompts/list", json!({})).await;
    assert!(status == 404 && body.contains("-32601"), "{status} {body}");
}
