//! The tools of the server, which clients call.

use std::sync::Arc;

use rmcp::model::{Tool as Listed, ToolAnnotations};
use serde_json::json;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    /// Answers at once.
    Echo,
    /// Answers after a delay.
    Slow,
    /// Sends progress notifications.
    Progress,
    /// Sends a server request (elicitation), and returns the answer.
    Elicit,
    /// Increments a counter that each session has in memory.
    Counter,
    /// Sends a notification that belongs to no call.
    Notify,
    /// Answers after a delay, and is annotated as read-only: a client may retry it.
    ReadOnly,
}

impl Tool {
    pub(crate) const ALL: [Self; 7] =
        [Self::Echo, Self::Slow, Self::Progress, Self::Elicit, Self::Counter, Self::Notify, Self::ReadOnly];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Slow => "slow",
            Self::Progress => "progress",
            Self::Elicit => "elicit",
            Self::Counter => "counter",
            Self::Notify => "notify",
            Self::ReadOnly => "read_only",
        }
    }

    /// Returns true if the tool is annotated as read-only.
    pub(crate) fn is_read_only(self) -> bool {
        self == Self::ReadOnly
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// The tool's entry in the result of `tools/list`.
    pub(super) fn listed(self) -> Listed {
        let (int, string) = (json!({"type": "integer"}), json!({"type": "string"}));
        let schema = json!({"type": "object", "properties": {"call": string, "ms": int}});
        let schema = Arc::new(schema.as_object().cloned().unwrap_or_default());
        let mut listed = Listed::new(self.name(), self.name(), schema);
        listed.annotations = self.is_read_only().then(|| ToolAnnotations::new().read_only(true));
        listed
    }
}
