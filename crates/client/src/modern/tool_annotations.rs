//! Caches the annotations of a server's tools: which arguments go into headers, and which tools are
//! unusable.

use std::collections::HashMap;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use steadfast_wire::Mutex;
use steadfast_wire::header_annotations::{self, Annotation, BadAnnotation};

use crate::config::Config;
use steadfast_wire::RawObject;

/// The extension that adds the result type `task`.
const TASKS: &str = "io.modelcontextprotocol/tasks";

/// The annotations of a server's tools. A tool without annotations has no entry.
#[derive(Debug)]
pub(crate) struct ToolAnnotations {
    /// The JSON text of the result of `server/discover`.
    server: Bytes,
    /// Whether the client announced support for tasks.
    accepts_tasks: bool,
    limit: usize,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    tools: HashMap<String, (u64, Result<Vec<Annotation>, BadAnnotation>)>,
    /// Number of entries recorded so far. It orders the entries by age.
    recorded: u64,
}

impl ToolAnnotations {
    pub(crate) fn new(server: Bytes, config: &Config) -> Self {
        let capabilities: Value = serde_json::from_str(&config.capabilities).unwrap_or_default();
        let accepts_tasks = capabilities.pointer("/extensions").is_some_and(|list| list.get(TASKS).is_some());
        Self { server, accepts_tasks, limit: config.limits.tools.max(1), known: Mutex::default() }
    }

    pub(crate) fn server(&self) -> Bytes {
        self.server.clone()
    }

    /// Returns true if the client has agreed to results of this type.
    pub(super) fn accepts_result_type(&self, result_type: &str) -> bool {
        result_type == "complete" || (result_type == "task" && self.accepts_tasks)
    }

    /// The cached annotations of a tool. Empty if the tool is unknown.
    pub(super) fn annotations(&self, tool: &str) -> Result<Vec<Annotation>, BadAnnotation> {
        self.known.lock().tools.get(tool).map_or(Ok(Vec::new()), |(_, known)| known.clone())
    }

    /// Caches the annotations in a page of `tools/list`. Returns the page without the unusable
    /// tools.
    pub(super) fn record_page(&self, page: Bytes) -> Page {
        #[derive(Deserialize)]
        struct List<'a> {
            #[serde(borrow)]
            tools: Vec<&'a RawValue>,
            #[serde(rename = "nextCursor")]
            next: Option<String>,
        }
        let Ok(list) = serde_json::from_slice::<List<'_>>(&page) else {
            return Page { text: page, names: Vec::new(), next: None };
        };
        let mut names = Vec::new();
        let total = list.tools.len();
        let usable = |tool: &&RawValue| {
            let Some((name, found)) = read(tool.get()) else { return true };
            let usable = found.as_ref().inspect_err(|reason| {
                tracing::warn!(tool = name, %reason, "removed an unusable tool from the tool list");
            });
            let usable = usable.is_ok();
            self.remember(&name, found);
            names.push(name);
            usable
        };
        let kept: Vec<_> = list.tools.into_iter().filter(usable).map(RawValue::get).collect();
        let next = list.next;
        let text = if kept.len() == total { None } else { replace_tools(&page, &kept) };
        Page { text: text.unwrap_or(page), names, next }
    }

    fn remember(&self, name: &str, found: Result<Vec<Annotation>, BadAnnotation>) {
        let mut known = self.known.lock();
        if found.as_ref().is_ok_and(Vec::is_empty) {
            known.tools.remove(name);
            return;
        }
        if known.tools.len() >= self.limit && !known.tools.contains_key(name) {
            let oldest = known.tools.iter().min_by_key(|(_, (since, _))| *since);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                known.tools.remove(&oldest);
            }
        }
        known.recorded += 1;
        let now = known.recorded;
        known.tools.insert(name.to_owned(), (now, found));
    }
}

/// A parsed page of `tools/list`.
#[derive(Debug)]
pub(super) struct Page {
    /// The JSON text of the result: the received bytes, unless a tool was removed.
    pub(super) text: Bytes,
    /// The names of all tools in the page, including removed ones.
    pub(super) names: Vec<String>,
    pub(super) next: Option<String>,
}

fn read(tool: &str) -> Option<(String, Result<Vec<Annotation>, BadAnnotation>)> {
    #[derive(Deserialize)]
    struct Tool {
        name: String,
        #[serde(rename = "inputSchema", default)]
        schema: Value,
    }
    let tool: Tool = serde_json::from_str(tool).ok()?;
    let found = header_annotations::annotations(&tool.schema);
    Some((tool.name, found))
}

fn replace_tools(page: &Bytes, kept: &[&str]) -> Option<Bytes> {
    let mut members = RawObject::parse(std::str::from_utf8(page).ok()?).ok()?;
    members.set("tools", &format!("[{}]", kept.join(",")));
    Some(members.to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(limit: usize) -> ToolAnnotations {
        let mut config = Config::new(http::Uri::from_static("http://localhost"));
        config.limits.tools = limit;
        ToolAnnotations::new(Bytes::new(), &config)
    }

    fn tool(name: &str, header: &str) -> String {
        format!(
            r#"{{"name":"{name}", "inputSchema":{{"properties":{{"p":{{"type":"string","x-mcp-header":"{header}"}}}}}}}}"#
        )
    }

    fn page(tools: &[String]) -> Bytes {
        format!(r#"{{"a":1.0,"tools":[{}],"nextCursor":"n"}}"#, tools.join(",")).into()
    }

    fn headers(tools: &ToolAnnotations, name: &str) -> Result<Vec<String>, BadAnnotation> {
        Ok(tools.annotations(name)?.into_iter().map(|annotation| annotation.header).collect())
    }

    #[test]
    fn unusable_tools_are_removed() {
        let tools = tools(10);
        let (good, bad) = (tool("good", "Region"), tool("bad", ""));
        let read = tools.record_page(page(&[good.clone(), bad, good.clone()]));
        assert_eq!(read.text, page(&[good.clone(), good.clone()]));
        assert_eq!(
            (read.names, read.next.as_deref()),
            (["good", "bad", "good"].map(String::from).into(), Some("n"))
        );
        assert_eq!(headers(&tools, "good"), Ok(vec!["mcp-param-region".to_owned()]));
        assert_eq!(headers(&tools, "bad"), Err(BadAnnotation::Empty { at: "p".to_owned() }));
        assert_eq!(headers(&tools, "unheard-of"), Ok(vec![]));
        // A page without unusable tools is returned byte for byte.
        let text = Bytes::from_static(b"{ \"tools\" : [ {\"name\" : \"plain\"} ] }");
        assert_eq!(tools.record_page(text.clone()).text, text);
        let text = Bytes::from_static(b"{\"tools\":5}");
        assert_eq!(tools.record_page(text.clone()).text, text);
    }

    #[test]
    fn the_latest_annotations_of_a_tool_apply() {
        let tools = tools(10);
        tools.record_page(page(&[tool("t", "A")]));
        tools.record_page(page(&[tool("t", "B")]));
        assert_eq!(headers(&tools, "t"), Ok(vec!["mcp-param-b".to_owned()]));
        tools.record_page(Bytes::from_static(b"{\"tools\":[{\"name\":\"t\"}]}"));
        assert_eq!(headers(&tools, "t"), Ok(vec![]));
    }

    #[test]
    fn the_oldest_tool_is_evicted_first() {
        let tools = tools(2);
        for name in ["a", "b", "a", "c"] {
            tools.record_page(page(&[tool(name, name)]));
        }
        assert_eq!(headers(&tools, "a"), Ok(vec!["mcp-param-a".to_owned()]));
        assert_eq!(headers(&tools, "b"), Ok(vec![]));
        assert_eq!(headers(&tools, "c"), Ok(vec!["mcp-param-c".to_owned()]));
    }
}
