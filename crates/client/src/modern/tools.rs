//! What is remembered of a server's tools: which of their arguments go into headers, and which tools cannot be called.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use steadfast_wire::mirrored::{self, Annotation, BadAnnotation};

use crate::config::Config;
use steadfast_wire::members::Members;

/// The extension that adds a type of result.
const TASKS: &str = "io.modelcontextprotocol/tasks";

/// What is known of a server's tools. A tool without annotations takes no room.
#[derive(Debug)]
pub(crate) struct Tools {
    /// The JSON text of the result of `server/discover`.
    server: Bytes,
    /// Whether we have said that a call may become a task.
    takes_tasks: bool,
    limit: usize,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    tools: HashMap<String, (u64, Result<Vec<Annotation>, BadAnnotation>)>,
    /// Counts what was learnt, so that the oldest is known.
    clock: u64,
}

impl Tools {
    pub(crate) fn new(server: Bytes, config: &Config) -> Self {
        let capabilities: Value = serde_json::from_str(&config.capabilities).unwrap_or_default();
        let takes_tasks = capabilities.pointer("/extensions").is_some_and(|list| list.get(TASKS).is_some());
        Self { server, takes_tasks, limit: config.limits.tools.max(1), known: Mutex::default() }
    }

    pub(crate) fn server(&self) -> Bytes {
        self.server.clone()
    }

    /// Whether a type of result is one that we have agreed to.
    pub(super) fn takes(&self, result_type: &str) -> bool {
        result_type == "complete" || (result_type == "task" && self.takes_tasks)
    }

    /// The annotations of a tool, as far as they are known.
    pub(super) fn annotations(&self, tool: &str) -> Result<Vec<Annotation>, BadAnnotation> {
        self.lock().tools.get(tool).map_or(Ok(Vec::new()), |(_, known)| known.clone())
    }

    /// Learns from a page of `tools/list`, and gives it without the tools that cannot be called.
    pub(super) fn learn(&self, page: Bytes) -> Page {
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
                tracing::warn!(tool = name, %reason, "a tool that cannot be called is left out");
            });
            let usable = usable.is_ok();
            self.remember(&name, found);
            names.push(name);
            usable
        };
        let kept: Vec<_> = list.tools.into_iter().filter(usable).map(RawValue::get).collect();
        let next = list.next;
        let text = if kept.len() == total { None } else { without_the_others(&page, &kept) };
        Page { text: text.unwrap_or(page), names, next }
    }

    fn remember(&self, name: &str, found: Result<Vec<Annotation>, BadAnnotation>) {
        let mut known = self.lock();
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
        known.clock += 1;
        let now = known.clock;
        known.tools.insert(name.to_owned(), (now, found));
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A page of tools that has been read.
#[derive(Debug)]
pub(super) struct Page {
    /// The JSON text of the result, as it came unless a tool was left out.
    pub(super) text: Bytes,
    /// All tools that were in it.
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
    let found = mirrored::annotations(&tool.schema);
    Some((tool.name, found))
}

fn without_the_others(page: &Bytes, kept: &[&str]) -> Option<Bytes> {
    let mut members = Members::parse(std::str::from_utf8(page).ok()?).ok()?;
    members.set("tools", &format!("[{}]", kept.join(",")));
    Some(members.to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(limit: usize) -> Tools {
        let mut config = Config::new(http::Uri::from_static("http://localhost"));
        config.limits.tools = limit;
        Tools::new(Bytes::new(), &config)
    }

    fn tool(name: &str, header: &str) -> String {
        format!(
            r#"{{"name":"{name}", "inputSchema":{{"properties":{{"p":{{"type":"string","x-mcp-header":"{header}"}}}}}}}}"#
        )
    }

    fn page(tools: &[String]) -> Bytes {
        format!(r#"{{"a":1.0,"tools":[{}],"nextCursor":"n"}}"#, tools.join(",")).into()
    }

    fn headers(tools: &Tools, name: &str) -> Result<Vec<String>, BadAnnotation> {
        Ok(tools.annotations(name)?.into_iter().map(|annotation| annotation.header).collect())
    }

    #[test]
    fn tools_that_cannot_be_called_are_left_out() {
        let tools = tools(10);
        let (good, bad) = (tool("good", "Region"), tool("bad", ""));
        let read = tools.learn(page(&[good.clone(), bad, good.clone()]));
        assert_eq!(read.text, page(&[good.clone(), good.clone()]));
        assert_eq!(
            (read.names, read.next.as_deref()),
            (["good", "bad", "good"].map(String::from).into(), Some("n"))
        );
        assert_eq!(headers(&tools, "good"), Ok(vec!["mcp-param-region".to_owned()]));
        assert_eq!(headers(&tools, "bad"), Err(BadAnnotation::Empty { at: "p".to_owned() }));
        assert_eq!(headers(&tools, "unheard-of"), Ok(vec![]));
        // A page without such tools stays as it came, to the byte.
        let text = Bytes::from_static(b"{ \"tools\" : [ {\"name\" : \"plain\"} ] }");
        assert_eq!(tools.learn(text.clone()).text, text);
        let text = Bytes::from_static(b"{\"tools\":5}");
        assert_eq!(tools.learn(text.clone()).text, text);
    }

    #[test]
    fn the_last_word_about_a_tool_counts() {
        let tools = tools(10);
        tools.learn(page(&[tool("t", "A")]));
        tools.learn(page(&[tool("t", "B")]));
        assert_eq!(headers(&tools, "t"), Ok(vec!["mcp-param-b".to_owned()]));
        tools.learn(Bytes::from_static(b"{\"tools\":[{\"name\":\"t\"}]}"));
        assert_eq!(headers(&tools, "t"), Ok(vec![]));
    }

    #[test]
    fn the_oldest_tool_is_forgotten_first() {
        let tools = tools(2);
        for name in ["a", "b", "a", "c"] {
            tools.learn(page(&[tool(name, name)]));
        }
        assert_eq!(headers(&tools, "a"), Ok(vec!["mcp-param-a".to_owned()]));
        assert_eq!(headers(&tools, "b"), Ok(vec![]));
        assert_eq!(headers(&tools, "c"), Ok(vec!["mcp-param-c".to_owned()]));
    }
}
