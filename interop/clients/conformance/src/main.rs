//! The client under test of the official conformance suite.
//!
//! The suite starts it with the address of a server as its last argument, and tells the revision and the arguments of
//! tools in the environment. It does with every server what a curious user would: list what there is, and use it.
//!
//! With the path of the `steadfast` command in `STEADFAST_GATEWAY` it does all of that through a gateway, which is then under
//! test.
#![forbid(unsafe_code)]

mod gateway;
mod owner;
mod script;

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use gateway::Gateway;
use steadfast_client::{Client, Config, Era, Revision, Standalone};

/// How long to wait for a standalone stream. Some servers ask on it whatever stream the call came on.
const PATIENCE: Duration = Duration::from_secs(2);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match play().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn play() -> Result<(), Box<dyn Error>> {
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
    config.standalone = Standalone::Held;
    let owner = owner::Obliging::default();
    let settled = Arc::clone(&owner.settled);
    let client = Client::connect(config, owner).await?;
    if !client.revision().is_modern() {
        // Without it the calls are worth a try all the same.
        let _ = tokio::time::timeout(PATIENCE, settled.notified()).await;
    }
    script::explore(&client, context.as_deref()).await?;
    client.close().await?;
    Ok(())
}

/// A server of the suite speaks one revision; of those without sessions it is found out.
fn era(version: Option<&str>) -> Era {
    match version.and_then(Revision::parse) {
        Some(revision) if !revision.is_modern() => Era::Session(revision),
        _ => Era::Probe,
    }
}
