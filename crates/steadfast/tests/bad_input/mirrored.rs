//! Headers of 2026-07-28 that repeat a part of the body.

use super::row::Row;
use super::stateless::{ask, call, mismatch};

pub(crate) fn rows() -> Vec<Row> {
    [methods(), names(), uris(), params()].concat()
}

/// A call of a tool of this name, given as the inside of a JSON string.
fn call_of(name: &'static str, tool: &str) -> Row {
    ask(name, "tools/call", &format!(r#""name":"{tool}","#))
}

fn methods() -> Vec<Row> {
    let header = "mcp-method";
    vec![
        mismatch(call("no method header").without(header), "missing"),
        mismatch(call("another method").set(header, "tools/list"), "not what the body says"),
        mismatch(call("a method in capitals").set(header, "TOOLS/CALL"), "not what the body says"),
        mismatch(call("no method in the header").set(header, ""), "not what the body says"),
        mismatch(call("a method twice").add(header, "tools/call"), "more than once"),
        mismatch(call("two methods").add(header, "tools/list"), "more than once"),
        mismatch(call("a method that is not base64").set(header, "=?base64?tools/call?="), "base64"),
        call("a method in base64").set(header, "=?base64?dG9vbHMvY2FsbA==?=").answered("1"),
        call("blanks around a method").set(header, "\ttools/call ").answered("1"),
    ]
}

fn names() -> Vec<Row> {
    let header = "mcp-name";
    let (missing, other, broken) = ("missing", "not what the body says", "base64");
    let refused: &[(&'static str, &[u8], &'static str)] = &[
        ("another name", b"panic", other),
        ("a name in capitals", b"Echo", other),
        ("an empty name", b"", other),
        ("a name in percents", b"%65cho", other),
        ("a name in quotes", b"\"echo\"", other),
        ("base64 without padding", b"=?base64?ZWNobw?=", broken),
        ("base64 with half its padding", b"=?base64?ZWNobw=?=", broken),
        ("base64 with too much padding", b"=?base64?ZWNobw===?=", broken),
        ("base64 with other letters", b"=?base64?ZWN*bw==?=", broken),
        ("base64 of URLs", b"=?base64?ZWNob_8=?=", broken),
        ("base64 with a blank in it", b"=?base64?ZWNo bw==?=", broken),
        ("base64 with bits left over", b"=?base64?ZWNobx==?=", broken),
        ("base64 that is not UTF-8", b"=?base64?/v8=?=", broken),
        ("base64 of another name", b"=?base64?cGFuaWM=?=", other),
        ("base64 of nothing", b"=?base64??=", other),
        ("a marker in capitals", b"=?BASE64?ZWNobw==?=", other),
        ("a marker half in capitals", b"=?Base64?ZWNobw==?=", other),
        ("a marker without its end", b"=?base64?ZWNobw==", other),
        ("a marker without its beginning", b"ZWNobw==?=", other),
        ("another encoding", b"=?utf-8?B?ZWNobw==?=", other),
        ("letters beyond ASCII", "écho".as_bytes(), "characters"),
        ("bytes that are no text", b"\xff\xfe", "characters"),
    ];
    let mut rows: Vec<Row> =
        refused.iter().map(|(name, value, says)| mismatch(call(name).set(header, value), says)).collect();
    let phone = "=?base64?w6ljaG8g4piO?=";
    rows.extend([
        mismatch(call("no name header").without(header), missing),
        mismatch(call("a name twice in the head").add(header, "echo"), "more than once"),
        mismatch(call("two names").add(header, "panic"), "more than once"),
        call("a name in base64").set(header, "=?base64?ZWNobw==?=").answered("1"),
        call("blanks around a name").set(header, " \techo\t ").answered("1"),
        call("a name header in capitals").without(header).add("MCP-NAME", "echo").answered("1"),
        call_of("a tool beyond ASCII", "écho ☎").set(header, phone).answered("1"),
        call_of("a tool beyond ASCII, in escapes", r"\u00e9cho \u260e").set(header, phone).answered("1"),
        mismatch(call_of("a tool beyond ASCII, as it is", "écho ☎").set(header, "écho ☎"), "characters"),
        // These name tools that there are not, which is for the handler to say: the headers are
        // right.
        call_of("a name with a blank before it", " echo")
            .set(header, "=?base64?IGVjaG8=?=")
            .failed_plainly("1", -32602),
        mismatch(call_of("a name whose blank is lost", " echo").set(header, " echo"), other),
        call_of("a name that looks like a marker", "=?BASE64?x?=")
            .set(header, "=?BASE64?x?=")
            .failed_plainly("1", -32602),
        call_of("a name that looks encoded, encoded", "=?base64?ZWNobw==?=")
            .set(header, "=?base64?PT9iYXNlNjQ/WldOb2J3PT0/PQ==?=")
            .failed_plainly("1", -32602),
        mismatch(
            call_of("a name that looks encoded", "=?base64?ZWNobw==?=").set(header, "=?base64?ZWNobw==?="),
            other,
        ),
        call_of("an empty name in both", "").set(header, "").failed_plainly("1", -32602),
        mismatch(
            ask("a name in the head alone", "tools/call", "").set(header, "echo"),
            "names what the body does not",
        ),
        mismatch(
            ask("a name that is a number", "tools/call", r#""name":5,"#).set(header, "5"),
            "names what the body does not",
        ),
        ask("no name at all", "tools/call", "").failed_plainly("1", -32602),
        ask("a name where there is none", "tools/list", "").set(header, "echo").answered("1"),
    ]);
    rows
}

fn uris() -> Vec<Row> {
    let header = "mcp-name";
    let read = |name, uri: &str| ask(name, "resources/read", &format!(r#""uri":"{uri}","#));
    vec![
        read("a URI", "test:a?b=c#d").set(header, "test:a?b=c#d").answered("1"),
        read("a URI beyond ASCII", "test:ü/☎").set(header, "=?base64?dGVzdDrDvC/imI4=?=").answered("1"),
        mismatch(read("a URI beyond ASCII, as it is", "test:ü").set(header, "test:ü"), "characters"),
        mismatch(read("a URI that is the same in another form", "test:%41").set(header, "test:A"), "body"),
        mismatch(read("a URI with a slash more", "test:a").set(header, "test:a/"), "body"),
        mismatch(read("no URI in the head", "test:a"), "missing"),
        mismatch(
            ask("a name instead of a URI", "resources/read", r#""name":"test:a","#).set(header, "test:a"),
            "names what the body does not",
        ),
        read("no such resource", "test:none").set(header, "test:none").failed_plainly("1", -32602),
        mismatch(ask("no task in the head", "tasks/get", r#""taskId":"t","#), "missing"),
        mismatch(ask("another task", "tasks/get", r#""taskId":"t","#).set(header, "u"), "body"),
    ]
}

/// The tool `mirrored` wants `region`, `count` and `deep.flag` in headers.
fn params() -> Vec<Row> {
    let tool = |name, arguments: &str| {
        ask(name, "tools/call", &format!(r#""name":"mirrored","arguments":{arguments},"#))
            .set("mcp-name", "mirrored")
    };
    let (region, count, flag) = ("mcp-param-region", "mcp-param-count", "mcp-param-flag");
    let good: &[(&'static str, &str, &'static str, &str)] = &[
        ("a parameter", r#"{"region":"eu"}"#, region, "eu"),
        ("blanks around a parameter", r#"{"region":"eu"}"#, region, "  eu\t"),
        ("an empty parameter", r#"{"region":""}"#, region, ""),
        ("a parameter in base64", r#"{"region":"zürich"}"#, region, "=?base64?esO8cmljaA==?="),
        ("an integer", r#"{"count":42}"#, count, "42"),
        ("an integer with a point in the head", r#"{"count":42}"#, count, "42.0"),
        ("an integer with a point in the body", r#"{"count":42.0}"#, count, "42"),
        ("an integer with an exponent", r#"{"count":42}"#, count, "4.2e1"),
        ("an integer below zero", r#"{"count":-7}"#, count, "-7"),
        ("the greatest integer", r#"{"count":9007199254740991}"#, count, "9007199254740991"),
        ("a deep parameter", r#"{"deep":{"flag":true}}"#, flag, "true"),
        ("a parameter that no tool declares", "{}", "mcp-param-other", "x"),
        ("an undeclared parameter that cannot be decoded", "{}", "mcp-param-other", "=?base64?*?="),
    ];
    let bad: &[(&'static str, &str, &'static str, &str, &'static str)] = &[
        ("another region", r#"{"region":"eu"}"#, region, "us", "differs from the argument in the body"),
        ("a region in capitals", r#"{"region":"eu"}"#, region, "EU", "differs from the argument in the body"),
        ("a region that is not there", "{}", region, "eu", "has no such argument"),
        ("a region that is null", r#"{"region":null}"#, region, "null", "has no such argument"),
        ("a region in bad base64", r#"{"region":"eu"}"#, region, "=?base64?ZXU?=", "base64"),
        ("a region beyond ASCII", r#"{"region":"zürich"}"#, region, "zürich", "characters"),
        ("another count", r#"{"count":42}"#, count, "43", "differs from the argument in the body"),
        ("a count in hex", r#"{"count":42}"#, count, "0x2a", "differs from the argument in the body"),
        ("an empty count", r#"{"count":42}"#, count, "", "differs from the argument in the body"),
        ("a fraction", r#"{"count":42.5}"#, count, "42.5", "differs from the argument in the body"),
        ("an integer too great", r#"{"count":9007199254740993}"#, count, "9007199254740993", "body"),
        ("a list", r#"{"count":[42]}"#, count, "[42]", "differs from the argument in the body"),
        (
            "a deep flag in capitals",
            r#"{"deep":{"flag":true}}"#,
            flag,
            "True",
            "differs from the argument in the body",
        ),
        (
            "a deep flag that is one",
            r#"{"deep":{"flag":true}}"#,
            flag,
            "1",
            "differs from the argument in the body",
        ),
        ("a deep flag that is not there", r#"{"deep":{}}"#, flag, "true", "has no such argument"),
        ("a deep flag of something else", r#"{"deep":7}"#, flag, "true", "has no such argument"),
    ];
    let mut rows: Vec<Row> = good
        .iter()
        .map(|(name, args, header, value)| tool(name, args).set(header, value).answered("1"))
        .collect();
    for (name, arguments, header, value, says) in bad {
        rows.push(mismatch(tool(name, arguments).set(header, value), says));
    }
    rows.extend([
        tool("no parameters", "{}").answered("1"),
        tool("a parameter that is null", r#"{"region":null}"#).answered("1"),
        ask("no arguments", "tools/call", r#""name":"mirrored","#).set("mcp-name", "mirrored").answered("1"),
        mismatch(tool("a region that is not in the head", r#"{"region":"eu"}"#), "missing"),
        mismatch(tool("a deep flag that is not in the head", r#"{"deep":{"flag":false}}"#), "missing"),
        mismatch(tool("a region twice", r#"{"region":"eu"}"#).set(region, "eu").add(region, "eu"), "once"),
        call("a parameter of another tool").set(region, "eu").answered("1"),
    ]);
    rows
}
