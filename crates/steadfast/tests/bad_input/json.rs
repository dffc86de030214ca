//! Bodies that are not JSON, not JSON-RPC, or carry an id that is none.

use super::row::{Row, post};

/// Not JSON at all: 400, -32700. The whole body is shown.
const SYNTAX: &[(&str, &[u8])] = &[
    ("an empty body", b""),
    ("only white space", b" \r\n\t "),
    ("an object that does not end", br#"{"jsonrpc":"2.0","id":1,"method":"ping""#),
    ("an array that does not end", br#"[{"jsonrpc":"2.0","id":1,"method":"ping"}"#),
    ("a string that does not end", br#"{"jsonrpc":"2.0","id":1,"method":"pi"#),
    ("words", b"hello there"),
    ("something after the message", br#"{"jsonrpc":"2.0","id":1,"method":"ping"} x"#),
    ("two messages", br#"{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","id":2,"method":"ping"}"#),
    ("a comma too many", br#"{"jsonrpc":"2.0","id":1,"method":"ping",}"#),
    ("a comma too few", br#"{"jsonrpc":"2.0" "id":1,"method":"ping"}"#),
    ("single quotes", br#"{'jsonrpc':'2.0','id':1,'method':'ping'}"#),
    ("bare names", br#"{jsonrpc:"2.0",id:1,method:"ping"}"#),
    ("a comment", br#"{"jsonrpc":"2.0","id":1,/* hi */"method":"ping"}"#),
    ("not a number", br#"{"jsonrpc":"2.0","id":NaN,"method":"ping"}"#),
    ("a number with leading zeros", br#"{"jsonrpc":"2.0","id":01,"method":"ping"}"#),
    ("a number with a plus", br#"{"jsonrpc":"2.0","id":+1,"method":"ping"}"#),
    ("a number that ends in its point", br#"{"jsonrpc":"2.0","id":1.,"method":"ping"}"#),
    ("a line end inside a string", b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"pi\nng\"}"),
    ("a NUL inside a string", b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"pi\0ng\"}"),
    ("an escape that does not exist", br#"{"jsonrpc":"2.0","id":1,"method":"\x41"}"#),
    ("half a surrogate pair in the method", br#"{"jsonrpc":"2.0","id":1,"method":"\ud800"}"#),
    ("a byte order mark", b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}"),
    ("invalid UTF-8", b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"pi\xffng\"}"),
    ("overlong UTF-8", b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xc0\xafping\"}"),
    ("UTF-16", b"\xff\xfe{\0}\0"),
    ("compressed bytes", b"\x1f\x8b\x08\0\0\0\0\0\0\x03"),
    ("a form", b"jsonrpc=2.0&id=1&method=ping"),
];

/// JSON, but no JSON-RPC message: 400, -32600, and what the answer says.
const SHAPE: &[(&str, &str, &str)] = &[
    ("an empty object", "{}", "jsonrpc"),
    ("a number", "7", "JSON-RPC message"),
    ("a string", r#""ping""#, "JSON-RPC message"),
    ("null", "null", "JSON-RPC message"),
    ("true", "true", "JSON-RPC message"),
    ("no version", r#"{"id":1,"method":"ping"}"#, "jsonrpc"),
    ("version 1.0", r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, "jsonrpc"),
    ("a version that is a number", r#"{"jsonrpc":2.0,"id":1,"method":"ping"}"#, "JSON-RPC message"),
    ("a version that is null", r#"{"jsonrpc":null,"id":1,"method":"ping"}"#, "jsonrpc"),
    ("no method", r#"{"jsonrpc":"2.0","id":1}"#, "method"),
    ("a method that is a number", r#"{"jsonrpc":"2.0","id":1,"method":5}"#, "JSON-RPC message"),
    ("a method that is null", r#"{"jsonrpc":"2.0","id":1,"method":null}"#, "method"),
    ("a method that is a list", r#"{"jsonrpc":"2.0","id":1,"method":["ping"]}"#, "JSON-RPC message"),
    ("params that are a number", r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":1}"#, "params"),
    ("params that are a string", r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":"x"}"#, "params"),
    ("params that are null", r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":null}"#, "params"),
    ("two ids", r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#, "duplicate"),
    ("two methods", r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}"#, "duplicate"),
    ("a request with a result", r#"{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}"#, "both"),
    (
        "a result with an error",
        r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"m"}}"#,
        "both",
    ),
    ("an error that is a string", r#"{"jsonrpc":"2.0","id":1,"error":"no"}"#, "error"),
    ("an error without a code", r#"{"jsonrpc":"2.0","id":1,"error":{"message":"m"}}"#, "error"),
    ("an error with half a code", r#"{"jsonrpc":"2.0","id":1,"error":{"code":1.5,"message":"m"}}"#, "error"),
    ("an error without a message", r#"{"jsonrpc":"2.0","id":1,"error":{"code":1}}"#, "error"),
    ("a result without an id", r#"{"jsonrpc":"2.0","result":{}}"#, "id"),
];

/// Ids that are none: 400, -32600. There is no id that could be echoed.
const IDS: &[(&str, &str, &str)] = &[
    ("the id null", "null", "null"),
    ("the id true", "true", "string or an integer"),
    ("an object for an id", "{}", "string or an integer"),
    ("a list for an id", "[1]", "string or an integer"),
    ("a float for an id", "1.5", "integer"),
    ("a whole float for an id", "1.0", "integer"),
    ("an exponent in an id", "1e3", "integer"),
    ("an id of 64 bits and a bit", "9223372036854775808", "64 bits"),
    ("an id far below zero", "-9223372036854775809", "64 bits"),
    ("an id of a hundred digits", HUNDRED_DIGITS, "integer"),
    ("an id with half a surrogate pair", r#""\ud800""#, "string or an integer"),
];

const HUNDRED_DIGITS: &str =
    "1234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890";

/// Ids that look odd and are good. They come back as they mean, with their type.
const GOOD_IDS: &[(&str, &str, &str)] = &[
    ("the greatest id", "9223372036854775807", "9223372036854775807"),
    ("the least id", "-9223372036854775808", "-9223372036854775808"),
    ("minus zero for an id", "-0", "0"),
    ("an empty string for an id", r#""""#, r#""""#),
    ("a number in a string for an id", r#""1""#, r#""1""#),
    ("an id with escapes", r#""\u0041\n""#, r#""A\n""#),
    ("an id beyond ASCII", r#""ид-🦀""#, r#""ид-🦀""#),
];

pub(crate) fn rows() -> Vec<Row> {
    let syntax = SYNTAX.iter().map(|(name, body)| post(name).body(body).refused(400, -32700, "valid"));
    let shape = SHAPE.iter().map(|(name, body, says)| post(name).body(body).refused(400, -32600, says));
    let ids = IDS.iter().map(|(name, id, says)| post(name).body(ping(id)).refused(400, -32600, says));
    let good = GOOD_IDS.iter().map(|(name, id, echo)| post(name).body(ping(id)).served(echo));
    syntax.chain(shape).chain(ids).chain(good).chain(sizes()).collect()
}

fn ping(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)
}

fn sizes() -> Vec<Row> {
    let nested = |levels: usize| {
        let (open, close) = (r#"{"a":"#.repeat(levels), "}".repeat(levels));
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"a":{open}1{close}}}}}"#)
    };
    let brackets = "[".repeat(60_000);
    let many = (0..4_000).map(|i| format!(r#""k{i}":{i}"#)).collect::<Vec<_>>().join(",");
    vec![
        post("an id of 257 letters").body(ping(&format!("\"{}\"", "x".repeat(257)))).refused(
            400,
            -32600,
            "longer than 256",
        ),
        post("an id of half the body").body(ping(&format!("\"{}\"", "x".repeat(30_000)))).refused(
            400,
            -32600,
            "longer than 256",
        ),
        post("an object too deep").body(nested(127)).refused(400, -32600, "deeper than 128"),
        post("very many brackets").body(brackets).refused(400, -32600, "deeper than 128"),
        post("params with many keys")
            .body(format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{{many}}}}}"#))
            .served("1"),
        post("a very long string").body(format!("\"{}\"", "x\\n".repeat(20_000))).refused(
            400,
            -32600,
            "JSON-RPC message",
        ),
        post("a very long method that is none")
            .body(format!(r#"{{"jsonrpc":"2.0","id":1,"method":{{"{}":1}}}}"#, "x".repeat(50_000)))
            .refused(400, -32600, "JSON-RPC message"),
        post("an unknown member").body(r#"{"jsonrpc":"2.0","id":1,"method":"ping","x":[1,{}]}"#).served("1"),
        post("white space around the message").body(format!("\r\n\t {} \n", ping("1"))).served("1"),
        post("an unknown method").body(r#"{"jsonrpc":"2.0","id":1,"method":"no/such"}"#).failed("1", -32601),
        post("a method that would break a log line")
            .body(r#"{"jsonrpc":"2.0","id":1,"method":"x\r\n\u001b[31mERROR\u2028"}"#)
            .failed("1", -32601),
        post("params of the wrong kind")
            .body(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":5}}"#)
            .failed("1", -32602),
        post("a list of params")
            .body(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":["echo"]}"#)
            .failed("1", -32602),
        post("no such tool")
            .body(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"no"}}"#)
            .failed("1", -32602),
    ]
}
