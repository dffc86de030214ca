//! The handler that tests serve. Its tools do one thing each; `steps` does several.
#![expect(deprecated, reason = "logging is deprecated from 2026-07-28 on and alive in every revision before")]

use std::sync::atomic::{AtomicU64, Ordering};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CustomNotification, LoggingLevel,
    LoggingMessageNotificationParam, ProgressNotificationParam, ResourceUpdatedNotification,
    ResourceUpdatedNotificationParam, ServerCapabilities, ServerConfig, ServerNotification, ServerRequest,
};
use rmcp::service::{NotificationContext, RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler};
use serde_json::{Map, Value};

use super::{Gates, questions, tasks};

/// One value of it serves one session.
#[derive(Debug)]
pub(crate) struct TestHandler {
    gates: Gates,
    calls: AtomicU64,
}

impl TestHandler {
    pub(crate) fn new(gates: Gates) -> Self {
        Self { gates, calls: AtomicU64::new(0) }
    }

    async fn tool(
        &self,
        name: &str,
        arguments: &Map<String, Value>,
        context: RequestContext<RoleServer>,
    ) -> Result<String, ErrorData> {
        let text = |key: &str| arguments.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let number = |key: &str| arguments.get(key).and_then(Value::as_u64).unwrap_or_default();
        match name {
            "echo" => Ok(text("text")),
            // Waits at the gate `name`, then says `text`.
            "gate" => {
                self.gates.pass(&text("name")).await;
                Ok(text("text"))
            }
            "progress" => {
                for step in 1..=number("n") {
                    progress(&context, step).await;
                }
                Ok(format!("{} steps", number("n")))
            }
            "log" => {
                for line in 1..=number("n") {
                    log(&context, line, number("bytes")).await;
                }
                self.gates.mark("logged");
                Ok(format!("{} lines", number("n")))
            }
            "big" => Ok("x".repeat(number("bytes") as usize)),
            "panic" => panic!("a handler that panics on purpose"),
            // Ignores its cancellation, too.
            "never" => {
                self.gates.mark("never");
                std::future::pending().await
            }
            "until_cancelled" => {
                self.gates.mark("waiting to be cancelled");
                context.ct.cancelled().await;
                self.gates.mark("cancelled");
                Ok("cancelled".to_owned())
            }
            // Counts in the session's state.
            "count" => {
                let count = session(&context)?.update("count", |count: &mut u64| {
                    *count += 1;
                    *count
                });
                count.await.map(|count| count.to_string()).map_err(failed)
            }
            // Counts in a field of the handler.
            "field_count" => Ok((self.calls.fetch_add(1, Ordering::SeqCst) + 1).to_string()),
            // Sends the client the request `method` with `params` and says what it answered.
            "ask" => {
                let request: ServerRequest = serde_json::from_value(Value::Object(arguments.clone()))
                    .map_err(|error| ErrorData::invalid_params(error.to_string(), None))?;
                let answer = context.peer.send_request(request).await.map_err(failed)?;
                serde_json::to_string(&answer).map_err(failed)
            }
            // Says on a standalone stream that the resource `uri` has changed; waits at the gate `name` before,
            // if there is one.
            "notify_later" => {
                if arguments.contains_key("name") {
                    self.gates.pass(&text("name")).await;
                }
                let changed =
                    ResourceUpdatedNotification::new(ResourceUpdatedNotificationParam::new(text("uri")));
                let changed = ServerNotification::ResourceUpdatedNotification(changed);
                session(&context)?.notify(changed).await.map_err(failed)?;
                Ok("told".to_owned())
            }
            "whoami" => {
                let session = session(&context)?;
                Ok(format!("{} of {:?}", session.id().short(), session.principal().as_str()))
            }
            "steps" => self.steps(arguments, &context).await,
            other => Err(ErrorData::invalid_params(format!("there is no tool {other:?}"), None)),
        }
    }

    /// `progress`, `log:BYTES`, `close` (its connection), `gate:NAME` and `mark:NAME`, one after the other; then it says `text`.
    async fn steps(
        &self,
        arguments: &Map<String, Value>,
        context: &RequestContext<RoleServer>,
    ) -> Result<String, ErrorData> {
        let steps = arguments.get("steps").and_then(Value::as_array).cloned().unwrap_or_default();
        for (i, step) in steps.iter().filter_map(Value::as_str).enumerate() {
            match step.split_once(':') {
                None if step == "progress" => progress(context, i as u64 + 1).await,
                None if step == "close" => close_connection(context)?,
                Some(("log", bytes)) => log(context, i as u64, bytes.parse().unwrap_or_default()).await,
                Some(("gate", name)) => self.gates.pass(name).await,
                Some(("mark", name)) => self.gates.mark(name),
                _ => return Err(ErrorData::invalid_params(format!("there is no step {step:?}"), None)),
            }
        }
        Ok(arguments.get("text").and_then(Value::as_str).unwrap_or("done").to_owned())
    }
}

impl ServerHandler for TestHandler {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::default();
        info.capabilities =
            ServerCapabilities::builder().enable_tools().enable_logging().enable_tasks().build();
        info
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if let Some(started) = tasks::start(&request, &context, &self.gates).await {
            return started;
        }
        if request.name == "questions" {
            return questions::run(&request, &context).await;
        }
        let arguments = request.arguments.unwrap_or_default();
        let text = self.tool(&request.name, &arguments, context).await?;
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }

    /// Each notification leaves a mark at the gate of its method.
    async fn on_custom_notification(
        &self,
        notification: CustomNotification,
        _context: NotificationContext<RoleServer>,
    ) {
        self.gates.mark(&notification.method);
    }
}

async fn progress(context: &RequestContext<RoleServer>, step: u64) {
    let Some(token) = context.meta.get_progress_token() else { return };
    // Nobody may be listening; the tool does not depend on it.
    let _ = context.peer.notify_progress(ProgressNotificationParam::new(token, step as f64)).await;
}

async fn log(context: &RequestContext<RoleServer>, line: u64, bytes: u64) {
    let text = format!("{line}:{}", "x".repeat(bytes as usize));
    let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, Value::String(text));
    let _ = context.peer.notify_logging_message(message).await;
}

fn close_connection(context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
    let call: Option<&steadfast::Call> = context.extensions.get();
    call.ok_or_else(|| ErrorData::internal_error("there is no call", None))?.close_connection();
    Ok(())
}

fn session(context: &RequestContext<RoleServer>) -> Result<&steadfast::Session, ErrorData> {
    context.extensions.get().ok_or_else(|| ErrorData::internal_error("there is no session", None))
}

fn failed(error: impl std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}
