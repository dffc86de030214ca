//! Which calls another node may do again when the one that ran them is gone: by the handler's own word.

use rmcp::ServerHandler;
use steadfast_engine::{Incoming, Route, Routing};

/// What is done again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Repeats {
    #[default]
    Nothing,
    /// What only looks, and tools that are annotated as read-only or idempotent.
    WhatIsSafe,
}

pub(super) fn route<H: ServerHandler>(handler: &H, request: &Incoming) -> Routing {
    Routing::Now(Route { again: is_safe(handler, request), ..Route::default() })
}

fn is_safe<H: ServerHandler>(handler: &H, request: &Incoming) -> bool {
    match request.method.as_str() {
        "tools/call" => tool_of(request).is_some_and(|name| is_safe_tool(handler, &name)),
        "ping"
        | "tools/list"
        | "prompts/list"
        | "prompts/get"
        | "resources/list"
        | "resources/templates/list"
        | "resources/read"
        | "completion/complete" => true,
        _ => false,
    }
}

fn tool_of(request: &Incoming) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Named {
        name: String,
    }
    serde_json::from_slice(request.params.as_deref()?).ok().map(|Named { name }| name)
}

fn is_safe_tool<H: ServerHandler>(handler: &H, name: &str) -> bool {
    let annotations = handler.get_tool(name).and_then(|tool| tool.annotations);
    annotations.is_some_and(|hints| hints.read_only_hint == Some(true) || hints.idempotent_hint == Some(true))
}
