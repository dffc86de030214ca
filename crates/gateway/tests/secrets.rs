//! No log at any level, no metric and no banner contains a token, a configured secret or a session
//! id.
#![cfg(unix)]

mod support;

use std::fmt::Write as _;

use support::{Server, countdown, eventually, get, note};

/// Three parts, so that the verifier does not stop at once.
const TOKEN: &str = "eyJhbGciOiJFZERTQSJ9.t0ken-of-a-client.AAAA";
const KEY: &str = "k3y-of-the-gateway";
const ENV: &str = "v4lue-for-a-program";

fn config(upstream: &str, more: &str) -> String {
    let mut text = String::from("listen = \"127.0.0.1:0\"\nadmin.listen = \"127.0.0.1:0\"\n");
    writeln!(text, "[[endpoint]]\npath = \"/forward\"\nauth = \"forward\"\nupstream = \"{upstream}\"")
        .expect("text");
    writeln!(text, "[[endpoint]]\npath = \"/own\"\nupstream = \"{upstream}\"").expect("text");
    writeln!(text, "headers = {{ Authorization = \"env:KEY\", X-Key = \"env:KEY\" }}").expect("text");
    writeln!(text, "[[endpoint]]\npath = \"/program\"\nstdio = {{ command = \"no-such-program\", env = {{ A = \"env:VALUE\" }} }}\ntimeouts.unavailable = \"10ms\"").expect("text");
    writeln!(
        text,
        "[[endpoint]]\npath = \"/gone\"\nupstream = \"http://127.0.0.1:1/mcp\"\ntimeouts.unavailable = \"10ms\""
    )
    .expect("text");
    writeln!(
        text,
        "[[endpoint]]\npath = \"/jwt\"\ndemo = true\nauth = \"jwt\"\n[endpoint.jwt]\nissuer = \"i\""
    )
    .expect("text");
    writeln!(text, "resource = \"http://localhost/jwt\"\njwks = \"http://127.0.0.1:1/keys\"").expect("text");
    text + more
}

#[test]
fn no_secret_is_logged() {
    let directory = tempfile::tempdir().unwrap();
    let (file, log) = (directory.path().join("steadfast.toml"), directory.path().join("log"));
    let demo = Server::start_with(&["--store", "memory:"]);
    let upstream = format!("http://{}/mcp", demo.address());
    std::fs::write(&file, config(&upstream, "")).unwrap();
    let store = format!("sqlite:{}", directory.path().join("s.db").display());
    let variables = [("KEY", KEY), ("VALUE", ENV), ("RUST_LOG", "trace")];
    let server =
        Server::serve_logged(&["--config", file.to_str().unwrap(), "--store", &store], &log, &variables);

    let credentials = format!("Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n");
    let mut sessions = Vec::new();
    for path in ["/forward", "/own", "/program", "/gone", "/jwt"] {
        let at = server.at(path);
        let opened = at.send("POST", None, &credentials, &initialize()).read_to_end();
        let Some(session) = opened.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")) else {
            continue;
        };
        at.send("POST", Some(session), &credentials, &note("x").to_string()).read_to_end();
        let mut cut = at.send("POST", Some(session), &credentials, &countdown(5, 1000, 60_000).to_string());
        cut.read_until("\"progress\":0.0");
        drop(cut);
        at.send("POST", Some(session), &credentials, "not json").read_to_end();
        at.send("POST", Some(session), "Content-Type: application/json\r\n", &note("x").to_string())
            .read_to_end();
        at.send("GET", Some(session), &format!("{credentials}Last-Event-ID: banana\r\n"), "").read_to_end();
        at.send("PATCH", Some(session), &credentials, "").read_to_end();
        at.send("DELETE", Some(session), &credentials, "").read_to_end();
        sessions.push(session.to_owned());
    }
    assert_eq!(sessions.len(), 2);
    std::fs::write(&file, config(&upstream, "[[endpoint]]\npath = \"/new\"\ndemo = true\n")).unwrap();
    server.signal("HUP");
    eventually("the file is read again", || {
        std::fs::read_to_string(&log).unwrap().contains("configuration reloaded")
    });
    let metrics = get(server.admin(), "/metrics");
    let banner = server.banner().to_owned();
    server.kill();

    let log = std::fs::read_to_string(&log).unwrap();
    assert!(log.contains("refused") && log.contains("TRACE"), "the log was kept");
    for (name, text) in [("the log", &log), ("metrics", &metrics), ("the banner", &banner)] {
        let ids = sessions.iter().flat_map(|id| [&id[..], &id[8..24]]);
        for secret in ids.chain(["t0ken-of-a-client", KEY, ENV]) {
            assert!(!text.contains(secret), "{secret} is in {name}: {}", around(text, secret));
        }
    }
}

fn initialize() -> String {
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#.to_owned()
}

fn around<'a>(text: &'a str, secret: &str) -> &'a str {
    text.lines().find(|line| line.contains(secret)).unwrap_or_default()
}
