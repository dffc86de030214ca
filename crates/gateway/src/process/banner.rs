//! The text on stdout after the start: URLs, and how to point clients at them.

use std::fmt;
use std::io::{self, Write as _};

use steadfast::StoreUrl;
use steadfast_upstream::Server;
use tokio::net::TcpListener;

use crate::config::{BackendPlan, EndpointPlan, Plan};

pub(crate) fn print(plan: &Plan, listeners: &[TcpListener], admin: Option<&TcpListener>, store: &StoreUrl) {
    let scheme = if plan.tls.is_some() { "https" } else { "http" };
    let addresses: Vec<_> = listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();
    let mut text = String::from("steadfast\n");
    for endpoint in &plan.endpoints {
        for address in &addresses {
            let url = format!("{scheme}://{address}{}", endpoint.path);
            tracing::info!(%url, server = %ServerName(endpoint), id = %endpoint.identity.name(), %store, "serving");
            text += &format!("  URL    {url}\n");
        }
        text += &format!("         in front of {}\n", ServerName(endpoint));
        text += &format!("         id {}\n", endpoint.identity.name());
    }
    text += &format!("  store  {store}\n");
    if let Some(address) = admin.and_then(|admin| admin.local_addr().ok()) {
        text += &format!("  admin  http://{address}/metrics, /healthz, /readyz\n");
    }
    if let (Some(endpoint), Some(address)) = (plan.endpoints.first(), addresses.first()) {
        text += &client_examples(&format!("{scheme}://{address}{}", endpoint.path), server_name(endpoint));
    }
    if plan.endpoints.iter().any(|endpoint| matches!(endpoint.backend, BackendPlan::Demo)) {
        text += "\nTools: countdown, chatter, notebook, fortune, council.\n\
                 Break the connection during a countdown: a client with a session (2025-11-25 or older) resumes\n\
                 and misses nothing. For a client of 2026-07-28 a broken connection cancels the call.\n";
    }
    text += "Ctrl-C shuts down gracefully; a second Ctrl-C exits immediately.\n";
    // The gateway serves even if stdout is closed.
    let _ = io::stdout().lock().write_all(text.as_bytes());
    let _ = io::stdout().flush();
}

fn server_name(endpoint: &EndpointPlan) -> &'static str {
    match endpoint.backend {
        BackendPlan::Demo => "steadfast-demo",
        BackendPlan::Upstream(_) => "steadfast",
    }
}

fn client_examples(url: &str, name: &str) -> String {
    format!(
        r#"
Try it:
  curl -si {url} -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' -d '{INITIALIZE}'

Point a client at it:
  Claude Code   claude mcp add --transport http {name} {url}
  VS Code       {{"servers": {{"{name}": {{"type": "http", "url": "{url}"}}}}}}   (.vscode/mcp.json)
  Cursor        {{"mcpServers": {{"{name}": {{"url": "{url}"}}}}}}   (.cursor/mcp.json)
"#
    )
}

/// Describes the server behind an endpoint. Leaves out the arguments of a program, which may be
/// secret.
struct ServerName<'a>(&'a EndpointPlan);

impl fmt::Display for ServerName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = match &self.0.backend {
            BackendPlan::Demo => return f.write_str("the demo server"),
            BackendPlan::Upstream(config) => &config.server,
        };
        match server {
            Server::Http { replicas, .. } => {
                for (index, replica) in replicas.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(f, "{comma}{replica}")?;
                }
                Ok(())
            }
            Server::Stdio(stdio) => write!(f, "the program {}", stdio.program.command),
        }
    }
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"curl","version":"1"}}}"#;
