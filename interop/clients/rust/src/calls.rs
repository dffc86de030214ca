//! Makes the calls that the driver asks for. `interop/README.md` describes the lines.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use rmcp::model::{CallToolRequestParams, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use serde_json::{Value, json};
use tokio::sync::mpsc;

type Client = RunningService<RoleClient, ()>;

pub(crate) async fn run(era: &str, url: &str) -> ExitCode {
    let lifecycle = match era {
        "legacy" => ClientLifecycleMode::Initialize,
        _ => ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] },
    };
    let transport = StreamableHttpClientTransport::from_uri(url);
    let client = match ().serve_with_lifecycle(transport, lifecycle).await {
        Ok(client) => Arc::new(client),
        Err(error) => {
            // If the standard error is closed, no other place is left for the message.
            let _ = writeln!(io::stderr(), "{error}");
            return ExitCode::FAILURE;
        }
    };
    say(&json!({"ready": true}));
    let mut requests = requests();
    while let Some(request) = requests.recv().await {
        tokio::spawn(make(Arc::clone(&client), request));
    }
    ExitCode::SUCCESS
}

async fn make(client: Arc<Client>, request: Value) {
    let key = &request["key"];
    let tool = request["tool"].as_str().unwrap_or_default().to_owned();
    let arguments = json!({"key": key}).as_object().cloned().unwrap_or_default();
    let result = client.call_tool(CallToolRequestParams::new(tool).with_arguments(arguments)).await;
    say(&match result {
        Ok(result) => {
            let text = result.content.first().and_then(|block| block.as_text());
            let text = text.map(|text| text.text.clone()).unwrap_or_default();
            let field = if result.is_error == Some(true) { "error" } else { "text" };
            json!({"key": key, field: text})
        }
        Err(error) => json!({"key": key, "error": error.to_string()}),
    });
}

/// Reads the lines of the standard input.
fn requests() -> mpsc::Receiver<Value> {
    let (request, requests) = mpsc::channel(100);
    thread::spawn(move || {
        let lines = io::stdin().lines().map_while(Result::ok);
        lines
            .filter_map(|line| serde_json::from_str(&line).ok())
            .all(|line| request.blocking_send(line).is_ok())
    });
    requests
}

fn say(line: &Value) {
    // Fails if the driver has closed the pipe after a timeout.
    let _ = writeln!(io::stdout(), "{line}");
}
