//! The server's handler.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CustomRequest,
    ProgressNotificationParam, ServerCapabilities, ServerConfig, ServerRequest,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Counters by name. A test can wait for a value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks(Arc<Mutex<HashMap<String, watch::Sender<usize>>>>);

impl Marks {
    fn set(&self, name: &str) {
        self.mark(name).send_modify(|count| *count += 1);
    }

    pub(crate) fn count(&self, name: &str) -> usize {
        *self.mark(name).borrow()
    }

    pub(crate) async fn reached(&self, name: &str, count: usize) {
        let mut mark = self.mark(name).subscribe();
        let reached = mark.wait_for(|now| *now >= count);
        crate::support::within(name, reached).await.expect("the mark is kept");
    }

    fn mark(&self, name: &str) -> watch::Sender<usize> {
        let mut marks = self.0.lock().expect("no panic while locked");
        marks.entry(name.to_owned()).or_default().clone()
    }
}

#[derive(Debug)]
pub(crate) struct Handler {
    pub(crate) marks: Marks,
}

impl Handler {
    async fn tool(
        &self,
        name: &str,
        arguments: &Map<String, Value>,
        context: RequestContext<RoleServer>,
    ) -> Result<String, ErrorData> {
        let number = |key: &str| arguments.get(key).and_then(Value::as_u64).unwrap_or_default();
        self.marks.set(name);
        match name {
            "echo" => Ok(arguments.get("text").and_then(Value::as_str).unwrap_or_default().to_owned()),
            "progress" => {
                for step in 1..=number("n") {
                    progress(&context, step).await;
                }
                Ok(format!("{} steps", number("n")))
            }
            // Sends `n` server requests concurrently, and returns the answers in the order of the
            // requests.
            "fan" => {
                let mut server_requests = JoinSet::new();
                for n in 0..number("n") {
                    let peer = context.peer.clone();
                    let server_request = CustomRequest::new("test/ask", Some(json!({"n": n})));
                    server_requests.spawn(async move {
                        (n, peer.send_request(ServerRequest::CustomRequest(server_request)).await)
                    });
                }
                let mut answers = Vec::new();
                for (n, answer) in server_requests.join_all().await {
                    let answer =
                        answer.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
                    let answer = serde_json::to_value(answer).unwrap_or_default();
                    answers.push((n, answer["n"].as_u64()));
                }
                answers.sort_unstable();
                Ok(format!("{answers:?}"))
            }
            "until_cancelled" => {
                progress(&context, 1).await;
                context.ct.cancelled().await;
                self.marks.set("cancelled");
                Ok("cancelled".to_owned())
            }
            other => Err(ErrorData::invalid_params(format!("there is no tool {other:?}"), None)),
        }
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::default();
        info.capabilities = ServerCapabilities::builder().enable_tools().build();
        info
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let text = self.tool(&request.name, &arguments, context).await?;
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

async fn progress(context: &RequestContext<RoleServer>, step: u64) {
    let Some(token) = context.meta.get_progress_token() else { return };
    // The client may have stopped reading, which does not matter to the tool.
    let _ = context.peer.notify_progress(ProgressNotificationParam::new(token, step as f64)).await;
}
