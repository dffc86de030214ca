//! Runs `tools/call` in a session by calling the handler's `call_tool` directly.
//!
//! rmcp's `handle_request` would work too, but its future has room for every kind of request and
//! result, and most calls are tool calls.

use bytes::Bytes;
use rmcp::model::{CallToolRequestParams, CallToolResponse, ServerResult};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler};
use steadfast_wire::rpc::ErrorObject;

use super::{error_object, to_json};
use crate::tasks;

/// Runs the tool and returns its result as JSON, without the `resultType` of 2026-07-28.
pub(super) async fn call<H: ServerHandler>(
    handler: &H,
    params: CallToolRequestParams,
    context: RequestContext<RoleServer>,
) -> Result<Bytes, ErrorObject> {
    let response = handler.call_tool(params, context).await.map_err(error_object)?;
    let CallToolResponse::Complete(result) = response else { return Err(unsupported(&response)) };
    let mut result = ServerResult::CallToolResult(result);
    result.strip_result_type_for_legacy_peer();
    to_json(&result)
}

/// Returns the error for a result that only revision 2026-07-28 has.
fn unsupported(response: &CallToolResponse) -> ErrorObject {
    error_object(match response {
        CallToolResponse::Task(_) => tasks::undeclared(),
        _ => ErrorData::invalid_request(
            "The tool requires input by the rules of 2026-07-28. This session has an older revision.",
            None,
        ),
    })
}
