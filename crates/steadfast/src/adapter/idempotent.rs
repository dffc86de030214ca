//! Decides which calls are idempotent, from their method and the handler's tool annotations. If the
//! node that runs an idempotent call dies, another node may run it again.

use rmcp::ServerHandler;
use steadfast_engine::{IncomingMessage, Route, Routing};
use steadfast_wire::idempotent_methods::is_read_only_method;
use steadfast_wire::raw_json;

/// Which calls are retried if the node that runs them dies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RetryPolicy {
    #[default]
    Never,
    /// Methods that only read, and tools that are annotated as read-only or idempotent.
    IdempotentCalls,
}

/// Returns the route of a call: it runs on this node, and may be retried if it is idempotent.
pub(super) fn route<H: ServerHandler>(handler: &H, request: &IncomingMessage) -> Routing {
    Routing::Ready(Route { idempotent: is_idempotent(handler, request), ..Route::default() })
}

fn is_idempotent<H: ServerHandler>(handler: &H, request: &IncomingMessage) -> bool {
    match request.method.as_str() {
        "tools/call" => tool_name(request).is_some_and(|name| is_idempotent_tool(handler, &name)),
        method => is_read_only_method(method),
    }
}

fn tool_name(request: &IncomingMessage) -> Option<String> {
    raw_json::get_string(std::str::from_utf8(request.params.as_deref()?).ok()?, &["name"])
}

fn is_idempotent_tool<H: ServerHandler>(handler: &H, name: &str) -> bool {
    let annotations = handler.get_tool(name).and_then(|tool| tool.annotations);
    annotations.is_some_and(|hints| hints.read_only_hint == Some(true) || hints.idempotent_hint == Some(true))
}
