//! Parses `tools/list` for the idempotent tools, and `tools/call` for the tool that it names.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// The maximum size of the tool names of one principal. Further tools count as not idempotent.
const MAX_NAME_BYTES: usize = 64 << 10;

/// The idempotent tools of one principal. All other tools count as not idempotent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IdempotentTools(BTreeSet<String>);

impl IdempotentTools {
    /// Returns true if a `tools/call` with these parameters names an idempotent tool.
    pub(crate) fn are_called_by(&self, params: Option<&str>) -> bool {
        #[derive(Deserialize)]
        struct Named<'a> {
            #[serde(borrow)]
            name: Cow<'a, str>,
        }
        // The parameters may be large, and are parsed only if there are idempotent tools.
        let params = params.filter(|_| !self.0.is_empty());
        let named = params.and_then(|params| serde_json::from_str::<Named<'_>>(params).ok());
        named.is_some_and(|named| self.0.contains(&*named.name))
    }

    /// Adds one page of `tools/list` and returns the cursor of the next one. `None` if it is not a
    /// page.
    pub(crate) fn add_page(&mut self, page: &[u8], limit: usize) -> Option<Option<String>> {
        #[derive(Deserialize)]
        struct Page {
            tools: Vec<Tool>,
            #[serde(rename = "nextCursor")]
            next: Option<String>,
        }
        #[derive(Deserialize)]
        struct Tool {
            name: String,
            #[serde(default)]
            annotations: Option<Annotations>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Annotations {
            read_only_hint: Option<bool>,
            idempotent_hint: Option<bool>,
        }
        let Page { tools, next } = serde_json::from_slice(page).ok()?;
        let mut bytes: usize = self.0.iter().map(String::len).sum();
        for Tool { name, annotations } in tools {
            let Annotations { read_only_hint, idempotent_hint } = annotations.unwrap_or_default();
            let is_idempotent = read_only_hint == Some(true) || idempotent_hint == Some(true);
            bytes += name.len();
            if is_idempotent && self.0.len() < limit && bytes <= MAX_NAME_BYTES {
                self.0.insert(name);
            }
        }
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(page: &str, limit: usize) -> IdempotentTools {
        let mut tools = IdempotentTools::default();
        tools.add_page(page.as_bytes(), limit).unwrap();
        tools
    }

    #[test]
    fn only_annotated_tools_are_idempotent() {
        let page = r#"{"tools":[
            {"name":"read","annotations":{"readOnlyHint":true}},
            {"name":"set","annotations":{"readOnlyHint":false,"idempotentHint":true,"title":"x"}},
            {"name":"add","annotations":{"destructiveHint":false}},
            {"name":"none"},
            {"name":"one too many","annotations":{"readOnlyHint":true}}],"nextCursor":"c"}"#;
        let tools = tools(page, 2);
        let called =
            |name: &str| tools.are_called_by(Some(&format!(r#"{{"arguments":{{}},"name":"{name}"}}"#)));
        let called = ["read", "set", "add", "none", "one too many", "unknown"].map(called);
        assert_eq!(called, [true, true, false, false, false, false]);
        assert!(!tools.are_called_by(None) && !tools.are_called_by(Some("{}")));
        let mut tools = tools;
        assert_eq!(tools.add_page(page.as_bytes(), 2), Some(Some("c".to_owned())));
        assert_eq!(tools.add_page(br#"{"tools":[]}"#, 2), Some(None));
        assert_eq!(tools.add_page(b"{}", 2), None, "not a page");
    }

    #[test]
    fn names_are_bounded_in_bytes() {
        let tool = |name: &str| format!(r#"{{"name":"{name}","annotations":{{"readOnlyHint":true}}}}"#);
        let (most, one_more) = ("x".repeat(MAX_NAME_BYTES), "y");
        let tools = tools(&format!(r#"{{"tools":[{},{}]}}"#, tool(&most), tool(one_more)), 9);
        assert_eq!(tools.0.len(), 1);
    }
}
