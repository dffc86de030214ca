use serde_json::json;

use super::*;

#[test]
fn values_round_trip_through_a_header() {
    for (value, expect) in [
        ("", ""),
        ("us-west1", "us-west1"),
        ("a b", "a b"),
        (" a", "=?base64?IGE=?="),
        ("a ", "=?base64?YSA=?="),
        ("\ta", "=?base64?CWE=?="),
        ("a\tb", "=?base64?YQli?="),
        ("a\nb", "=?base64?YQpi?="),
        ("a\u{7f}", "=?base64?YX8=?="),
        ("Zürich", "=?base64?WsO8cmljaA==?="),
        ("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?="),
        ("=?base64?=", "=?base64?PT9iYXNlNjQ/PQ==?="),
        ("=?base64?YQ==", "=?base64?YQ=="),
        ("=?BASE64?YQ==?=", "=?BASE64?YQ==?="),
    ] {
        assert_eq!(encode(value), expect, "{value:?}");
        assert_eq!(decode(expect).as_deref(), Ok(value), "{value:?}");
    }
}

#[test]
fn markers_are_exact_and_their_content_is_checked() {
    for (header, expect) in [
        ("=?base64?SGVsbG8=?=", Ok("Hello")),
        ("=?base64??=", Ok("")),
        ("=?Base64?SGVsbG8=?=", Ok("=?Base64?SGVsbG8=?=")),
        ("SGVsbG8=?=", Ok("SGVsbG8=?=")),
        ("=?base64?SGVsbG8=", Ok("=?base64?SGVsbG8=")),
        ("=?base64?=", Ok("=?base64?=")),
        ("=?base64?SGVsbG8?=", Err(BadEncoding::Base64)),
        ("=?base64?SGVs!G8=?=", Err(BadEncoding::Base64)),
        ("=?base64?SGVs bG8=?=", Err(BadEncoding::Base64)),
        ("=?base64?_-8=?=", Err(BadEncoding::Base64)),
        ("=?base64?/w==?=", Err(BadEncoding::NotUtf8)),
    ] {
        assert_eq!(decode(header), expect.map(Cow::Borrowed), "{header}");
    }
}

#[test]
fn each_method_has_one_name_member() {
    for (method, expect) in [
        ("tools/call", Some("name")),
        ("prompts/get", Some("name")),
        ("resources/read", Some("uri")),
        ("tasks/get", Some("taskId")),
        ("tasks/update", Some("taskId")),
        ("tasks/cancel", Some("taskId")),
        ("tools/list", None),
        ("TOOLS/CALL", None),
    ] {
        assert_eq!(name_member(method), expect, "{method}");
    }
}

#[test]
fn arguments_are_converted_to_text() {
    for (value, expect) in [
        (json!("x y"), Some("x y")),
        (json!(""), Some("")),
        (json!(true), Some("true")),
        (json!(false), Some("false")),
        (json!(42), Some("42")),
        (json!(-7), Some("-7")),
        (json!(42.0), Some("42")),
        (json!(9_007_199_254_740_991_i64), Some("9007199254740991")),
        (json!(-9_007_199_254_740_991_i64), Some("-9007199254740991")),
        (json!(9_007_199_254_740_992_i64), None),
        (json!(i64::MIN), None),
        (json!(u64::MAX), None),
        (json!(0.5), None),
        (json!(null), None),
        (json!([1]), None),
        (json!({}), None),
    ] {
        assert_eq!(argument_text(&value).as_deref(), expect, "{value}");
    }
}

#[test]
fn headers_are_compared_by_the_type_of_the_argument() {
    for (text, value, expect) in [
        ("42", json!(42), true),
        ("42.0", json!(42), true),
        ("42", json!(42.0), true),
        ("4.2e1", json!(42), true),
        ("-0", json!(0), true),
        ("42.5", json!(42), false),
        ("042", json!(42), false),
        ("", json!(0), false),
        ("43", json!(42), false),
        ("9007199254740993", json!(9_007_199_254_740_992_i64), false),
        ("42.0", json!("42"), false),
        ("42", json!("42"), true),
        ("True", json!(true), false),
        ("true", json!(true), true),
        ("A", json!("a"), false),
        ("null", json!(null), false),
        ("[1]", json!([1]), false),
    ] {
        assert_eq!(matches(text, &value), expect, "{text} for {value}");
    }
}

/// Compares the annotations of a schema with `expect`, written as `header=path`.
fn check(schema: Value, expect: Result<&[&str], BadAnnotation>) {
    let found = annotations(&schema).map(|found| {
        found.iter().map(|one| format!("{}={}", one.header, one.path.join("."))).collect::<Vec<_>>()
    });
    let expect = expect.map(|list| list.iter().map(|one| (*one).to_owned()).collect());
    assert_eq!(found, expect, "{schema}");
}

fn property(annotation: Value, of_type: Value) -> Value {
    json!({"type": "object", "properties": {"p": {"type": of_type, "x-mcp-header": annotation}}})
}

fn at(path: &str) -> String {
    path.to_owned()
}

#[test]
fn annotations_are_found_through_properties() {
    check(json!(true), Ok(&[]));
    check(json!({"type": "object"}), Ok(&[]));
    check(property(json!("Region"), json!("string")), Ok(&["mcp-param-region=p"]));
    check(property(json!("n"), json!("integer")), Ok(&["mcp-param-n=p"]));
    check(property(json!("n"), json!("boolean")), Ok(&["mcp-param-n=p"]));
    check(
        json!({"properties": {"a": {"properties": {"b": {"type": "string", "x-mcp-header": "X"}}}}}),
        Ok(&["mcp-param-x=a.b"]),
    );
    // The name of a parameter may equal the annotation, and data may look like a schema.
    check(json!({"properties": {"x-mcp-header": {"type": "string"}}}), Ok(&[]));
    check(json!({"$defs": {"x-mcp-header": {"type": "string"}}}), Ok(&[]));
    check(json!({"default": {"x-mcp-header": 5}, "enum": [{"x-mcp-header": 5}]}), Ok(&[]));
}

#[test]
fn one_invalid_annotation_makes_the_tool_unusable() {
    use BadAnnotation::{Empty, NotAToken, NotPrimitive, NotText, Repeated};
    check(property(json!(""), json!("string")), Err(Empty { at: at("p") }));
    check(property(json!(5), json!("string")), Err(NotText { at: at("p") }));
    for name in ["a b", "a:b", "a\r\nb", "ü", "a\u{1}"] {
        check(property(json!(name), json!("string")), Err(NotAToken { at: at("p") }));
    }
    for of_type in
        [json!("number"), json!("object"), json!("array"), json!("null"), json!(["string"]), json!(1)]
    {
        check(property(json!("X"), of_type), Err(NotPrimitive { at: at("p") }));
    }
    check(json!({"type": "string", "x-mcp-header": "X"}), Err(NotPrimitive { at: at("") }));
    check(
        json!({"properties": {
            "a": {"type": "string", "x-mcp-header": "Same"},
            "b": {"properties": {"c": {"type": "string", "x-mcp-header": "same"}}},
        }}),
        Err(Repeated { at: at("b.c") }),
    );
}

#[test]
fn unreachable_annotations_make_the_tool_unusable() {
    let bad = json!({"type": "string", "x-mcp-header": "X"});
    for unreachable in [
        json!({"items": bad}),
        json!({"anyOf": [bad]}),
        json!({"oneOf": [{"properties": {"q": bad}}]}),
        json!({"allOf": [{"not": bad}]}),
        json!({"if": bad}),
        json!({"then": {"properties": {"x": bad}}}),
        json!({"else": bad}),
        json!({"$defs": {"D": bad}}),
        json!({"additionalProperties": bad}),
        json!({"patternProperties": {"^a": bad}}),
        json!({"unknown-keyword": {"deep": [bad]}}),
    ] {
        check(json!({"properties": {"p": unreachable}}), Err(BadAnnotation::Unreachable { at: at("p") }));
    }
}

#[test]
fn the_number_of_annotations_is_limited() {
    let schema = |count: usize| {
        let one = |n| (format!("p{n}"), json!({"type": "string", "x-mcp-header": format!("h{n}")}));
        json!({"properties": (0..count).map(one).collect::<Map<_, _>>()})
    };
    assert_eq!(annotations(&schema(MAX_ANNOTATIONS)).map(|found| found.len()), Ok(MAX_ANNOTATIONS));
    check(schema(MAX_ANNOTATIONS + 1), Err(BadAnnotation::TooMany));
}

#[test]
fn values_are_found_at_their_path() {
    let arguments = json!({"a": {"b": 5, "n": null}, "s": "x"});
    for (path, expect) in [
        (&["s"][..], Some(json!("x"))),
        (&["a", "b"], Some(json!(5))),
        (&["a", "n"], None),
        (&["a", "z"], None),
        (&["s", "b"], None),
        (&["z"], None),
        (&[], None),
    ] {
        let path = path.iter().map(|name| (*name).to_owned()).collect();
        let annotation = Annotation { header: String::new(), path };
        assert_eq!(annotation.value(arguments.as_object().unwrap()), expect.as_ref(), "{annotation:?}");
    }
}
