//! The handler behind `compare replay`: a tool that fills the stream of its call with numbered
//! messages.

use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, NumberOrString,
    ProgressNotificationParam, ProgressToken, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use steadfast::{Limits, Timing};

#[derive(Debug, Clone, Copy)]
pub(super) struct Fill;

impl ServerHandler for Fill {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    /// Sends `events` progress messages of about `size` bytes. The text of each starts with its
    /// number, from 1.
    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let argument = |name: &str| {
            let value = call.arguments.as_ref().and_then(|arguments| arguments.get(name)?.as_u64());
            value.ok_or_else(|| ErrorData::invalid_params(format!("`{name}` must be a number"), None))
        };
        let (events, size) = (argument("events")?, argument("size")?);
        let filler = "x".repeat(usize::try_from(size).unwrap_or_default());
        for number in 1..=events {
            let token = ProgressToken(NumberOrString::Number(0));
            let mut progress = ProgressNotificationParam::new(token, number as f64);
            progress.message = Some(format!("{number:08} {filler}"));
            let sent = context.peer.notify_progress(progress).await;
            sent.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        }
        Ok(CallToolResult::success(vec![ContentBlock::text("full")]).into())
    }
}

/// Limits for a few streams of a hundred thousand events, so that no event is dropped.
pub(super) fn limits() -> Limits {
    let (store_bytes, principal_bytes) = (u64::MAX, u64::MAX);
    Limits {
        stream_bytes: 1 << 30,
        session_bytes: 4 << 30,
        store_bytes,
        principal_bytes,
        ..Limits::default()
    }
}

/// Streams are kept until the measurement ends.
pub(super) fn timing() -> Timing {
    Timing { retention: Duration::from_secs(60 * 60), ..Timing::default() }
}
