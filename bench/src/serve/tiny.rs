//! The handler that is measured: a tool that does nothing, so that what remains is the cost of the server, and one that
//! asks its client for its roots many times at once.
#![expect(
    deprecated,
    reason = "roots are deprecated from 2026-07-28 on; they are the smallest question there is"
)]

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, JsonObject, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};

#[derive(Debug, Clone, Copy)]
pub(super) struct Tiny;

impl ServerHandler for Tiny {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut schema = JsonObject::new();
        schema.insert("type".to_owned(), "object".into());
        Ok(ListToolsResult::with_all_items(vec![Tool::new("tiny", "Returns one character.", schema)]))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if call.name == "fan" {
            let asks = call.arguments.and_then(|arguments| arguments.get("asks")?.as_u64());
            fan_out(asks.unwrap_or_default(), &context).await?;
        }
        Ok(CallToolResult::success(vec![ContentBlock::text("x")]).into())
    }
}

/// All asks are in flight before the first answer is looked at.
async fn fan_out(asks: u64, context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
    // In one task: rmcp knows by that which call an ask belongs to.
    let mut answers: FuturesUnordered<_> = (0..asks).map(|_| context.peer.list_roots()).collect();
    while let Some(answer) = answers.next().await {
        answer.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    }
    Ok(())
}
