//! `tools/call` in a session, which is most of what servers do, without the way through rmcp's dispatch: that moves every
//! request and every result through a future that has room for all of them.

use bytes::Bytes;
use rmcp::model::{CallToolRequestParams, CallToolResponse, ServerResult};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler};
use steadfast_wire::rpc::ErrorObject;

use super::{error_object, to_json};
use crate::tasks;

pub(super) async fn call<H: ServerHandler>(
    handler: &H,
    params: CallToolRequestParams,
    context: RequestContext<RoleServer>,
) -> Result<Bytes, ErrorObject> {
    let response = handler.call_tool(params, context).await.map_err(error_object)?;
    let CallToolResponse::Complete(result) = response else { return Err(not_in_a_session(&response)) };
    let mut result = ServerResult::CallToolResult(result);
    result.strip_result_type_for_legacy_peer();
    to_json(&result)
}

/// What only clients of 2026-07-28 can do anything with.
fn not_in_a_session(response: &CallToolResponse) -> ErrorObject {
    error_object(match response {
        CallToolResponse::Task(_) => tasks::undeclared(),
        _ => ErrorData::invalid_request(
            "The tool asks for input in the way of 2026-07-28, which this session does not speak.",
            None,
        ),
    })
}
