//! The identity of endpoints.

use super::*;

fn identity(endpoint: &str) -> String {
    let plan = read(&format!("[[endpoint]]\n{endpoint}\n"), &[("TOKEN", "x")], &[]).expect("no faults");
    plan.endpoints[0].identity.name().to_string()
}

/// Gateways of different versions share stores.
#[test]
fn the_hash_of_an_endpoint_never_changes() {
    for (endpoint, expect) in [
        ("demo = true", "eaf2f58528c31064"),
        ("upstream = \"http://127.0.0.1:8000/mcp\"", "78379abdab97af9c"),
        ("stdio = { command = \"here\", args = [\"a\"] }", "e0cc3eaf5c578560"),
    ] {
        assert_eq!(identity(endpoint), expect, "{endpoint}");
    }
}

#[test]
fn the_server_and_the_path_make_the_identity() {
    let same = [
        ["upstream = \"http://a/mcp\"", "upstream = [\"http://a/mcp\"]\nconcurrency = 1\nhosts = \"any\""],
        [
            "upstream = \"http://a/mcp\"",
            "upstream = \"http://A/mcp\"\nheaders = { Authorization = \"env:TOKEN\" }",
        ],
        ["upstream = \"http://a/mcp?key=1\"", "upstream = \"http://a/mcp?key=2\""],
        [
            "upstream = [\"http://a/mcp\", \"http://b/mcp\"]",
            "upstream = [\"http://b/mcp\", \"http://a/mcp\"]",
        ],
        [
            "stdio = { command = \"here\" }",
            "stdio = { command = \"here\", env = { A = \"b\" }, max_processes = 3 }",
        ],
        ["demo = true", "demo = true\npath = \"/mcp\""],
        ["demo = true\nid = \"x\"", "upstream = \"http://a/mcp\"\npath = \"/other\"\nid = \"x\""],
    ];
    for [one, other] in same {
        assert_eq!(identity(one), identity(other), "{one} {other}");
    }
    let different = [
        "demo = true",
        "demo = true\npath = \"/other\"",
        "demo = true\nid = \"x\"",
        "upstream = \"http://a/mcp\"",
        "upstream = \"http://a/mcp\"\npath = \"/other\"",
        "upstream = \"https://a/mcp\"",
        "upstream = \"http://a:81/mcp\"",
        "upstream = \"http://a/other\"",
        "upstream = [\"http://a/mcp\", \"http://b/mcp\"]",
        "stdio = { command = \"here\" }",
        "stdio = { command = \"here\", args = [\"a\", \"b\"] }",
        "stdio = { command = \"here\", args = [\"a b\"] }",
        "stdio = { command = \"here\", cwd = \"/folder\" }",
    ];
    let all: std::collections::BTreeSet<String> = different.into_iter().map(identity).collect();
    assert_eq!(all.len(), different.len(), "{all:?}");
}

#[test]
fn an_id_is_short_and_plain_and_of_one_endpoint() {
    let with = |id: &str| format!("[[endpoint]]\ndemo = true\nid = {id:?}\n");
    let longest = "x".repeat(64);
    for id in ["x", "files-server", "0123456789abcdef", "a/b:c", &longest] {
        check(&with(id), &[]);
    }
    for id in ["", "a b", "a\tb", "é", "a\"b", &"x".repeat(65)] {
        check(&with(id), &[&format!("f.toml:3:6: endpoint[0].id: {id:?} is not an identity")]);
    }
    let two = |id: &str| format!("{}[[endpoint]]\npath = \"/b\"\ndemo = true\n{id}", with("x"));
    check(&two(""), &[]);
    check(&two("id = \"y\""), &[]);
    check(
        &two("id = \"x\""),
        &["f.toml:7:6: endpoint[1].id: the endpoint /mcp has the identity \"x\" as well"],
    );
    check(
        "[defaults]\nid = \"x\"\n[[endpoint]]\ndemo = true",
        &["f.toml:2:6: defaults.id: endpoints cannot share it"],
    );
}
