//! The tools, as clients and servers of a run know them.

use std::sync::Arc;

use rmcp::model::{Tool as Listed, ToolAnnotations};
use serde_json::json;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    /// Answers at once.
    Echo,
    /// Answers after a while.
    Slow,
    /// Tells how far it is.
    Progress,
    /// Asks the user.
    Ask,
    /// Counts in memory, for each session.
    Counter,
    /// Says something that belongs to no call.
    Note,
    /// Only looks: may be called twice.
    Look,
}

impl Tool {
    pub(crate) const ALL: [Self; 7] =
        [Self::Echo, Self::Slow, Self::Progress, Self::Ask, Self::Counter, Self::Note, Self::Look];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Slow => "slow",
            Self::Progress => "progress",
            Self::Ask => "ask",
            Self::Counter => "counter",
            Self::Note => "note",
            Self::Look => "look",
        }
    }

    /// Whether it says so of itself that calling it twice does no harm.
    pub(crate) fn is_safe(self) -> bool {
        self == Self::Look
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    pub(super) fn listed(self) -> Listed {
        let (int, string) = (json!({"type": "integer"}), json!({"type": "string"}));
        let schema = json!({"type": "object", "properties": {"call": string, "ms": int}});
        let schema = Arc::new(schema.as_object().cloned().unwrap_or_default());
        let mut listed = Listed::new(self.name(), self.name(), schema);
        listed.annotations = self.is_safe().then(|| ToolAnnotations::new().read_only(true));
        listed
    }
}
