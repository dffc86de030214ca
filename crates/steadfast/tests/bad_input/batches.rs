//! Batches. Revision 2025-03-26 has them, and no other.

use super::row::{CALL, Row, post};

const RESULT: &str = r#"{"jsonrpc":"2.0","id":"ask-99","result":{}}"#;
const NOTIFICATION: &str = r#"{"jsonrpc":"2.0","method":"notifications/custom"}"#;
const CANCEL: &str = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"busy"}}"#;

/// What a batch must not contain, besides a good call, and what is said about it.
const ONE_BAD: &[(&str, &str, &str)] = &[
    ("a number in a batch", "1", "JSON-RPC message"),
    ("null in a batch", "null", "JSON-RPC message"),
    ("a string in a batch", r#""ping""#, "JSON-RPC message"),
    ("an empty object in a batch", "{}", "jsonrpc"),
    ("a batch in a batch", r#"[{"jsonrpc":"2.0","method":"ping"}]"#, "JSON-RPC message"),
    ("a message that is a list", r#"["2.0",2,"ping"]"#, "list"),
    ("an empty batch in a batch", "[]", "JSON-RPC message"),
    ("an id of null in a batch", r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, "null"),
    ("a float for an id in a batch", r#"{"jsonrpc":"2.0","id":0.5,"method":"ping"}"#, "integer"),
    ("an old version in a batch", r#"{"jsonrpc":"1.0","id":2,"method":"ping"}"#, "jsonrpc"),
    (
        "initialize in a batch",
        r#"{"jsonrpc":"2.0","id":2,"method":"initialize","params":{}}"#,
        "`initialize`",
    ),
    ("a response in a batch of calls", RESULT, "mix"),
    ("an id twice in a batch", r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "id 1 is in flight"),
    (
        "an id in flight in a batch",
        r#"{"jsonrpc":"2.0","id":"busy","method":"ping"}"#,
        "id \"busy\" is in flight",
    ),
];

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, bad, says) in ONE_BAD {
        // A cancellation comes along: if the batch is refused, it must not happen either.
        rows.push(post(name).old().body(format!("[{CALL},{CANCEL},{bad}]")).refused(400, -32600, says));
        rows.push(post(name).old().body(format!("[{bad},{CALL}]")).refused(400, -32600, says));
    }
    let long = |count: usize, item: &str| format!("[{}]", vec![item; count].join(","));
    let in_middle =
        |row: Row| row.set("mcp-session-id", "<middle>").set("mcp-protocol-version", "2025-06-18");
    rows.extend([
        post("an empty batch").old().body("[]").refused(400, -32600, "empty"),
        post("an empty batch where there are none").body("[ ]").refused(400, -32600, "empty"),
        post("a batch in 2025-11-25").body(format!("[{CALL}]")).refused(
            400,
            -32600,
            "2025-11-25 has no batches",
        ),
        in_middle(post("a batch in 2025-06-18").body(format!("[{CALL}]"))).refused(
            400,
            -32600,
            "2025-06-18 has no batches",
        ),
        post("a batch under an old version, in a new session")
            .body(format!("[{CALL}]"))
            .set("mcp-protocol-version", "2025-03-26")
            .refused(400, -32600, "2025-11-25 has no batches"),
        post("a batch of notifications in 2025-11-25").body(format!("[{NOTIFICATION}]")).refused(
            400,
            -32600,
            "no batches",
        ),
        post("a batch without a session").old().without("mcp-session-id").body(format!("[{CALL}]")).refused(
            400,
            -32600,
            "Mcp-Session-Id",
        ),
        post("a batch for an unknown session")
            .old()
            .set("mcp-session-id", "<unknown>")
            .body(format!("[{CALL}]"))
            .refused(404, -32600, "no such session"),
        post("a batch for the session of another principal")
            .old()
            .set("authorization", "Bearer bob")
            .body(format!("[{CANCEL}]"))
            .refused(404, -32600, "no such session"),
        post("a batch that is too long").old().body(long(101, NOTIFICATION)).refused(
            400,
            -32600,
            "more than 100",
        ),
        post("a batch of very many numbers").old().body(long(30_000, "1")).refused(
            400,
            -32600,
            "more than 100",
        ),
        post("a batch at its bound").old().body(long(100, NOTIFICATION)).taken(),
        post("a batch of answers to nothing").old().body(format!("[{RESULT},{RESULT}]")).refused(
            400,
            -32600,
            "waits for an answer",
        ),
        post("a batch of errors without ids")
            .old()
            .body(r#"[{"jsonrpc":"2.0","error":{"code":1,"message":"m"}}]"#)
            .refused(400, -32600, "without an id"),
        post("a batch of answers of which one has no id")
            .old()
            .body(format!(r#"[{{"jsonrpc":"2.0","error":{{"code":1,"message":"m"}}}},{RESULT}]"#))
            .refused(400, -32600, "one without an id, "),
        post("a batch with a comma too many").old().body(format!("[{CALL},]")).refused(
            400,
            -32700,
            "valid JSON",
        ),
        post("a batch that does not end").old().body(format!("[{CALL}")).refused(400, -32700, "valid JSON"),
        post("a batch with words behind it").old().body(format!("[{CALL}] x")).refused(
            400,
            -32700,
            "valid JSON",
        ),
    ]);
    rows
}
