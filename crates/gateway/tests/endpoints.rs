//! Several endpoints in one process: they share the store and no sessions.

mod support;

use support::{Server, get, messages, note};

const TWO: &str = "
listen = \"127.0.0.1:0\"

[[endpoint]]
path = \"/a\"
demo = true

[[endpoint]]
path = \"/b\"
demo = true
";

fn start(store: &str) -> (tempfile::TempDir, Server) {
    let directory = tempfile::tempdir().expect("a folder");
    let file = directory.path().join("steadfast.toml");
    std::fs::write(&file, TWO).expect("a file");
    let store = if store == "sqlite" {
        format!("sqlite:{}", directory.path().join("s.db").display())
    } else {
        store.to_owned()
    };
    let server = Server::serve(&["--config", file.to_str().expect("a path of text"), "--store", &store]);
    (directory, server)
}

#[test]
fn a_session_of_one_endpoint_is_unknown_at_another() {
    for store in ["memory:", "sqlite"] {
        let (_directory, server) = start(store);
        let (a, b) = (server.at("/a"), server.at("/b"));
        let session = a.open_session();
        assert!(a.post(Some(&session), &note("mine")).read_to_end().contains("You have 1 note(s)."));
        for reply in [
            b.post(Some(&session), &note("not yours")),
            b.send("GET", Some(&session), "", ""),
            b.send("DELETE", Some(&session), "", ""),
        ] {
            let reply = reply.read_to_end();
            assert!(reply.starts_with("HTTP/1.1 404"), "{store}: {reply}");
            assert!(reply.contains("There is no such session."), "{store}: {reply}");
        }
        let other = b.open_session();
        assert!(b.post(Some(&other), &note("own")).read_to_end().contains("You have 1 note(s)."));
        let answer = a.post(Some(&session), &note("more")).read_to_end();
        assert!(messages(&answer).last().unwrap().to_string().contains("You have 2 note(s)."), "{answer}");
        assert!(a.send("DELETE", Some(&session), "", "").read_to_end().starts_with("HTTP/1.1 204"));
        assert!(b.post(Some(&other), &note("still")).read_to_end().contains("You have 2 note(s)."));
    }
}

#[test]
fn a_path_without_an_endpoint_is_404_and_names_no_other_path() {
    let (_directory, server) = start("memory:");
    for path in ["/", "/mcp", "/a/", "/ab", "/A", "/a%2f", "/metrics"] {
        let reply = server.at(path).send("GET", None, "", "").read_to_end();
        assert!(reply.starts_with("HTTP/1.1 404"), "{path}: {reply}");
        assert!(reply.ends_with(
            r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"There is no MCP endpoint at this path. Check the URL."}}"#
        ), "{path}: {reply}");
    }
}

#[test]
fn every_address_serves_every_endpoint() {
    let directory = tempfile::tempdir().unwrap();
    let (file, log) = (directory.path().join("steadfast.toml"), directory.path().join("log"));
    std::fs::write(&file, "listen = \"192.0.2.1:1\"\nstore = \"memory:\"\n[[endpoint]]\ndemo = true")
        .unwrap();
    let variables = [
        ("STEADFAST__LISTEN", "[\"127.0.0.1:0\", \"127.0.0.1:0\"]"),
        ("STEADFAST__ADMIN__LISTEN", "127.0.0.1:0"),
        ("STEADFAST__DEFAULTS__MAX_REQUEST_BYTES", "1KiB"),
    ];
    let server = Server::serve_logged(&["--config", file.to_str().unwrap()], &log, &variables);
    let urls: Vec<&str> = server.banner().lines().filter_map(|line| line.strip_prefix("  URL    ")).collect();
    assert_eq!(urls.len(), 2, "{urls:?}");
    let session = server.open_session();
    let second = urls[1].trim_start_matches("http://").trim_end_matches("/mcp").parse().unwrap();
    assert!(get(second, "/mcp").starts_with("HTTP/1.1 406"), "the second address is served");
    assert!(get(server.admin(), "/healthz").starts_with("HTTP/1.1 200"));
    let large = note(&"x".repeat(2000));
    assert!(server.post(Some(&session), &large).read_to_end().starts_with("HTTP/1.1 413"));
}
