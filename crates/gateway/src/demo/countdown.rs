//! `countdown`: a slow tool that reports progress. It finishes even if no client is connected.

use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ProgressNotificationParam};
use rmcp::service::{RequestContext, RoleServer};

use super::tool::{Arguments, DemoTool, said};

pub(crate) const TOOL: DemoTool = DemoTool {
    name: "countdown",
    description: "Counts down to lift-off and reports each step as progress. Survives a cut connection: come back \
                  with Last-Event-ID and read on.",
    schema: r#"{"type":"object","properties":{
        "from":{"type":"integer","minimum":1,"maximum":1000,"default":5,"description":"where to start"},
        "step_ms":{"type":"integer","minimum":0,"maximum":60000,"default":1000,"description":"milliseconds per step"}}}"#,
};

pub(crate) async fn run(
    arguments: &Arguments,
    context: RequestContext<RoleServer>,
) -> Result<CallToolResult, ErrorData> {
    let from = arguments.number("from", 5, 1000)?;
    let step = Duration::from_millis(arguments.number("step_ms", 1000, 60_000)?);
    for done in 0..from {
        if let Some(token) = context.meta.get_progress_token() {
            let mut progress = ProgressNotificationParam::new(token, done as f64).with_total(from as f64);
            progress.message = Some(format!("{}", from - done));
            // The countdown continues without a client.
            let _ = context.peer.notify_progress(progress).await;
        }
        tokio::select! {
            () = tokio::time::sleep(step) => {}
            () = context.ct.cancelled() => return Ok(said(format!("Stopped at {}.", from - done))),
        }
    }
    Ok(said(format!("Counted down from {from}: lift-off!")))
}
