//! What may be done once more when nobody knows whether it was done.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Deserialize;

/// What the server says of its tools.
#[derive(Debug)]
pub(crate) struct Tools {
    known: Mutex<HashMap<String, bool>>,
    limit: usize,
    /// The server was asked without need, so that it is known when it is needed.
    was_asked: AtomicBool,
}

/// One page of `tools/list`.
pub(crate) struct Page {
    pub(crate) next: Option<String>,
}

impl Tools {
    pub(crate) fn new(limit: usize) -> Self {
        Self { known: Mutex::default(), limit, was_asked: AtomicBool::new(false) }
    }

    /// Whether nobody has asked the server yet since its list has changed. Whoever hears that has to.
    pub(crate) fn is_to_be_asked(&self) -> bool {
        !self.was_asked.swap(true, Ordering::Relaxed)
    }

    /// It did not answer: somebody else may ask.
    pub(crate) fn was_not_told(&self) {
        self.was_asked.store(false, Ordering::Relaxed);
    }

    /// Whether calling the tool twice does no more than calling it once. `None`: nobody has heard of it.
    pub(crate) fn is_safe(&self, name: &str) -> Option<bool> {
        self.known().get(name).copied()
    }

    /// Takes in a result of `tools/list`.
    pub(crate) fn learn(&self, result: &[u8]) -> Page {
        #[derive(Deserialize)]
        struct List {
            #[serde(default)]
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
        let Ok(List { tools, next }) = serde_json::from_slice(result) else { return Page { next: None } };
        let mut known = self.known();
        for Tool { name, annotations } in tools {
            let Annotations { read_only_hint, idempotent_hint } = annotations.unwrap_or_default();
            let safe = read_only_hint == Some(true) || idempotent_hint == Some(true);
            // Beyond the limit a tool is as good as unknown.
            if known.len() < self.limit || known.contains_key(&name) {
                known.insert(name, safe);
            }
        }
        Page { next }
    }

    /// The list has changed.
    pub(crate) fn forget(&self) {
        self.known().clear();
        self.was_not_told();
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, bool>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Methods that only look, whatever the server is.
pub(crate) fn only_looks(method: &str) -> bool {
    matches!(
        method,
        "ping"
            | "tools/list"
            | "prompts/list"
            | "prompts/get"
            | "resources/list"
            | "resources/templates/list"
            | "resources/read"
            | "completion/complete"
            // Told twice, it is the same.
            | "logging/setLevel"
            | "resources/subscribe"
            | "resources/unsubscribe"
            | "tasks/get"
            | "tasks/list"
            | "tasks/result"
            | "server/discover"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_says_so_is_safe() {
        let tools = Tools::new(3);
        let page = tools.learn(
            br#"{"tools":[
                {"name":"read","annotations":{"readOnlyHint":true}},
                {"name":"set","annotations":{"readOnlyHint":false,"idempotentHint":true,"title":"x"}},
                {"name":"add","annotations":{"destructiveHint":false}},
                {"name":"one too many","annotations":{"readOnlyHint":true}}],"nextCursor":"c"}"#,
        );
        assert_eq!(page.next.as_deref(), Some("c"));
        let safe = ["read", "set", "add", "one too many", "unheard of"].map(|name| tools.is_safe(name));
        assert_eq!(safe, [Some(true), Some(true), Some(false), None, None]);
        tools.learn(br#"{"tools":[{"name":"read"}]}"#);
        assert_eq!(tools.is_safe("read"), Some(false));
        tools.forget();
        assert_eq!(tools.is_safe("set"), None);
    }

    #[test]
    fn what_is_no_list_teaches_nothing() {
        assert!(Tools::new(1).learn(b"[]").next.is_none());
    }
}
