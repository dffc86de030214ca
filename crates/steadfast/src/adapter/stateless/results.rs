//! Serialises results for 2026-07-28, with the result type and the server's name and version.

use bytes::Bytes;
use rmcp::model::{MetaObject, ResultType, ServerConfig, ServerResult};
use serde_json::Value;
use steadfast_wire::params::META_SERVER_INFO;
use steadfast_wire::rpc::ErrorObject;

use super::super::to_json as serialise;
use super::server_info;

/// Serialises a result. Adds `resultType` and the server's info unless the handler has set them.
pub(super) fn to_json(mut result: ServerResult, config: &ServerConfig) -> Result<Bytes, ErrorObject> {
    set_result_type(&mut result);
    if let Some(meta) = meta_of(&mut result) {
        meta.get_or_insert_default().entry(META_SERVER_INFO).or_insert_with(|| server_info(config));
        return serialise(&result);
    }
    // rmcp has no `_meta` field for the remaining results, so they are edited as JSON.
    let mut value = match &result {
        ServerResult::CustomResult(custom) => custom.0.clone(),
        _ => serde_json::to_value(&result).unwrap_or_default(),
    };
    if let Value::Object(members) = &mut value {
        members.entry("resultType").or_insert_with(|| "complete".into());
        let meta = members.entry("_meta").or_insert_with(|| Value::Object(Default::default()));
        if let Value::Object(meta) = meta {
            meta.entry(META_SERVER_INFO).or_insert_with(|| server_info(config));
        }
    }
    serialise(&value)
}

fn set_result_type(result: &mut ServerResult) {
    let result_type = match result {
        ServerResult::CompleteResult(result) => &mut result.result_type,
        ServerResult::GetPromptResult(result) => &mut result.result_type,
        ServerResult::ListPromptsResult(result) => &mut result.result_type,
        ServerResult::ListResourcesResult(result) => &mut result.result_type,
        ServerResult::ListResourceTemplatesResult(result) => &mut result.result_type,
        ServerResult::ReadResourceResult(result) => &mut result.result_type,
        ServerResult::ListToolsResult(result) => &mut result.result_type,
        ServerResult::CallToolResult(result) => &mut result.result_type,
        _ => return,
    };
    result_type.get_or_insert(ResultType::COMPLETE);
}

/// Returns the `_meta` field of a result, if its type has one.
fn meta_of(result: &mut ServerResult) -> Option<&mut Option<MetaObject>> {
    Some(match result {
        ServerResult::DiscoverResult(result) => &mut result.meta,
        ServerResult::CompleteResult(result) => &mut result.meta,
        ServerResult::GetPromptResult(result) => &mut result.meta,
        ServerResult::ListPromptsResult(result) => &mut result.meta,
        ServerResult::ListResourcesResult(result) => &mut result.meta,
        ServerResult::ListResourceTemplatesResult(result) => &mut result.meta,
        ServerResult::ReadResourceResult(result) => &mut result.meta,
        ServerResult::ListToolsResult(result) => &mut result.meta,
        ServerResult::CallToolResult(result) => &mut result.meta,
        ServerResult::InputRequiredResult(result) => &mut result.meta,
        ServerResult::CreateTaskResult(result) => &mut result.meta,
        ServerResult::GetTaskResult(result) => &mut result.meta,
        ServerResult::TaskAckResult(result) => &mut result.meta,
        _ => return None,
    })
}
