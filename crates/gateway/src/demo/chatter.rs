//! `chatter`: sends log messages.

use rmcp::ErrorData;
use rmcp::model::{CallToolResult, LoggingLevel, LoggingMessageNotificationParam};
use rmcp::service::{RequestContext, RoleServer};

use super::tool::{Arguments, DemoTool, said};

pub(crate) const TOOL: DemoTool = DemoTool {
    name: "chatter",
    description: "Emits log messages while it works, on the stream of this very call.",
    schema: r#"{"type":"object","properties":{
        "lines":{"type":"integer","minimum":0,"maximum":10000,"default":3,"description":"how many messages"}}}"#,
};

pub(crate) async fn run(
    arguments: &Arguments,
    level: LoggingLevel,
    context: RequestContext<RoleServer>,
) -> Result<CallToolResult, ErrorData> {
    let lines = arguments.number("lines", 3, 10_000)?;
    if severity(level) > severity(LoggingLevel::Info) {
        return Ok(said("Your log level is above info, so I sent nothing."));
    }
    for line in 1..=lines {
        let text = serde_json::Value::String(format!("message {line} of {lines}"));
        let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, text).with_logger("chatter");
        // Log messages may be lost.
        let _ = context.peer.notify_logging_message(message).await;
    }
    Ok(said(format!("Said {lines} things.")))
}

fn severity(level: LoggingLevel) -> u8 {
    match level {
        LoggingLevel::Debug => 0,
        LoggingLevel::Info => 1,
        LoggingLevel::Notice => 2,
        LoggingLevel::Warning => 3,
        LoggingLevel::Error => 4,
        LoggingLevel::Critical => 5,
        LoggingLevel::Alert => 6,
        LoggingLevel::Emergency => 7,
    }
}
