//! The tools that every server here has, on rmcp's own transports: listens on `PORT`, or talks on its pipes (`stdio`).
#![forbid(unsafe_code)]
#![expect(deprecated, reason = "sampling and logging are deprecated from 2026-07-28 on and alive before")]

use std::error::Error;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CreateMessageRequestParams,
    ElicitRequestParams, ElicitationAction, ListToolsResult, LoggingLevel, LoggingMessageNotificationParam,
    PaginatedRequestParams, ProgressNotificationParam, SamplingMessage, ServerCapabilities, ServerConfig,
    SetLevelRequestParams, Tool, ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer, ServiceError};
use rmcp::transport::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::{ErrorData, ServerHandler, ServiceExt};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

type Context = RequestContext<RoleServer>;

/// A session has a value of its own, so what is kept here is kept per session.
#[derive(Debug, Default)]
struct Server {
    counter: AtomicU64,
}

impl ServerHandler for Server {
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
        Ok(ListToolsResult::with_all_items(tools()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let number = |name: &str| arguments[name].as_u64().unwrap_or_default();
        let text = |name: &str| arguments[name].as_str().unwrap_or_default().to_owned();
        let answer = match request.name.as_ref() {
            "slow" | "safe_slow" => {
                tokio::time::sleep(Duration::from_millis(number("ms"))).await;
                text("text")
            }
            "progress" => progress(number("steps"), number("ms"), &context).await,
            "ask" => ask(text("question"), &context).await.map_err(internal)?,
            "asks" => asks(number("n"), &context).await.map_err(internal)?,
            "counter" => (self.counter.fetch_add(1, Ordering::Relaxed) + 1).to_string(),
            "big" => "x".repeat(usize::try_from(number("bytes")).unwrap_or_default()),
            "log" => log(number("n"), &context).await,
            "crash" => std::process::exit(1),
            other => return Err(ErrorData::invalid_params(format!("there is no tool {other:?}"), None)),
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(answer)]).into())
    }
}

fn tools() -> Vec<Tool> {
    let tool = |name: &'static str, properties: Value| {
        let schema = json!({"type": "object", "properties": properties});
        Tool::new(name, name, Arc::new(schema.as_object().cloned().unwrap_or_default()))
    };
    let (int, string) = (json!({"type": "integer"}), json!({"type": "string"}));
    let mut safe_slow = tool("safe_slow", json!({"ms": int, "text": string}));
    safe_slow.annotations = Some(ToolAnnotations::new().read_only(true));
    vec![
        tool("slow", json!({"ms": int, "text": string})),
        safe_slow,
        tool("progress", json!({"steps": int, "ms": int})),
        tool("ask", json!({"question": string})),
        tool("asks", json!({"n": int})),
        tool("counter", json!({})),
        tool("big", json!({"bytes": int})),
        tool("log", json!({"n": int})),
        tool("crash", json!({})),
    ]
}

async fn progress(steps: u64, ms: u64, context: &Context) -> String {
    for step in 1..=steps {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        if let Some(token) = context.meta.get_progress_token() {
            let step = ProgressNotificationParam::new(token, step as f64).with_total(steps as f64);
            // Who cannot be reached now may come back for the answer.
            let _ = context.peer.notify_progress(step).await;
        }
    }
    "done".to_owned()
}

async fn ask(question: String, context: &Context) -> Result<String, ServiceError> {
    let form =
        json!({"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]});
    let form = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: question,
        requested_schema: serde_json::from_value(form).map_err(|_| ServiceError::UnexpectedResponse)?,
    };
    let reply = context.peer.create_elicitation(form).await?;
    Ok(match (reply.action, reply.content) {
        (ElicitationAction::Accept, Some(content)) => {
            content["answer"].as_str().unwrap_or_default().to_owned()
        }
        (action, _) => format!("{action:?}").to_lowercase(),
    })
}

async fn asks(n: u64, context: &Context) -> Result<String, ServiceError> {
    let mut asks = JoinSet::new();
    for i in 1..=n {
        let peer = context.peer.clone();
        let sample = CreateMessageRequestParams::new(vec![SamplingMessage::user_text(i.to_string())], 10);
        asks.spawn(async move { (i, peer.create_message(sample).await) });
    }
    let mut replies = asks.join_all().await;
    replies.sort_by_key(|(i, _)| *i);
    let texts = replies.into_iter().map(|(_, reply)| {
        let said = json!(reply?.message.content);
        let said = said.get(0).unwrap_or(&said);
        Ok(said["text"].as_str().unwrap_or_default().to_owned())
    });
    Ok(texts.collect::<Result<Vec<String>, ServiceError>>()?.join(","))
}

async fn log(n: u64, context: &Context) -> String {
    for i in 1..=n {
        let line = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(format!("line {i}")));
        // Who cannot be reached now may come back for the answer.
        let _ = context.peer.notify_logging_message(line).await;
    }
    "logged".to_owned()
}

fn internal(error: ServiceError) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).as_deref() == Some("stdio") {
        Server::default().serve(rmcp::transport::stdio()).await?.waiting().await?;
        return Ok(());
    }
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(|| Ok(Server::default()), sessions, Default::default());
    let listener = TcpListener::bind(("127.0.0.1", std::env::var("PORT")?.parse()?)).await?;
    writeln!(std::io::stdout(), "ready")?;
    Ok(axum::serve(listener, axum::Router::new().route_service("/mcp", service)).await?)
}
