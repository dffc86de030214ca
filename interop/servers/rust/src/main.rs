//! A server on rmcp and its transports with the tools of `interop/README.md`. It listens on `PORT`,
//! or with the argument `stdio` uses its standard input and output. With the path of a folder as
//! argument it has the tools `hold` and `safe_hold` as well, which record their executions there.
#![forbid(unsafe_code)]
#![expect(deprecated, reason = "sampling and logging are deprecated from 2026-07-28 on and exist before")]

use std::error::Error;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
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

/// The file in the folder of executions that ends every `hold`.
const RELEASE: &str = "release";
const RELEASE_POLL: Duration = Duration::from_millis(10);
/// A `hold` that is never released must not stay forever.
const HOLD_LIMIT: Duration = Duration::from_secs(120);

/// Each session has its own value, so this state belongs to one session.
#[derive(Debug, Default)]
struct Server {
    counter: AtomicU64,
    /// The folder in which `hold` records its executions.
    executions: Option<PathBuf>,
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
        Ok(ListToolsResult::with_all_items(tools(self.executions.is_some())))
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
            "elicit" => elicit(text("question"), &context).await.map_err(internal)?,
            "samples" => samples(number("n"), &context).await.map_err(internal)?,
            "counter" => (self.counter.fetch_add(1, Ordering::Relaxed) + 1).to_string(),
            "big" => "x".repeat(usize::try_from(number("bytes")).unwrap_or_default()),
            "log" => log(number("n"), &context).await,
            "crash" => std::process::exit(1),
            "hold" | "safe_hold" => self.hold(&text("key")).await.map_err(internal)?,
            other => return Err(ErrorData::invalid_params(format!("there is no tool {other:?}"), None)),
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(answer)]).into())
    }
}

impl Server {
    /// Records one more execution of `key`, and returns it when the driver has written the file
    /// [`RELEASE`].
    async fn hold(&self, key: &str) -> io::Result<String> {
        let folder = self.executions.as_deref().ok_or(io::ErrorKind::NotFound)?;
        // One write, so that executions at the same time do not overwrite each other.
        File::options().create(true).append(true).open(folder.join(key))?.write_all(b"x")?;
        let released = async {
            while !folder.join(RELEASE).exists() {
                tokio::time::sleep(RELEASE_POLL).await;
            }
        };
        tokio::time::timeout(HOLD_LIMIT, released).await?;
        Ok(key.to_owned())
    }
}

fn tools(with_hold: bool) -> Vec<Tool> {
    let tool = |name: &'static str, properties: Value| {
        let schema = json!({"type": "object", "properties": properties});
        Tool::new(name, name, Arc::new(schema.as_object().cloned().unwrap_or_default()))
    };
    let (int, string) = (json!({"type": "integer"}), json!({"type": "string"}));
    let mut safe_slow = tool("safe_slow", json!({"ms": int, "text": string}));
    safe_slow.annotations = Some(ToolAnnotations::new().read_only(true));
    let mut safe_hold = tool("safe_hold", json!({"key": string}));
    safe_hold.annotations = Some(ToolAnnotations::new().read_only(true));
    let hold = [tool("hold", json!({"key": string})), safe_hold];
    let mut tools = vec![
        tool("slow", json!({"ms": int, "text": string})),
        safe_slow,
        tool("progress", json!({"steps": int, "ms": int})),
        tool("elicit", json!({"question": string})),
        tool("samples", json!({"n": int})),
        tool("counter", json!({})),
        tool("big", json!({"bytes": int})),
        tool("log", json!({"n": int})),
        tool("crash", json!({})),
    ];
    tools.extend(hold.into_iter().filter(|_| with_hold));
    tools
}

async fn progress(steps: u64, ms: u64, context: &Context) -> String {
    for step in 1..=steps {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        if let Some(token) = context.meta.get_progress_token() {
            let step = ProgressNotificationParam::new(token, step as f64).with_total(steps as f64);
            // A client that is not connected now may resume for the response.
            let _ = context.peer.notify_progress(step).await;
        }
    }
    "done".to_owned()
}

async fn elicit(question: String, context: &Context) -> Result<String, ServiceError> {
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

async fn samples(n: u64, context: &Context) -> Result<String, ServiceError> {
    let mut requests = JoinSet::new();
    for i in 1..=n {
        let peer = context.peer.clone();
        let sample = CreateMessageRequestParams::new(vec![SamplingMessage::user_text(i.to_string())], 10);
        requests.spawn(async move { (i, peer.create_message(sample).await) });
    }
    let mut replies = requests.join_all().await;
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
        // A client that is not connected now may resume for the response.
        let _ = context.peer.notify_logging_message(line).await;
    }
    "logged".to_owned()
}

fn internal(error: impl Error) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let argument = std::env::args().nth(1);
    if argument.as_deref() == Some("stdio") {
        Server::default().serve(rmcp::transport::stdio()).await?.waiting().await?;
        return Ok(());
    }
    let sessions = Arc::new(LocalSessionManager::default());
    let executions = argument.map(PathBuf::from);
    let server = move || Ok(Server { executions: executions.clone(), ..Server::default() });
    let service = StreamableHttpService::new(server, sessions, Default::default());
    let listener = TcpListener::bind(("127.0.0.1", std::env::var("PORT")?.parse()?)).await?;
    writeln!(io::stdout(), "ready")?;
    Ok(axum::serve(listener, axum::Router::new().route_service("/mcp", service)).await?)
}
