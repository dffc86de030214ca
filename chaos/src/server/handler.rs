//! What the server does: everything it says carries the mark of the call that it is said for.

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
use super::tools::Tool;

type Context = RequestContext<RoleServer>;

const STEPS: u64 = 5;

/// There is one for each session.
#[derive(Debug)]
pub(super) struct Handler {
    /// The session's name.
    place: String,
    counter: AtomicU64,
    journal: Arc<Journal>,
}

impl Handler {
    pub(super) fn new(life: &str, journal: Arc<Journal>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let place = format!("{life}.{}", NEXT.fetch_add(1, Ordering::Relaxed));
        Self { place, counter: AtomicU64::new(0), journal }
    }

    fn note(&self, seen: Seen) -> Result<(), ErrorData> {
        self.journal.note(seen).map_err(internal)
    }

    /// What there is to say beside the mark.
    async fn answer(&self, tool: Tool, call: &str, ms: u64, context: &Context) -> Result<String, ErrorData> {
        let pause = Duration::from_millis(ms);
        match tool {
            Tool::Echo => {}
            Tool::Slow | Tool::Look => tokio::time::sleep(pause).await,
            Tool::Progress => {
                for step in 1..=STEPS {
                    tokio::time::sleep(pause / u32::try_from(STEPS).unwrap_or(1)).await;
                    progress(call, step, context).await;
                }
            }
            Tool::Ask => {
                tokio::time::sleep(pause / 4).await;
                let reply = ask(call, context).await?;
                self.note(Seen::Heard { call: call.to_owned(), reply: reply.clone() })?;
                return Ok(format!("reply={reply}"));
            }
            Tool::Counter => {
                return Ok(format!("counter={}", self.counter.fetch_add(1, Ordering::Relaxed) + 1));
            }
            Tool::Note => note(call, context).await,
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
        let tool = Tool::named(&request.name)
            .ok_or_else(|| ErrorData::invalid_params(format!("there is no tool {:?}", request.name), None))?;
        let call = arguments["call"].as_str().unwrap_or_default();
        let ms = arguments["ms"].as_u64().unwrap_or_default();
        let (tool_name, place) = (tool.name().to_owned(), self.place.clone());
        self.note(Seen::Executed { call: call.to_owned(), tool: tool_name, place })?;
        let said = self.answer(tool, call, ms, &context).await;
        self.note(Seen::Done { call: call.to_owned(), place: self.place.clone() })?;
        let text = format!("{} {} at={}", mark(call), said?, self.place);
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

async fn progress(call: &str, step: u64, context: &Context) {
    if let Some(token) = context.meta.get_progress_token() {
        let message = format!("{} step={step}", mark(call));
        let step = ProgressNotificationParam::new(token, step as f64).with_total(STEPS as f64);
        // Who cannot be reached now may come back for the answer.
        let _ = context.peer.notify_progress(step.with_message(message)).await;
    }
}

async fn note(call: &str, context: &Context) {
    let line = LoggingMessageNotificationParam::new(LoggingLevel::Warning, json!(mark(call)));
    if let Some(session) = context.extensions.get::<Session>() {
        // The session may have ended.
        let _ = session.notify(LoggingMessageNotification::new(line).into()).await;
    }
}

async fn ask(call: &str, context: &Context) -> Result<String, ErrorData> {
    let form =
        json!({"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]});
    let form = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: mark(call),
        requested_schema: serde_json::from_value(form).map_err(internal)?,
    };
    let reply = context.peer.create_elicitation(form).await.map_err(internal)?;
    let answer = reply.content.and_then(|content| Some(content["answer"].as_str()?.to_owned()));
    answer.ok_or_else(|| ErrorData::internal_error("the user says nothing", None))
}

fn internal(error: impl ToString) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}
