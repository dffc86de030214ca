//! The handler that is measured. The tool `tiny` does nothing, so the cost is that of the server.
//! The tool `fan` requests the roots of its client many times at once.
#![expect(
    deprecated,
    reason = "roots are deprecated from 2026-07-28 on; they are the smallest server request"
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
            let requests = call.arguments.and_then(|arguments| arguments.get("requests")?.as_u64());
            fan_out(requests.unwrap_or_default(), &context).await?;
        }
        Ok(CallToolResult::success(vec![ContentBlock::text("x")]).into())
    }
}

/// All requests are in flight before the first response is read.
async fn fan_out(requests: u64, context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
    // In one task, because rmcp finds the call of a request by its task.
    let mut responses: FuturesUnordered<_> = (0..requests).map(|_| context.peer.list_roots()).collect();
    while let Some(response) = responses.next().await {
        response.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    }
    Ok(())
}
