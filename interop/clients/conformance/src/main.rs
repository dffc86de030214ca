//! The client under test of the official conformance suite.
//!
//! The suite starts this program with the address of a server as the last argument. Environment
//! variables contain the revision and the arguments of tools. The client lists what the server
//! offers and uses each item once.
//!
//! If `STEADFAST_GATEWAY` contains the path of the `steadfast` command, the client uses the server
//! through a gateway, which is then under test.
#![forbid(unsafe_code)]

mod gateway;
mod handler;
mod script;

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use gateway::Gateway;
use steadfast_client::{Client, Config, Era, Revision, StandaloneStream};

/// How long to wait for the standalone stream. Some servers send their requests on it, also those
/// that belong to a call.
const STANDALONE_LIMIT: Duration = Duration::from_secs(2);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().next_back().filter(|last| last.contains("://"));
    let url = url.ok_or("usage: steadfast-conformance-client URL")?;
    let gateway = std::env::var_os("STEADFAST_GATEWAY");
    let gateway = gateway.map(|program| Gateway::start(&program, &url)).transpose()?;
    let url = gateway.as_ref().map_or(url.as_str(), Gateway::url);
    let mut config = Config::new(url.parse()?);
    config.capabilities = r#"{"elicitation":{},"sampling":{},"roots":{}}"#.to_owned();
    config.info = r#"{"name":"steadfast-conformance-client","version":"1"}"#.to_owned();
    config.era = era(std::env::var("MCP_CONFORMANCE_PROTOCOL_VERSION").ok().as_deref());
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").ok();
    config.standalone_stream = StandaloneStream::Open;
    let handler = handler::AcceptAll::default();
    let settled = Arc::clone(&handler.settled);
    let client = Client::connect(config, handler).await?;
    if !client.revision().is_modern() {
        // The calls are tried without the standalone stream as well.
        let _ = tokio::time::timeout(STANDALONE_LIMIT, settled.notified()).await;
    }
    script::explore(&client, context.as_deref()).await?;
    client.close().await?;
    Ok(())
}

/// A server of the suite has one revision. A stateless revision is found by probing.
fn era(version: Option<&str>) -> Era {
    match version.and_then(Revision::parse) {
        Some(revision) if !revision.is_modern() => Era::Session(revision),
        _ => Era::Probe,
    }
}
