//! Requests of 2026-07-28: the envelope, the version, and what the revision has given up. All of
//! them name a session, which is none of their business.

use super::row::{CALL, Row, delete, get, post};

const VERSION: &str = "2026-07-28";
const META: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}"#;

pub(crate) fn rows() -> Vec<Row> {
    let tables = [envelopes(), versions(), given_up(), shapes(), bystanders(), ids(), order(), edge()];
    tables.concat()
}

/// A request with a good envelope. `members` are those of `params`, each with a comma behind it.
pub(super) fn ask(name: &'static str, method: &str, members: &str) -> Row {
    let body =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{members}"_meta":{{{META}}}}}}}"#);
    post(name).set("mcp-protocol-version", VERSION).set("mcp-method", method).body(body)
}

/// A good call. A row spoils one thing about it.
pub(super) fn call(name: &'static str) -> Row {
    ask(name, "tools/call", r#""name":"echo","arguments":{"text":"x"},"#).set("mcp-name", "echo")
}

/// A call whose `_meta` is this.
fn with_meta(name: &'static str, meta: &str) -> Row {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","_meta":{meta}}}}}"#
    );
    call(name).body(body)
}

/// Returns the row of a call with this protocol version in its envelope.
fn of_version(name: &'static str, version: &str) -> Row {
    with_meta(name, &format!("{{{}}}", META.replace(VERSION, version)))
}

pub(super) fn mismatch(row: Row, says: &'static str) -> Row {
    row.refused_id("1", 400, -32020, says)
}

fn envelopes() -> Vec<Row> {
    let version = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
    let able = r#""io.modelcontextprotocol/clientCapabilities""#;
    let escaped = r#""io.modelcontextprotocol\/protocolVersion":"2026-07-28","io.modelcontextprotocol\/clientCapabilities":{}"#;
    let mut rows = vec![
        call("a good call").answered("1"),
        with_meta("an envelope with escaped slashes", &format!("{{{escaped}}}")).answered("1"),
        mismatch(
            with_meta("an envelope with escaped slashes and no header", &format!("{{{escaped}}}"))
                .without("mcp-protocol-version"),
            "missing",
        ),
        post("a header without an envelope").set("mcp-protocol-version", VERSION),
        post("a version of the future without an envelope").set("mcp-protocol-version", "2031-01-01"),
        with_meta("a _meta that is empty", "{}"),
        with_meta("a _meta that is null", "null"),
        with_meta("a _meta that is a list", "[]"),
        with_meta("a _meta that is a string", r#""x""#),
        with_meta("a _meta that is a number", "5"),
        with_meta("an envelope without capabilities", &format!("{{{version}}}")),
        with_meta("capabilities that are null", &format!("{{{version},{able}:null}}")),
        with_meta("capabilities that are a list", &format!("{{{version},{able}:[]}}")),
        with_meta("capabilities that are true", &format!("{{{version},{able}:true}}")),
        with_meta("an envelope without a version", &format!("{{{able}:{{}}}}")),
        with_meta(
            "a version that is a number",
            &format!(r#"{{"io.modelcontextprotocol/protocolVersion":20260728,{able}:{{}}}}"#),
        ),
        with_meta(
            "a version that is null",
            &format!(r#"{{"io.modelcontextprotocol/protocolVersion":null,{able}:{{}}}}"#),
        ),
        with_meta("a version twice", &format!("{{{version},{version},{able}:{{}}}}")),
        with_meta("capabilities twice", &format!("{{{META},{able}:{{}}}}")),
        ask("an envelope twice", "tools/list", &format!(r#""_meta":{{{META}}},"#)),
        ask("a name twice", "tools/call", r#""name":"echo","name":"panic","#).set("mcp-name", "echo"),
        with_meta(
            "a level that is none",
            &format!(r#"{{{META},"io.modelcontextprotocol/logLevel":"loud"}}"#),
        ),
        with_meta(
            "a level in capitals",
            &format!(r#"{{{META},"io.modelcontextprotocol/logLevel":"DEBUG"}}"#),
        ),
        with_meta("a level that is a number", &format!(r#"{{{META},"io.modelcontextprotocol/logLevel":3}}"#)),
        call("no params").body(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#),
        call("a list of params").body(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[{}]}"#),
    ];
    for row in &mut rows {
        // Those that have no expectation yet.
        if row.expect == super::row::Expect::Taken {
            *row = row.clone().refused_id("1", 400, -32602, "arams");
        }
    }
    rows.extend([
        with_meta(
            "client info that is not an object",
            &format!(r#"{{{META},"io.modelcontextprotocol/clientInfo":7}}"#),
        )
        .answered("1"),
        with_meta("an unknown member of _meta", &format!(r#"{{{META},"x":[1],"traceparent":"no"}}"#))
            .answered("1"),
        with_meta("a progress token that is none", &format!(r#"{{{META},"progressToken":{{}}}}"#))
            .answered("1"),
        ask("arguments twice", "tools/call", r#""name":"echo","arguments":{},"arguments":{"text":"y"},"#)
            .set("mcp-name", "echo")
            .failed_plainly("1", -32602),
    ]);
    rows
}

fn versions() -> Vec<Row> {
    let header = "mcp-protocol-version";
    let mut rows = vec![
        mismatch(call("no version header").without(header), "missing"),
        mismatch(call("a header of the old era").set(header, "2025-11-25"), "not the same"),
        mismatch(call("a header of no era").set(header, "v999.0.0"), "not the same"),
        mismatch(call("a header that is empty").set(header, ""), "not the same"),
        mismatch(call("a header in base64").set(header, "=?base64?MjAyNi0wNy0yOA==?="), "not the same"),
        mismatch(call("a header with more in it").set(header, "2026-07-28, 2025-11-25"), "not the same"),
        mismatch(call("a header twice").add(header, VERSION), "more than once"),
        mismatch(call("a header beyond ASCII").set(header, "2026-07-28\u{e9}"), "characters"),
        call("blanks around a header").set(header, " \t2026-07-28  \t").answered("1"),
        call("a header in capitals").without(header).add("MCP-PROTOCOL-VERSION", VERSION).answered("1"),
    ];
    for version in ["v999.0.0", "2025-11-25", "2024-11-05", ""] {
        rows.push(mismatch(of_version("another version in the body", version), "not the same"));
    }
    for version in ["v999.0.0", "2025-11-25", "2025-03-26", "2024-11-05", "2026-07-29", "2031-01-01", ""] {
        let row = of_version("a version that is not served", version).set(header, version);
        rows.push(row.refused_id("1", 400, -32022, "not supported"));
    }
    rows
}

/// What there is not, in this revision or on this server.
fn given_up() -> Vec<Row> {
    let mut rows: Vec<Row> = [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/result",
        "tasks/list",
    ]
    .iter()
    .map(|method| {
        let members = r#""uri":"test:a","level":"info","taskId":"t","protocolVersion":"2025-11-25","#;
        ask("a method that is given up", method, members).refused_id("1", 404, -32601, "no method")
    })
    .collect();
    for method in
        ["no/such", "tools", "tools/", "tools/calls", "Tools/list", "notifications/cancelled", "rpc.x", ""]
    {
        rows.push(ask("a method that never was", method, "").refused_id("1", 404, -32601, ""));
    }
    for method in ["prompts/list", "completion/complete"] {
        rows.push(ask("a method that is not offered", method, "").refused_id("1", 404, -32601, "no "));
    }
    rows.extend([
        ask("a prompt that is not offered", "prompts/get", r#""name":"p","#)
            .set("mcp-name", "p")
            .refused_id("1", 404, -32601, "no "),
        ask("a task of a client that knows none", "tasks/get", r#""taskId":"t","#)
            .set("mcp-name", "t")
            .refused_id("1", 400, -32021, "capability"),
        ask("a subscription to nothing", "subscriptions/listen", "").failed_plainly("1", -32602),
        ask("a subscription to a list", "subscriptions/listen", r#""notifications":[],"#)
            .failed_plainly("1", -32602),
        ask(
            "a subscription of the wrong kind",
            "subscriptions/listen",
            r#""notifications":{"toolsListChanged":"x"},"#,
        )
        .failed_plainly("1", -32602),
        post("an old handshake with a new header")
            .body(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#)
            .set("mcp-protocol-version", VERSION)
            .refused_id("1", 400, -32602, "protocolVersion"),
        get("a GET").set("mcp-protocol-version", VERSION).refused(405, -32600, "POST"),
        delete("a DELETE").set("mcp-protocol-version", VERSION).refused(405, -32600, "POST"),
        get("a GET to come back")
            .set("mcp-protocol-version", VERSION)
            .set("last-event-id", "1-1-<tag>")
            .refused(400, -32600, "Last-Event-ID"),
    ]);
    rows
}

/// Messages that are no requests.
fn shapes() -> Vec<Row> {
    let send = |name, body: &str| post(name).set("mcp-protocol-version", VERSION).body(body);
    let cancelled = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":"busy","_meta":{{{META}}}}}}}"#
    );
    let enveloped =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{"_meta":{{{META}}}}}}}"#);
    vec![
        send("a cancellation", &cancelled).taken(),
        post("a cancellation with an old header").body(&cancelled).taken(),
        send("a notification without an envelope", r#"{"jsonrpc":"2.0","method":"notifications/x"}"#).taken(),
        send("a handshake of old", r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).taken(),
        send("an answer", r#"{"jsonrpc":"2.0","id":"ask-1","result":{}}"#).refused(
            400,
            -32600,
            "no responses",
        ),
        send("an error", r#"{"jsonrpc":"2.0","id":"ask-1","error":{"code":1,"message":"m"}}"#).refused(
            400,
            -32600,
            "no responses",
        ),
        send("an error without an id", r#"{"jsonrpc":"2.0","error":{"code":1,"message":"m"}}"#).refused(
            400,
            -32600,
            "no responses",
        ),
        send("a batch", &format!("[{enveloped}]")).refused(400, -32600, "no batches"),
        send("an old batch", &format!("[{CALL}]")).old().set("mcp-protocol-version", VERSION).refused(
            400,
            -32600,
            "no batches",
        ),
        post("a batch with an old header").body(format!("[{CALL},{enveloped}]")).old().refused(
            400,
            -32600,
            "no batches",
        ),
        send("an empty batch", "[]").refused(400, -32600, ""),
        send("nonsense", "{").refused(400, -32700, "valid"),
    ]
}

/// Headers of the other era, which say nothing here.
fn bystanders() -> Vec<Row> {
    let session = "mcp-session-id";
    vec![
        call("no session").without(session).answered("1"),
        call("a session that is not there").set(session, "<unknown>").answered("1"),
        call("a session of another principal").set(session, "<foreign>").answered("1"),
        call("a session that is none").set(session, "no / such").answered("1"),
        call("two sessions").add(session, "<old>").answered("1"),
        call("an event to come back to").set("last-event-id", "1-1-<tag>").answered("1"),
        call("an event that never was").set("last-event-id", "☎").answered("1"),
    ]
}

fn ids() -> Vec<Row> {
    let with_id = |name, id: &str| {
        let body =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list","params":{{"_meta":{{{META}}}}}}}"#);
        ask(name, "tools/list", "").body(body)
    };
    let mut rows: Vec<Row> = ["null", "1.5", "1.0", "1e3", "true", "{}", "9223372036854775808"]
        .iter()
        .map(|id| with_id("an id that is none", id).refused(400, -32600, ""))
        .collect();
    for id in ["0", "-1", "9223372036854775807", r#""""#, r#""1""#, r#""☎""#] {
        rows.push(with_id("an id", id).answered(id));
        rows.push(
            with_id("an id in an error", id).without("mcp-method").refused_id(id, 400, -32020, "missing"),
        );
    }
    rows.push(
        ask("two ids", "tools/list", "")
            .body(format!(
                r#"{{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list","params":{{"_meta":{{{META}}}}}}}"#
            ))
            .refused(400, -32600, "duplicate"),
    );
    rows
}

/// Of several things that are wrong the first is named.
fn order() -> Vec<Row> {
    let version = "mcp-protocol-version";
    vec![
        with_meta("an envelope before headers", "{}")
            .without("mcp-method")
            .refused_id("1", 400, -32602, "_meta"),
        mismatch(
            of_version("a mismatch before an unknown version", "v999.0.0").set(version, "2025-11-25"),
            "not the same",
        ),
        of_version("a version before a method", "v999.0.0")
            .set(version, "v999.0.0")
            .without("mcp-method")
            .refused_id("1", 400, -32022, "not supported"),
        mismatch(ask("a header before an unknown method", "no/such", "").set("mcp-method", "x"), "body"),
        mismatch(ask("a header before what is given up", "ping", "").without("mcp-method"), "missing"),
        ask("a method before its parameters", "completion/complete", r#""ref":5,"#)
            .refused_id("1", 404, -32601, "no "),
    ]
}

/// Requests with and without sessions pass through one edge.
fn edge() -> Vec<Row> {
    let big = format!(r#""name":"echo","arguments":{{"text":"{}"}},"#, "x".repeat(64 << 10));
    let mut rows = vec![
        ask("a body over the limit", "tools/call", &big).set("mcp-name", "echo").refused(
            413,
            -32600,
            "max_request_bytes",
        ),
        call("a name over the limit").set("mcp-name", "x".repeat(33 << 10)).refused(
            431,
            -32600,
            "The headers are larger than",
        ),
        call("no wish for a stream").set("accept", "application/json").refused(406, -32600, "both"),
        call("another media type").set("content-type", "text/plain").refused(415, -32600, "application/json"),
        call("no credentials").set("authorization", "Bearer expired").refused(401, -32600, "credentials"),
    ];
    for origin in ["http://evil.example.com", "null", "", "http://localhost.evil.com"] {
        rows.push(call("an evil origin").set("origin", origin).refused(403, -32600, "Origin"));
    }
    for host in ["evil.example.com", "null", "localhost@evil.com"] {
        rows.push(call("an evil host").set("host", host).refused(403, -32600, "Host"));
    }
    rows.push(call("a good origin").set("origin", "http://localhost:3000").answered("1"));
    rows
}
