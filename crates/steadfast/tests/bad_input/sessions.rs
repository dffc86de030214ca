//! Sessions, events and asks that are not there, or not the sender's.

use super::row::{Expect, Row, delete, get, initialize, post};

const RESULT: &str = r#"{"jsonrpc":"2.0","id":"ask-1","result":{"roots":[]}}"#;
const NOTIFICATION: &str = r#"{"jsonrpc":"2.0","method":"notifications/custom"}"#;

/// The server answers a client that sends one of these with "no such session", for every verb.
const NO_SESSION: &[(&str, &str)] = &[
    ("a session that never was", "<unknown>"),
    ("a session that was deleted", "<deleted>"),
    ("a session of another principal", "<foreign>"),
    ("a session id that is too short", "x"),
    ("a session id with more behind it", "<session>A"),
    ("a session id with padding", "<session>="),
    ("a session id with a space inside", "<session> <session>"),
    ("a list of session ids", "<session>, <old>"),
    ("a session id that is a path", "../../../../../../etc/passwd/....."),
    ("a session id that is SQL", "' OR 1=1; DROP TABLE session; --"),
    ("a session id in quotes", "\"<session>\""),
    ("a session id that is null", "null"),
    ("an empty session id", ""),
];

/// What `Last-Event-ID` must not be.
const EVENTS: &[(&str, &str)] = &[
    ("no event", ""),
    ("an event of nonsense", "banana"),
    ("an event without a place", "1"),
    ("an event without a session", "1-1"),
    ("an event with half a tag", "1-1-abc"),
    ("an event with a tag that is not hexadecimal", "1-1-zzzzzzzz"),
    ("an event with more behind it", "1-1-<tag>-1"),
    ("an event with leading zeros", "01-1-<tag>"),
    ("an event with a sign", "+1-1-<tag>"),
    ("an event before the first", "1--1-<tag>"),
    ("an event that has not happened", "1-1-<tag>"),
    ("an event far from now", "1-18446744073709551615-<tag>"),
    ("an event of a stream that is not there", "999999-0-<tag>"),
    ("an event of a stream at the end of 63 bits", "9223372036854775808-1-<tag>"),
    ("an event of a stream at the end of 64 bits", "18446744073709551615-18446744073709551615-<tag>"),
    ("an event of a stream beyond 64 bits", "18446744073709551616-0-<tag>"),
    ("an event of a standalone stream that was never opened", "0-0-<tag>"),
    ("an event of another session", "1-0-<old-tag>"),
    ("an event of another principal's session", "1-0-<foreign-tag>"),
    ("a list of events", "1-0-<tag>, 1-0-<tag>"),
];

/// Answers to requests that the server has not sent, or for which it no longer waits.
const ANSWERS: &[(&str, &str)] = &[
    ("an answer to nothing", r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
    ("an answer to an ask that never was", r#"{"jsonrpc":"2.0","id":"ask-99","result":{}}"#),
    ("an answer for the second time", r#"{"jsonrpc":"2.0","id":"ask-0","result":{"roots":[]}}"#),
    ("an error for the second time", r#"{"jsonrpc":"2.0","id":"ask-0","error":{"code":1,"message":"m"}}"#),
    ("an answer by number", r#"{"jsonrpc":"2.0","id":0,"result":{}}"#),
    ("an answer with leading zeros", r#"{"jsonrpc":"2.0","id":"ask-01","result":{}}"#),
    ("an answer with a sign", r#"{"jsonrpc":"2.0","id":"ask-+1","result":{}}"#),
    ("an answer in capitals", r#"{"jsonrpc":"2.0","id":"ASK-1","result":{}}"#),
    ("an answer beyond 64 bits", r#"{"jsonrpc":"2.0","id":"ask-18446744073709551616","result":{}}"#),
    ("an answer to one's own call", r#"{"jsonrpc":"2.0","id":"busy","result":{}}"#),
];

/// Notifications that come to nothing, which is no reason to complain.
const IGNORED: &[(&str, &str)] = &[
    ("a cancellation of nothing", r#"{"requestId":"unknown"}"#),
    ("a cancellation of null", r#"{"requestId":null}"#),
    ("a cancellation of a float", r#"{"requestId":1.5}"#),
    ("a cancellation of an object", r#"{"requestId":{"id":"busy"}}"#),
    ("a cancellation of nothing at all", "{}"),
    ("a cancellation by list", r#"["busy"]"#),
];

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, id) in NO_SESSION {
        let gone =
            |row: Row| row.set("mcp-session-id", id).refused(404, -32600, "Open a new one with `initialize`");
        rows.push(post(name).set("mcp-session-id", id).refused_id("1", 404, -32600, "no such session"));
        rows.push(gone(post(name).body(NOTIFICATION)));
        rows.push(gone(post(name).body(RESULT)));
        rows.push(gone(get(name)));
        rows.push(gone(get(name).set("last-event-id", "1-0-<tag>")));
        rows.push(gone(delete(name)));
    }
    rows.extend(
        EVENTS
            .iter()
            .map(|(name, event)| get(name).set("last-event-id", event).refused(400, -32600, "Last-Event-ID")),
    );
    rows.extend(
        ANSWERS.iter().map(|(name, body)| post(name).body(body).refused(400, -32600, "waits for an answer")),
    );
    rows.extend(IGNORED.iter().map(|(name, params)| {
        let head = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":"#;
        post(name).body(format!("{head}{params}}}")).taken()
    }));
    rows.extend(headers());
    rows.extend(others());
    rows.extend(openings());
    rows
}

fn headers() -> Vec<Row> {
    let needed = "needs the Mcp-Session-Id header";
    let bob = |row: Row| row.set("authorization", "Bearer bob");
    vec![
        post("no session").without("mcp-session-id").refused_id("1", 400, -32600, needed),
        post("a notification without a session")
            .body(NOTIFICATION)
            .without("mcp-session-id")
            .refused(400, -32600, needed),
        post("an answer without a session")
            .body(RESULT)
            .without("mcp-session-id")
            .refused(400, -32600, needed),
        get("GET without a session").without("mcp-session-id").refused(405, -32600, "Mcp-Session-Id"),
        delete("DELETE without a session").without("mcp-session-id").refused(400, -32600, needed),
        post("two session ids").add("mcp-session-id", "<session>").refused_id(
            "1",
            400,
            -32600,
            "more than once",
        ),
        get("GET with two session ids").add("mcp-session-id", "<old>").refused(400, -32600, "more than once"),
        delete("DELETE with two session ids").add("mcp-session-id", "<old>").refused(
            400,
            -32600,
            "more than once",
        ),
        post("a session id beyond ASCII").set("mcp-session-id", b"<session>\xff").refused_id(
            "1",
            400,
            -32600,
            "mcp-session-id",
        ),
        post("a session id that is folded").set("mcp-session-id", "<session>\r\n <session>").unheard(400),
        post("a session id with a NUL").set("mcp-session-id", "<session>\0").unheard(400),
        get("two events").set("last-event-id", "1-0-<tag>").add("last-event-id", "1-0-<tag>").refused(
            400,
            -32600,
            "more than once",
        ),
        get("an event beyond ASCII").set("last-event-id", b"1-0-<tag>\xff").refused(
            400,
            -32600,
            "last-event-id",
        ),
        bob(get("an event, as another principal")).set("last-event-id", "1-0-<tag>").refused(
            404,
            -32600,
            "no such session",
        ),
        bob(post("a call, as another principal")).refused_id("1", 404, -32600, "no such session"),
        bob(post("a cancellation, as another principal"))
            .body(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"busy"}}"#)
            .refused(404, -32600, "no such session"),
        bob(post("an answer, as another principal")).body(RESULT).refused(404, -32600, "no such session"),
        bob(get("GET, as another principal")).refused(404, -32600, "no such session"),
        bob(delete("DELETE, as another principal")).refused(404, -32600, "no such session"),
        delete("DELETE of a session of an evil page").set("origin", "null").refused(403, -32600, "Origin"),
    ]
}

fn others() -> Vec<Row> {
    let method = |method: &str| format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#);
    vec![
        post("an ask of another session").old().body(RESULT).refused(400, -32600, "waits for an answer"),
        post("an error without an id").body(r#"{"jsonrpc":"2.0","error":{"code":1,"message":"m"}}"#).refused(
            400,
            -32600,
            "without an id",
        ),
        post("an error with the id null")
            .body(r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}"#)
            .refused(400, -32600, "without an id"),
        post("a result with the id null")
            .body(r#"{"jsonrpc":"2.0","id":null,"result":{}}"#)
            .refused(400, -32600, "null"),
        post("a call with an id in flight")
            .body(r#"{"jsonrpc":"2.0","id":"busy","method":"ping"}"#)
            .refused_id("\"busy\"", 400, -32600, "in flight already"),
        post("an event on a POST is ignored").set("last-event-id", "banana").served("1"),
        post("initialize as a notification, without a session")
            .body(method("initialize"))
            .without("mcp-session-id")
            .refused(400, -32600, "Mcp-Session-Id"),
        post("initialized for the second time").body(method("notifications/initialized")).taken(),
        post("a notification of nonsense").body(method("no/such")).taken(),
    ]
}

/// Openings that open nothing.
fn openings() -> Vec<Row> {
    let wrong =
        |name, rest: &str| initialize(name, rest).refused_id("\"open\"", 400, -32602, "protocolVersion");
    let handler = |name, rest: &str| Row {
        expect: Expect::Refused { status: 200, code: -32602, id: Some("\"open\""), says: "initialize" },
        ..initialize(name, rest)
    };
    let good = r#","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}"#;
    let modern = r#","params":{"protocolVersion":"2026-07-28","capabilities":{},"clientInfo":{"name":"x","version":"1"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#;
    vec![
        wrong("initialize without params", ""),
        wrong("initialize with empty params", r#","params":{}"#),
        wrong("initialize with a list", r#","params":[]"#),
        wrong(
            "initialize without a version",
            r#","params":{"capabilities":{},"clientInfo":{"name":"x","version":"1"}}"#,
        ),
        wrong("initialize with a number for a version", r#","params":{"protocolVersion":20251125}"#),
        wrong("initialize with null for a version", r#","params":{"protocolVersion":null}"#),
        handler(
            "initialize without a name",
            r#","params":{"protocolVersion":"2025-11-25","capabilities":{}}"#,
        ),
        handler(
            "initialize with wrong capabilities",
            r#","params":{"protocolVersion":"2025-11-25","capabilities":[],"clientInfo":{"name":"x","version":"1"}}"#,
        ),
        initialize("initialize with a modern envelope", modern).refused_id(
            "\"open\"",
            400,
            -32602,
            "_meta needs",
        ),
        initialize("initialize with a bad version header", good)
            .set("mcp-protocol-version", "banana")
            .refused_id("\"open\"", 400, -32600, "Supported"),
        initialize("initialize without credentials", good).set("authorization", "Bearer expired").refused(
            401,
            -32600,
            "credentials",
        ),
        initialize("initialize from an evil page", good)
            .set("origin", "https://evil.com")
            .refused(403, -32600, "Origin"),
        initialize("initialize for an evil host", good)
            .set("host", "rebound.evil.com")
            .refused(403, -32600, "Host"),
        initialize("initialize that accepts JSON only", good)
            .set("accept", "application/json")
            .refused(406, -32600, "Accept"),
        initialize("initialize with the id null", good)
            .body(format!(r#"{{"jsonrpc":"2.0","id":null,"method":"initialize"{good}}}"#))
            .refused(400, -32600, "null"),
        initialize("initialize twice in a body", good)
            .body(format!(
                "[{0},{0}]",
                format_args!(r#"{{"jsonrpc":"2.0","id":1,"method":"initialize"{good}}}"#)
            ))
            .refused(400, -32600, "Mcp-Session-Id"),
    ]
}
