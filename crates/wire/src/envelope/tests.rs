use super::*;

fn kind(text: &str) -> String {
    match Body::parse(text.as_bytes(), 3) {
        Ok(Body::One(message)) => describe(&message),
        Ok(Body::Batch(messages)) => messages.iter().map(describe).collect::<Vec<_>>().join(" + "),
        Err(error) => format!("{} {error}", error.code()),
    }
}

fn describe(message: &Message<'_>) -> String {
    match &message.kind {
        MessageKind::Request(id) => format!("request {id} {}", message.method),
        MessageKind::Notification => format!("notification {}", message.method),
        MessageKind::Response(Some(id)) => format!("response {id}"),
        MessageKind::Response(None) => "response without id".to_owned(),
    }
}

#[test]
fn the_kind_of_a_message_is_recognised() {
    for (text, expect) in [
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "request 1 ping"),
        (r#" {"id":"1","method":"a","jsonrpc":"2.0","params":{}} "#, "request \"1\" a"),
        (
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            "notification notifications/initialized",
        ),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "response 1"),
        (r#"{"jsonrpc":"2.0","id":1,"result":null}"#, "response 1"),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}"#, "response 1"),
        (r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}"#, "response without id"),
        (r#"{"jsonrpc":"2.0","error":{"code":1,"message":"m"}}"#, "response without id"),
        (
            r#"[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","method":"b"}]"#,
            "request 1 a + notification b",
        ),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m\u0041"}"#, "request 1 mA"),
    ] {
        assert_eq!(kind(text), expect, "{text}");
    }
}

#[test]
fn invalid_messages_get_the_right_error_code() {
    for (text, code) in [
        ("", -32700),
        ("{", -32700),
        ("nonsense", -32700),
        ("{}", -32600),
        ("[]", -32600),
        ("1", -32600),
        ("\"x\"", -32600),
        ("null", -32600),
        ("[1]", -32600),
        (r#"[["2.0",1,"a"]]"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"error":[1,"m"]}"#, -32600),
        ("[1,", -32700),
        ("[1,1,1,1,", -32700),
        ("[1,1,1,1]x", -32700),
        (r#"{"jsonrpc":"1.0","id":1,"method":"a"}"#, -32600),
        (r#"{"id":1,"method":"a"}"#, -32600),
        (r#"{"jsonrpc":2.0,"id":1,"method":"a"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":null,"method":"a"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"a"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":{},"method":"a"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"a","result":{}}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"m"}}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":"1","message":"m"}}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"error":"no"}"#, -32600),
        (r#"{"jsonrpc":"2.0","result":{}}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"a","params":3}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"a"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"a"} x"#, -32700),
    ] {
        assert!(kind(text).starts_with(&code.to_string()), "{text}: {}", kind(text));
    }
}

#[test]
fn batches_and_nesting_are_limited() {
    let one = r#"{"jsonrpc":"2.0","method":"a"}"#;
    assert!(kind(&format!("[{one},{one},{one},{one}]")).contains("more than 3"));
    let nest = |n: usize| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"a","params":{}{}}}"#, "[".repeat(n), "]".repeat(n))
    };
    assert_eq!(kind(&nest(MAX_DEPTH - 1)), "request 1 a");
    assert!(kind(&nest(MAX_DEPTH)).contains("nests deeper"));
    let quoted =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"a","params":{{"x":"\"{}"}}}}"#, "[".repeat(500));
    assert_eq!(kind(&quoted), "request 1 a");
    assert!(matches!(
        Body::parse(b"{\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}", 1),
        Err(EnvelopeError::NotUtf8)
    ));
}
