//! The tools of the server. Every message that the server sends carries the mark of its call, so
//! that checkers can tell which call it belongs to.

#![expect(deprecated, reason = "logging is deprecated from 2026-07-28 on and alive before")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ElicitRequestParams,
    ListToolsResult, LoggingLevel, LoggingMessageNotification, LoggingMessageNotificationParam,
    PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities, ServerConfig,
    SetLevelRequestParams,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler};
use serde_json::{Value, json};
use steadfast::Session;
use steadfast_verify::{Seen, mark};

use super::journal::Journal;
use super::tool_names::Tool;

type Context = RequestContext<RoleServer>;

const STEPS: u64 = 5;

/// The state of one session at the server.
#[derive(Debug)]
pub(super) struct Handler {
    /// Unique among all sessions of all servers of a run.
    session_name: String,
    counter: AtomicU64,
    journal: Arc<Journal>,
}

impl Handler {
    pub(super) fn new(process_name: &str, journal: Arc<Journal>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let session_name = format!("{process_name}.{}", NEXT.fetch_add(1, Ordering::Relaxed));
        Self { session_name, counter: AtomicU64::new(0), journal }
    }

    fn record(&self, seen: Seen) -> Result<(), ErrorData> {
        self.journal.record(seen).map_err(internal)
    }

    /// Runs a tool. Returns the text that follows the mark in the result.
    async fn run_tool(
        &self,
        tool: Tool,
        call: &str,
        ms: u64,
        context: &Context,
    ) -> Result<String, ErrorData> {
        let pause = Duration::from_millis(ms);
        match tool {
            Tool::Echo => {}
            Tool::Slow | Tool::ReadOnly => tokio::time::sleep(pause).await,
            Tool::Progress => {
                for step in 1..=STEPS {
                    tokio::time::sleep(pause / u32::try_from(STEPS).unwrap_or(1)).await;
                    progress(call, step, context).await;
                }
            }
            Tool::Elicit => {
                tokio::time::sleep(pause / 4).await;
                let reply = elicit(call, context).await?;
                self.record(Seen::Heard { call: call.to_owned(), reply: reply.clone() })?;
                return Ok(format!("reply={reply}"));
            }
            Tool::Counter => {
                return Ok(format!("counter={}", self.counter.fetch_add(1, Ordering::Relaxed) + 1));
            }
            Tool::Notify => notify(call, context).await,
        }
        Ok("done".to_owned())
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_logging().build())
    }

    async fn set_level(&self, _level: SetLevelRequestParams, _context: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(Tool::ALL.map(Tool::listed).to_vec()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let tool = Tool::from_name(&request.name)
            .ok_or_else(|| ErrorData::invalid_params(format!("there is no tool {:?}", request.name), None))?;
        let call = arguments["call"].as_str().unwrap_or_default();
        let ms = arguments["ms"].as_u64().unwrap_or_default();
        let (tool_name, place) = (tool.name().to_owned(), self.session_name.clone());
        self.record(Seen::Executed { call: call.to_owned(), tool: tool_name, place })?;
        let result = self.run_tool(tool, call, ms, &context).await;
        self.record(Seen::Done { call: call.to_owned(), place: self.session_name.clone() })?;
        let text = format!("{} {} at={}", mark(call), result?, self.session_name);
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

async fn progress(call: &str, step: u64, context: &Context) {
    if let Some(token) = context.meta.get_progress_token() {
        let message = format!("{} step={step}", mark(call));
        let step = ProgressNotificationParam::new(token, step as f64).with_total(STEPS as f64);
        // A client that is disconnected now may come back for the answer.
        let _ = context.peer.notify_progress(step.with_message(message)).await;
    }
}

async fn notify(call: &str, context: &Context) {
    let line = LoggingMessageNotificationParam::new(LoggingLevel::Warning, json!(mark(call)));
    if let Some(session) = context.extensions.get::<Session>() {
        // The session may have ended.
        let _ = session.notify(LoggingMessageNotification::new(line).into()).await;
    }
}

async fn elicit(call: &str, context: &Context) -> Result<String, ErrorData> {
    let form =
        json!({"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]});
    let form = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: mark(call),
        requested_schema: serde_json::from_value(form).map_err(internal)?,
    };
    let reply = context.peer.create_elicitation(form).await.map_err(internal)?;
    let answer = reply.content.and_then(|content| Some(content["answer"].as_str()?.to_owned()));
    answer.ok_or_else(|| ErrorData::internal_error("the answer has no text", None))
}

fn internal(error: impl ToString) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}
