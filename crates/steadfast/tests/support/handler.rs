//! The handler that tests serve. Its tools do one thing each; `steps` does several.
#![expect(deprecated, reason = "logging is deprecated from 2026-07-28 on and alive in every revision before")]

use std::sync::atomic::{AtomicU64, Ordering};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientResult, ContentBlock, CustomNotification,
    InitializeRequestParams, InitializeResult, ListToolsResult, LoggingLevel,
    LoggingMessageNotificationParam, PaginatedRequestParams, ProgressNotificationParam,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ResourceContents,
    ResourceUpdatedNotification, ResourceUpdatedNotificationParam, ServerCapabilities, ServerConfig,
    ServerNotification, ServerRequest, SubscriptionFilter, Tool, ToolAnnotations,
};
use rmcp::service::{
    NotificationContext, PeerRequestOptions, RequestContext, RequestHandle, RoleServer, ServiceError,
    SubscriptionContext,
};
use rmcp::{ErrorData, ServerHandler};
use serde_json::{Map, Value, json};

use super::input::{Round, next_round};
use super::{Gates, questions, tasks};

const LEVELS: [LoggingLevel; 8] = [
    LoggingLevel::Debug,
    LoggingLevel::Info,
    LoggingLevel::Notice,
    LoggingLevel::Warning,
    LoggingLevel::Error,
    LoggingLevel::Critical,
    LoggingLevel::Alert,
    LoggingLevel::Emergency,
];

/// One value of it serves one session.
#[derive(Debug)]
pub(crate) struct TestHandler {
    gates: Gates,
    calls: AtomicU64,
    _end: MarkOnDrop,
}

impl TestHandler {
    pub(crate) fn new(gates: Gates) -> Self {
        let _end = MarkOnDrop(gates.clone(), "a handler is gone");
        Self { gates, calls: AtomicU64::new(0), _end }
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
            "echo" | "mirrored" | "écho ☎" => Ok(text("text")),
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
                let _dropped = MarkOnDrop(self.gates.clone(), "never dropped");
                self.gates.mark("never");
                std::future::pending().await
            }
            "until_cancelled" => {
                self.gates.mark("waiting to be cancelled");
                context.ct.cancelled().await;
                self.gates.mark("cancelled");
                Ok("cancelled".to_owned())
            }
            // One log message of each level.
            "levels" => {
                for level in LEVELS {
                    let text = serde_json::to_value(level).map_err(failed)?;
                    let message = LoggingMessageNotificationParam::new(level, text);
                    context.peer.notify_logging_message(message).await.map_err(failed)?;
                }
                Ok("all levels".to_owned())
            }
            "strange_progress" => {
                let token = rmcp::model::ProgressToken(rmcp::model::NumberOrString::Number(4711));
                let _ = context.peer.notify_progress(ProgressNotificationParam::new(token, 1.0)).await;
                Ok("said".to_owned())
            }
            // Says that `what` has changed: the tools, the prompts, the resources, or the resource
            // of that URI.
            "announce" => {
                match text("what").as_str() {
                    "tools" => context.peer.notify_tool_list_changed().await,
                    "prompts" => context.peer.notify_prompt_list_changed().await,
                    "resources" => context.peer.notify_resource_list_changed().await,
                    uri => {
                        let changed = ResourceUpdatedNotificationParam::new(uri);
                        context.peer.notify_resource_updated(changed).await
                    }
                }
                .map_err(failed)?;
                Ok("announced".to_owned())
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
            // Asks `n` times at once and says what was answered, in the order of asking.
            "ask_many" => {
                let said = ask_many(&context, number("n")).await;
                self.gates.mark("asked many");
                said
            }
            // Asks and sends progress, `n` times in turn, and does not wait in between.
            "ask_and_tell" => {
                let mut asked = Vec::new();
                for step in 1..=number("n") {
                    asked.push(sent(&context, &step.to_string()).await?);
                    progress(&context, step).await;
                }
                let mut done = Ok("done".to_owned());
                for ask in asked {
                    done = ask.await_response().await.map_err(failed).and(done);
                }
                done
            }
            // Asks, gives up at the gate `name`, and goes on to the gate `then`.
            "give_up" => {
                let ask = sent(&context, "Which?").await?;
                self.gates.pass(&text("name")).await;
                ask.cancel(Some("not interested".to_owned())).await.map_err(failed)?;
                self.gates.pass(&text("then")).await;
                Ok("without an answer".to_owned())
            }
            // Asks and does not wait for the answer.
            "ask_and_go" => {
                let ask = sent(&context, "Which?").await?;
                self.gates.pass(&text("name")).await;
                drop(ask);
                Ok("gone".to_owned())
            }
            // Says on a standalone stream that the resource `uri` has changed; waits at the gate
            // `name` before, if there is one.
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
            // The second is annotated as one that only looks.
            "steps" | "look" => self.steps(arguments, &context).await,
            other => Err(ErrorData::invalid_params(format!("there is no tool {other:?}"), None)),
        }
    }

    /// `progress`, `close` (its connection), `panic`, `until_cancelled`, `log:BYTES`, `gate:NAME`,
    /// `mark:NAME`, `sleep:MILLISECONDS` and `fail:CODE`, one after the other; then it says `text`.
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
                None if step == "panic" => panic!("a handler that panics on purpose"),
                None if step == "until_cancelled" => {
                    self.gates.mark("waiting to be cancelled");
                    context.ct.cancelled().await;
                    self.gates.mark("cancelled");
                }
                Some(("log", bytes)) => log(context, i as u64, bytes.parse().unwrap_or_default()).await,
                Some(("gate", name)) => self.gates.pass(name).await,
                Some(("mark", name)) => self.gates.mark(name),
                Some(("sleep", time)) => {
                    tokio::time::sleep(std::time::Duration::from_millis(time.parse().unwrap_or_default()))
                        .await;
                }
                Some(("fail", code)) => {
                    let code = rmcp::model::ErrorCode(code.parse().unwrap_or_default());
                    return Err(ErrorData::new(code, "it failed", None));
                }
                _ => return Err(ErrorData::invalid_params(format!("there is no step {step:?}"), None)),
            }
        }
        Ok(arguments.get("text").and_then(Value::as_str).unwrap_or("done").to_owned())
    }
}

impl ServerHandler for TestHandler {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::default();
        // Not prompts and not completions: those methods are unknown in stateless revisions.
        info.capabilities = ServerCapabilities::builder()
            .enable_logging()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_resources()
            .enable_resources_list_changed()
            .enable_resources_subscribe()
            .enable_tasks()
            .build();
        // A test that has marked this gate wants them all the same.
        if self.gates.count("prompts") > 0 {
            info.capabilities.prompts = Some(Default::default());
        }
        info
    }

    /// One tool has parameters that clients of 2026-07-28 repeat in headers.
    fn get_tool(&self, name: &str) -> Option<Tool> {
        let schema = match name {
            "mirrored" => json!({"type": "object", "properties": {
                "region": {"type": "string", "x-mcp-header": "Region"},
                "count": {"type": "integer", "x-mcp-header": "Count"},
                "deep": {"type": "object", "properties": {
                    "flag": {"type": "boolean", "x-mcp-header": "Flag"},
                }},
            }}),
            "echo" | "look" => json!({"type": "object"}),
            _ => return None,
        };
        let schema = schema.as_object().cloned().unwrap_or_default();
        let mut tool = Tool::new(name.to_owned(), "made for tests", schema);
        tool.annotations = (name == "look").then(|| ToolAnnotations::new().read_only(true));
        Some(tool)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = ["echo", "mirrored"].into_iter().filter_map(|name| self.get_tool(name));
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        if request.uri == "test:none" {
            return Err(ErrorData::resource_not_found("there is none", None));
        }
        if request.uri != "test:input" {
            let contents = ResourceContents::text(format!("the text of {}", request.uri), &request.uri);
            return Ok(ReadResourceResult::new(vec![contents]).into());
        }
        let (state, responses) = (request.request_state, request.input_responses);
        Ok(match next_round(&Map::new(), state.as_deref(), responses.as_ref())? {
            Round::Done(text) => {
                ReadResourceResult::new(vec![ResourceContents::text(text, &request.uri)]).into()
            }
            Round::Ask(required) => required.into(),
        })
    }

    /// A test that has marked this gate wants a handler that looks after subscriptions itself.
    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        (self.gates.count("own subscriptions") > 0).then(|| requested.clone())
    }

    /// Announces through the sink that the tools changed, and then sends messages that no client
    /// may receive.
    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.gates.mark("own listen");
        // The subscriber may have gone already.
        let _ = context.sink().notify_tool_list_changed().await;
        let peer = &context.request_context().peer;
        let _ = peer.notify_prompt_list_changed().await;
        let changed = ResourceUpdatedNotificationParam::new("test:not asked for");
        let _ = peer.notify_resource_updated(changed).await;
        let custom = CustomNotification::new("notifications/made/up", None);
        let _ = peer.send_notification(ServerNotification::CustomNotification(custom)).await;
        if let Some(token) = context.request_context().meta.get_progress_token() {
            let _ = peer.notify_progress(ProgressNotificationParam::new(token, 1.0)).await;
        }
        context.cancelled().await;
        self.gates.mark("own listen ended");
        Ok(())
    }

    /// A test that has marked `slow initialize` lets it wait at the gate `initialize`.
    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        if self.gates.count("slow initialize") > 0 {
            self.gates.pass("initialize").await;
        }
        context.peer.set_peer_info(request.clone());
        self.negotiate_initialize(&request)
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
        if matches!(&*request.name, "input" | "other input") {
            let (state, responses) = (request.request_state, request.input_responses);
            return Ok(match next_round(&arguments, state.as_deref(), responses.as_ref())? {
                Round::Done(text) => CallToolResult::success(vec![ContentBlock::text(text)]).into(),
                Round::Ask(required) => required.into(),
            });
        }
        let text = self.tool(&request.name, &arguments, context).await?;
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }

    /// Each notification leaves a mark at the gate of its method.
    async fn on_custom_notification(
        &self,
        notification: CustomNotification,
        context: NotificationContext<RoleServer>,
    ) {
        self.gates.mark(&notification.method);
        match notification.method.as_str() {
            // Waits at the gate `pass`.
            "notifications/slow" => self.gates.pass("pass").await,
            // Asks the client, which belongs to no call.
            "notifications/ask" => {
                let said = match context.peer.send_request(question("Which?")).await {
                    Ok(_) => "answered".to_owned(),
                    // Without the data, which a gateway adds.
                    Err(ServiceError::McpError(error)) => {
                        format!("Mcp error: {}: {}", error.code.0, error.message)
                    }
                    Err(error) => error.to_string(),
                };
                self.gates.mark(&said);
            }
            _ => {}
        }
    }
}

/// Leaves a mark when its holder drops it.
#[derive(Debug)]
struct MarkOnDrop(Gates, &'static str);

impl Drop for MarkOnDrop {
    fn drop(&mut self) {
        self.0.mark(self.1);
    }
}

/// A question to the client's user.
fn question(message: &str) -> ServerRequest {
    let schema = serde_json::json!({"type": "object", "properties": {}});
    let params = serde_json::json!({"mode": "form", "message": message, "requestedSchema": schema});
    serde_json::from_value(serde_json::json!({"method": "elicitation/create", "params": params}))
        .expect("a request")
}

/// Sends a question and leaves the answer to be waited for.
async fn sent(
    context: &RequestContext<RoleServer>,
    message: &str,
) -> Result<RequestHandle<RoleServer>, ErrorData> {
    let options = PeerRequestOptions::no_options();
    context.peer.send_cancellable_request(question(message), options).await.map_err(failed)
}

async fn ask_many(context: &RequestContext<RoleServer>, n: u64) -> Result<String, ErrorData> {
    let mut asked = Vec::new();
    for no in 0..n {
        asked.push(sent(context, &no.to_string()).await?);
    }
    let mut said = Vec::new();
    for ask in asked {
        said.push(match ask.await_response().await {
            Ok(ClientResult::ElicitResult(result)) => result.content.unwrap_or_default(),
            Ok(other) => return Err(failed(format!("{other:?}"))),
            Err(error) => Value::String(error.to_string()),
        });
    }
    serde_json::to_string(&said).map_err(failed)
}

async fn progress(context: &RequestContext<RoleServer>, step: u64) {
    let Some(token) = context.meta.get_progress_token() else { return };
    // The client may not be listening. The tool does not depend on it.
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
