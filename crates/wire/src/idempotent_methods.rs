//! Methods of MCP that a server may execute twice without harm.

/// Returns true if the method only reads what the server offers. Any instance of the server can
/// execute it, again if need be.
pub fn is_read_only_method(method: &str) -> bool {
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
            | "server/discover"
    )
}

/// Returns true if executing the method twice has the effect of executing it once. Besides methods
/// that only read, these are methods that set a session setting and methods that read the state of
/// a task. Whether `tools/call` is idempotent depends on the tool, so it is not among them.
pub fn is_idempotent_method(method: &str) -> bool {
    is_read_only_method(method)
        || matches!(
            method,
            "logging/setLevel"
                | "resources/subscribe"
                | "resources/unsubscribe"
                | "tasks/get"
                | "tasks/list"
                | "tasks/result"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_tools_and_unknown_methods_are_not_idempotent() {
        for (method, read_only, idempotent) in [
            ("tools/list", true, true),
            ("resources/subscribe", false, true),
            ("tasks/get", false, true),
            ("tools/call", false, false),
            ("tasks/cancel", false, false),
            ("unknown", false, false),
        ] {
            assert_eq!(is_read_only_method(method), read_only, "{method}");
            assert_eq!(is_idempotent_method(method), idempotent, "{method}");
        }
    }
}
