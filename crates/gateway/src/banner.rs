//! What a person sees when the gateway is up.

use std::fmt;
use std::io::{self, Write as _};

use steadfast::StoreUrl;
use steadfast_upstream::Server;
use tokio::net::TcpListener;

use crate::config::{Behind, EndpointPlan, Plan};

pub(crate) fn print(plan: &Plan, listeners: &[TcpListener], admin: Option<&TcpListener>, store: &StoreUrl) {
    let scheme = if plan.tls.is_some() { "https" } else { "http" };
    let addresses: Vec<_> = listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();
    let mut text = String::from("steadfast\n");
    for endpoint in &plan.endpoints {
        for address in &addresses {
            let url = format!("{scheme}://{address}{}", endpoint.path);
            tracing::info!(%url, behind = %Described(endpoint), id = %endpoint.identity.name(), %store, "serving");
            text += &format!("  URL    {url}\n");
        }
        text += &format!("         in front of {}\n", Described(endpoint));
        text += &format!("         id {}\n", endpoint.identity.name());
    }
    text += &format!("  store  {store}\n");
    if let Some(address) = admin.and_then(|admin| admin.local_addr().ok()) {
        text += &format!("  admin  http://{address}/metrics, /healthz, /readyz\n");
    }
    if let (Some(endpoint), Some(address)) = (plan.endpoints.first(), addresses.first()) {
        text += &advice(&format!("{scheme}://{address}{}", endpoint.path), name(endpoint));
    }
    if plan.endpoints.iter().any(|endpoint| matches!(endpoint.behind, Behind::Demo)) {
        text += "\nTools: countdown, chatter, notebook, fortune, council. Cut the connection in the middle of a countdown: nothing is lost.\n";
    }
    text += "Ctrl-C stops it in good order; once more, at once.\n";
    // A closed stdout is no reason not to serve.
    let _ = io::stdout().lock().write_all(text.as_bytes());
    let _ = io::stdout().flush();
}

fn name(endpoint: &EndpointPlan) -> &'static str {
    match endpoint.behind {
        Behind::Demo => "steadfast-demo",
        Behind::Upstream(_) => "steadfast",
    }
}

fn advice(url: &str, name: &str) -> String {
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

/// The server behind an endpoint, without anything that may be secret: arguments of a program may be.
struct Described<'a>(&'a EndpointPlan);

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = match &self.0.behind {
            Behind::Demo => return f.write_str("the demo server"),
            Behind::Upstream(config) => &config.server,
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
