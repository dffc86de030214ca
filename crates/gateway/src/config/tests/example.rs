//! The example file is written from the schema, so that it has every key with its own words and its own default.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json};

use super::*;
use crate::config::schema as keys;

const EXAMPLE: &str = include_str!("../../../../../docs/steadfast.toml");

const OPENING: &str = "\
# The configuration of `steadfast serve --config FILE`. Everything that is commented out shows its default, or an example where
# there is none. Times are \"500ms\", \"30s\", \"1h30m\"; sizes are \"64KiB\", \"4MiB\".
#
# `steadfast config check FILE` finds mistakes. Every key but those of [[endpoint]] can also be set by a variable of the
# environment, which goes before the file: STEADFAST__ and its path in capitals, with two underscores between a table and its key,
# as STEADFAST__ADMIN__LISTEN or STEADFAST__DEFAULTS__AUTH.
# The file is followed: a change takes effect within a second or two, or at once with SIGHUP. What is written here needs no restart
# unless it says so.

";

/// Values for keys that have no default, and nicer ones for some that have.
const SAMPLES: [(&str, &str); 20] = [
    ("id", "\"files-server\""),
    ("store", "\"sqlite:/var/lib/steadfast/sessions.db\""),
    ("tls.certificate", "\"/etc/steadfast/cert.pem\""),
    ("tls.key", "\"/etc/steadfast/key.pem\""),
    ("admin.listen", "\"127.0.0.1:7412\""),
    ("concurrency", "1"),
    ("endpoint.http.max_connection_age", "\"10m\""),
    ("headers", "{ Authorization = \"env:SERVER_TOKEN\" }"),
    (
        "stdio",
        "{ command = \"npx\", args = [\"-y\", \"@modelcontextprotocol/server-everything\", \"stdio\"] }",
    ),
    ("ca", "\"/etc/steadfast/ca.pem\""),
    ("client_certificate", "\"/etc/steadfast/client.pem\""),
    ("client_key", "\"/etc/steadfast/client-key.pem\""),
    ("endpoint.jwt.issuer", "\"https://id.example.com\""),
    ("endpoint.jwt.resource", "\"https://mcp.example.com/mcp\""),
    ("endpoint.jwt.keys", "\"https://id.example.com/jwks.json\""),
    ("endpoint.jwt.scopes", "[\"mcp:use\"]"),
    ("endpoint.jwt.keys_ca", "\"/etc/steadfast/id-ca.pem\""),
    ("endpoint.timeouts.control", "\"30s\""),
    ("hosts", "[\"mcp.example.com\"]"),
    ("origins", "[\"https://app.example.com\"]"),
];

fn example() -> String {
    let schema = schema();
    let mut text = OPENING.to_owned();
    let root = properties(&schema, &schema);
    let (tables, plain): (Vec<_>, Vec<_>) = root.iter().partition(|(_, node)| is_table(&schema, node));
    for (key, node) in plain.into_iter().filter(|(key, _)| *key != "endpoint") {
        one(&mut text, "", key, node);
    }
    for (key, node) in tables.into_iter().filter(|(key, _)| *key != "defaults") {
        table(&mut text, &schema, key, node, if key == "tls" { "#" } else { "" });
    }
    let words = "What holds for every endpoint that does not say otherwise: anything below but `path`, `id`, `upstream`, `stdio` and `demo`.";
    write!(text, "{}[defaults]\n\n", comment(words)).unwrap();
    endpoint(&mut text, &schema, &root["defaults"]);
    text.trim_end().to_owned() + "\n"
}

fn endpoint(text: &mut String, schema: &Json, node: &Json) {
    writeln!(text, "{}[[endpoint]]", comment("One endpoint; there can be any number.")).unwrap();
    let all = properties(schema, node);
    for (key, value) in [("path", "\"/mcp\""), ("upstream", "\"http://127.0.0.1:8000/mcp\"")] {
        write!(text, "{}{key} = {value}\n\n", comment(words(&all[key]))).unwrap();
    }
    let first = ["path", "upstream"];
    let (tables, plain): (Vec<_>, Vec<_>) =
        all.iter().filter(|(key, _)| !first.contains(&key.as_str())).partition(|(key, node)| {
            is_table(schema, node) && !["stdio", "headers", "auth"].contains(&key.as_str())
        });
    for (key, node) in plain {
        one(text, "", key, node);
    }
    for (key, node) in tables {
        table(text, schema, &format!("endpoint.{key}"), node, "");
    }
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
    node["description"].as_str().unwrap_or("Its arguments.")
}

/// In lines that fit.
fn comment(words: &str) -> String {
    let mut lines = vec![String::from("#")];
    for word in words.split_whitespace() {
        let fits = lines.last().is_some_and(|line| line.len() + word.len() < 120);
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
fn the_example_is_what_the_schema_says() {
    let example = example();
    if let Some(place) = std::env::var_os("STEADFAST_WRITE_EXAMPLE") {
        std::fs::write(place, &example).unwrap();
    }
    assert!(
        example == EXAMPLE,
        "write it again: STEADFAST_WRITE_EXAMPLE=$PWD/docs/steadfast.toml cargo test example"
    );
}

#[test]
fn the_example_can_be_used() {
    let plan = read(EXAMPLE, &[], &[]).expect("no faults");
    assert_eq!(plan.endpoints.len(), 1);
}

/// Everything that is commented out can be said, and but for the samples it says what holds anyway.
#[test]
fn what_the_example_comments_out_is_right() {
    let said: Vec<String> = EXAMPLE
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(key) if !key.starts_with(' ') && !key.is_empty() => key.to_owned(),
            _ => line.to_owned(),
        })
        .collect();
    // Two servers behind one endpoint, and files of a certificate that are not there, would be faults of their own.
    let tls = said.iter().position(|line| line == "[tls]").unwrap();
    let tls = tls..said.iter().position(|line| line == "[defaults]").unwrap();
    let absent = ["stdio = ", "ca = ", "client_certificate = ", "client_key = ", "keys_ca = "];
    let kept = said
        .iter()
        .enumerate()
        .filter(|(at, line)| !tls.contains(at) && !absent.iter().any(|start| line.starts_with(start)));
    let text: String = kept.map(|(_, line)| format!("{line}\n")).collect();
    // What is said of tokens is for those who ask for them.
    let text = text.replace("\nauth = \"none\"\n", "\nauth = \"jwt\"\n");
    let plan =
        read(&text, &[("SERVER_TOKEN", "Bearer x")], &[]).unwrap_or_else(|faults| panic!("{faults:?}"));
    let plain = read(EXAMPLE, &[], &[]).unwrap();
    assert_eq!(plan.rules, plain.rules);
    assert_eq!(format!("{:?}", plan.listener), format!("{:?}", plain.listener));
    let (all, none) = (&plan.endpoints[0], &plain.endpoints[0]);
    assert_eq!(format!("{:?}", all.options()), format!("{:?}", none.options()));
    assert_eq!(all.http().max_body_bytes, none.http().max_body_bytes);
    assert_eq!(all.http().max_connection_age, Some(Duration::from_secs(600)), "a sample");
}
