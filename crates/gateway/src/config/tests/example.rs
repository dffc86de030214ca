//! The examples. `docs/steadfast.toml` is generated from the schema, so it has every key with its
//! description and default.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json};

use super::*;
use crate::cli::{EXAMPLE as SHORT_EXAMPLE, FULL_EXAMPLE as EXAMPLE};
use crate::config::parse::json_schema as keys;

const OPENING: [&str; 3] = [
    "Every key of `steadfast serve --config FILE`. A line that is commented out shows the default, or an example where \
     there is no default. Durations are \"500ms\", \"30s\", \"1h30m\"; sizes are \"64KiB\", \"4MiB\".",
    "`steadfast config check FILE` reports mistakes. An environment variable overrides a key: STEADFAST__ and the path of \
     the key in capitals, with two underscores between a table and its key, such as STEADFAST__ADMIN__LISTEN or \
     STEADFAST__DEFAULTS__AUTH. Keys of [[endpoint]] cannot be set in this way.",
    "The gateway reloads the file within two seconds after a change, or at once on SIGHUP. A key takes effect without a \
     restart unless its description says otherwise.",
];

/// Values for keys without a default, and better examples for some others.
const SAMPLES: [(&str, &str); 18] = [
    ("id", "\"files-server\""),
    ("store", "\"sqlite:/var/lib/steadfast/sessions.db\""),
    ("tls.certificate", "\"/etc/steadfast/cert.pem\""),
    ("tls.key", "\"/etc/steadfast/key.pem\""),
    ("admin.listen", "\"127.0.0.1:7412\""),
    ("headers", "{ Authorization = \"env:SERVER_TOKEN\" }"),
    ("stdio", "{ command = \"uvx\", args = [\"mcp-server-git\"], inherit_env = [\"GITHUB_TOKEN\"] }"),
    ("endpoint.upstream_tls.ca", "\"/etc/steadfast/ca.pem\""),
    ("endpoint.upstream_tls.certificate", "\"/etc/steadfast/client.pem\""),
    ("endpoint.upstream_tls.key", "\"/etc/steadfast/client-key.pem\""),
    ("endpoint.jwt.issuer", "\"https://id.example.com\""),
    ("endpoint.jwt.resource", "\"https://mcp.example.com/mcp\""),
    ("endpoint.jwt.jwks", "\"https://id.example.com/jwks.json\""),
    ("endpoint.jwt.jwks_ca", "\"/etc/steadfast/id-ca.pem\""),
    ("endpoint.jwt.scopes", "[\"mcp:use\"]"),
    ("endpoint.timeouts.control", "\"30s\""),
    ("hosts", "[\"mcp.example.com\"]"),
    ("origins", "[\"https://app.example.com\"]"),
];

/// Keys of a program, which are written as one inline table.
const STDIO_DEFAULTS: &str = "Further keys of `stdio`, with their defaults:";

fn example() -> String {
    let schema = schema();
    let mut text = OPENING.map(comment).join("#\n") + "\n";
    let root = properties(&schema, &schema);
    let (tables, plain): (Vec<_>, Vec<_>) = root.iter().partition(|(_, node)| is_table(&schema, node));
    for (key, node) in plain.into_iter().filter(|(key, _)| *key != "endpoint") {
        one(&mut text, "", key, node);
    }
    for (key, node) in tables.into_iter().filter(|(key, _)| *key != "defaults") {
        table(&mut text, &schema, key, node, if key == "tls" { "#" } else { "" });
    }
    let words = "Values for every endpoint that does not set them itself: every key below except `path`, `id`, `upstream`, `stdio` and `demo`.";
    write!(text, "{}[defaults]\n\n", comment(words)).unwrap();
    endpoint(&mut text, &schema, &root["defaults"]);
    text.trim_end().to_owned() + "\n"
}

fn endpoint(text: &mut String, schema: &Json, node: &Json) {
    writeln!(text, "{}[[endpoint]]", comment("One endpoint. There can be several.")).unwrap();
    let all = properties(schema, node);
    for (key, value) in [("path", "\"/mcp\""), ("upstream", "\"http://127.0.0.1:8000/mcp\"")] {
        write!(text, "{}{key} = {value}\n\n", comment(words(&all[key]))).unwrap();
    }
    let first = ["path", "upstream"];
    let (tables, plain): (Vec<_>, Vec<_>) = all
        .iter()
        .filter(|(key, _)| !first.contains(&key.as_str()))
        .partition(|(key, node)| is_table(schema, node) && *key != "stdio");
    for (key, node) in plain {
        one(text, "", key, node);
        if key == "stdio" {
            stdio(text, schema, node);
        }
    }
    for (key, node) in tables {
        table(text, schema, &format!("endpoint.{key}"), node, "");
    }
}

/// Describes the keys of a program in comments.
fn stdio(text: &mut String, schema: &Json, node: &Json) {
    *text += &comment(STDIO_DEFAULTS);
    for (name, node) in &properties(schema, node) {
        let default = node.get("default").filter(|default| !default.is_null());
        let default = default.map_or_else(String::new, |default| format!(" Default: {default}."));
        *text += &comment(&format!("- `{name}`: {}{default}", words(node))).replace("\n# ", "\n#   ");
    }
    text.push('\n');
}

fn table(text: &mut String, schema: &Json, key: &str, node: &Json, mark: &str) {
    writeln!(text, "{}{mark}[{key}]", comment(words(node))).unwrap();
    for (name, node) in &properties(schema, node) {
        one(text, key, name, node);
    }
}

fn one(text: &mut String, table: &str, key: &str, node: &Json) {
    let whole = if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") };
    let sample = SAMPLES.iter().find(|(name, _)| *name == whole);
    let value = sample.map_or_else(|| node["default"].to_string(), |(_, sample)| (*sample).to_owned());
    write!(text, "{}#{key} = {value}\n\n", comment(words(node))).unwrap();
}

fn properties(schema: &Json, node: &Json) -> Map<String, Json> {
    let names = keys::keys(schema, node).unwrap_or_default();
    names
        .into_iter()
        .filter_map(|key| Some((key.to_owned(), keys::property(schema, node, key)?.clone())))
        .collect()
}

fn is_table(schema: &Json, node: &Json) -> bool {
    keys::keys(schema, node).is_some()
}

fn words(node: &Json) -> &str {
    node["description"].as_str().expect("a description")
}

/// Wraps a text at 100 columns.
fn comment(words: &str) -> String {
    let mut lines = vec![String::from("#")];
    for word in words.split_whitespace() {
        let fits = lines.last().is_some_and(|line| line.len() + word.len() < 100);
        if !fits {
            lines.push(String::from("#"));
        }
        if let Some(line) = lines.last_mut() {
            *line += &format!(" {word}");
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn the_full_example_is_generated_from_the_schema() {
    let example = example();
    if let Some(path) = std::env::var_os("STEADFAST_WRITE_EXAMPLE") {
        std::fs::write(path, &example).unwrap();
    }
    assert!(
        example == EXAMPLE,
        "generate it again: STEADFAST_WRITE_EXAMPLE=$PWD/docs/steadfast.toml cargo test example"
    );
}

#[test]
fn the_full_example_has_no_faults() {
    let plan = read(EXAMPLE, &[], &[]).expect("no faults");
    assert_eq!(plan.endpoints.len(), 1);
}

/// Every line that is commented out is valid, and sets the default unless it is a sample.
#[test]
fn the_commented_lines_of_the_full_example_are_valid() {
    let all: Vec<String> = EXAMPLE
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(key) if !key.starts_with(' ') && !key.is_empty() => key.to_owned(),
            _ => line.to_owned(),
        })
        .collect();
    // Two servers behind one endpoint, and missing certificate files, are faults.
    let tls = all.iter().position(|line| line == "[tls]").unwrap();
    let tls = tls..all.iter().position(|line| line == "[defaults]").unwrap();
    let absent = ["stdio = ", "ca = ", "certificate = ", "key = ", "jwks_ca = "];
    let kept = all
        .iter()
        .enumerate()
        .filter(|(at, line)| !tls.contains(at) && !absent.iter().any(|start| line.starts_with(start)));
    let text: String = kept.map(|(_, line)| format!("{line}\n")).collect();
    // `[endpoint.jwt]` needs `auth = "jwt"`.
    let text = text.replace("\nauth = \"none\"\n", "\nauth = \"jwt\"\n");
    let plan =
        read(&text, &[("SERVER_TOKEN", "Bearer x")], &[]).unwrap_or_else(|faults| panic!("{faults:?}"));
    let plain = read(EXAMPLE, &[], &[]).unwrap();
    assert_eq!(plan.rules, plain.rules);
    assert_eq!(format!("{:?}", plan.listener), format!("{:?}", plain.listener));
    let (every, none) = (&plan.endpoints[0], &plain.endpoints[0]);
    assert_eq!(format!("{:?}", every.options), format!("{:?}", none.options));
    assert_eq!(every.http().max_request_bytes, none.http().max_request_bytes);
}

/// People read the short example, so it must fit on two screens, and its commented lines must be
/// valid.
#[test]
fn the_short_example_is_short_and_valid() {
    assert!(SHORT_EXAMPLE.lines().count() <= 80);
    let plan = read(SHORT_EXAMPLE, &[], &[]).expect("no faults");
    assert_eq!(plan.endpoints.len(), 1);
    let mut text = String::new();
    let alternatives =
        ["#store = \"redis", "#store = \"postgres", "#upstream = [", "#[tls]", "#certificate", "#key = "];
    for line in SHORT_EXAMPLE.lines().filter(|line| !alternatives.iter().any(|start| line.starts_with(start)))
    {
        let commented = line.strip_prefix('#').filter(|rest| !rest.starts_with(' '));
        text += commented.unwrap_or(line);
        text.push('\n');
    }
    let plan = read(&text, &[("SERVER_TOKEN", "Bearer x"), ("GITHUB_TOKEN", "x")], &[]);
    let plan = plan.unwrap_or_else(|faults| panic!("{faults:?}"));
    assert_eq!(plan.endpoints.len(), 3);
    let default = read(UPSTREAM, &[], &[]).expect("a plan");
    assert_eq!((plan.rules, plan.drain), (default.rules, default.drain));
    assert_eq!(plan.endpoints[0].http().max_request_bytes, default.endpoints[0].http().max_request_bytes);
    assert_eq!(format!("{:?}", plan.endpoints[0].options), format!("{:?}", default.endpoints[0].options));
}
