//! Descriptions and arguments of the tools of the demo server.

use std::sync::Arc;

use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool};
use serde_json::Value;

#[derive(Clone, Copy, Debug)]
pub(crate) struct DemoTool {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    /// The JSON schema of its arguments.
    pub(crate) schema: &'static str,
}

impl DemoTool {
    pub(crate) fn describe(&self) -> Tool {
        let schema: JsonObject = serde_json::from_str(self.schema).unwrap_or_default();
        Tool::new(self.name, self.description, Arc::new(schema))
    }
}

pub(crate) struct Arguments(pub(crate) JsonObject);

impl Arguments {
    /// Returns a whole number up to `max`, or `default` if it is not set.
    pub(crate) fn number(&self, name: &str, default: u64, max: u64) -> Result<u64, ErrorData> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(default),
            Some(value) => value.as_u64().filter(|n| *n <= max).ok_or_else(|| {
                ErrorData::invalid_params(format!("`{name}` must be a whole number from 0 to {max}"), None)
            }),
        }
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }
}

pub(crate) fn said(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text.into())])
}
