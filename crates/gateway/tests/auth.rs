//! `auth = "none"` and `auth = "forward"`: which credentials reach the server, and whose sessions
//! are found.

mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use support::{At, Server, note};

/// A server that answers 401 to every request and records its credentials.
struct Closed {
    address: SocketAddr,
    shown: Arc<Mutex<Vec<Option<String>>>>,
}

impl Closed {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let (address, shown) = (listener.local_addr().expect("an address"), Arc::<Mutex<Vec<_>>>::default());
        let notes = Arc::clone(&shown);
        std::thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let lines = BufReader::new(&socket).lines().map_while(Result::ok);
                let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                let authorization = head.iter().find_map(|line| line.strip_prefix("authorization: "));
                notes.lock().expect("not poisoned").push(authorization.map(str::to_owned));
                let _ = (&socket).write_all(
                    b"HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Bearer realm=\"there\"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
                );
            }
        });
        Self { address, shown }
    }
}

fn initialize(at: At<'_>, headers: &str) -> String {
    let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
    }});
    let headers = format!("Content-Type: application/json\r\n{headers}");
    at.send("POST", None, &headers, &message.to_string()).read_to_end()
}

fn in_front_of(address: SocketAddr, arguments: &[&str]) -> Server {
    let url = format!("http://{address}/mcp");
    let all = [&["--upstream", &*url, "--listen", "127.0.0.1:0", "--store", "memory:"], arguments].concat();
    Server::serve(&all)
}

#[test]
fn a_server_gets_credentials_only_with_forward() {
    for (auth, sent, expect) in [
        ("forward", "Authorization: Bearer s3cret\r\n", Some("Bearer s3cret")),
        ("forward", "", None),
        ("none", "Authorization: Bearer s3cret\r\n", None),
    ] {
        let server = Closed::start();
        let gateway = in_front_of(server.address, &["--auth", auth]);
        let reply = initialize(gateway.at("/mcp"), sent);
        assert!(!reply.contains("mcp-session-id"), "{reply}");
        let shown = server.shown.lock().unwrap().clone();
        assert!(
            !shown.is_empty() && shown.iter().all(|shown| shown.as_deref() == expect),
            "{auth}: {shown:?} {reply}"
        );
    }
}

#[test]
fn a_session_belongs_to_the_credentials_that_opened_it() {
    let demo = Server::start_with(&["--store", "memory:"]);
    let gateway = in_front_of(demo.address(), &["--auth", "forward"]);
    let at = gateway.at("/mcp");
    let mine = "Authorization: Bearer mine\r\n";
    let reply = initialize(at, mine);
    let session =
        reply.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).expect("a session").to_owned();
    let status = |headers: &str| {
        let headers = format!("Content-Type: application/json\r\n{headers}");
        let reply = at.send("POST", Some(&session), &headers, &note("x").to_string()).read_to_end();
        reply.split(' ').nth(1).expect("a status").to_owned()
    };
    assert_eq!(status(mine), "200");
    assert_eq!(status("Authorization: Bearer another\r\n"), "404");
    assert_eq!(status(""), "404");
    assert_eq!(status("Authorization: Bearer mine\r\nAuthorization: Bearer mine\r\n"), "401");
    assert_eq!(status("Authorization: Bearer mine \r\n"), "200", "spaces around a value do not count");
    assert_eq!(status("Authorization: bearer mine\r\n"), "404");
}

/// Clients need the challenge of the server.
#[test]
fn the_challenge_of_the_server_reaches_the_client() {
    let server = Closed::start();
    let gateway = in_front_of(server.address, &["--auth", "forward"]);
    for sent in ["", "Authorization: Bearer s3cret\r\n"] {
        let reply = initialize(gateway.at("/mcp"), sent);
        assert!(reply.starts_with("HTTP/1.1 401 "), "{reply}");
        assert!(reply.contains("\r\nwww-authenticate: Bearer realm=\"there\"\r\n"), "{reply}");
    }
    let gateway = in_front_of(server.address, &["--auth", "none"]);
    let reply = initialize(gateway.at("/mcp"), "");
    assert!(!reply.contains("www-authenticate"), "the challenge is for the gateway: {reply}");
}

/// A server that opens sessions and answers 401 to calls, as if the token had expired.
fn expired() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut reader = BufReader::new(&socket);
                let head: Vec<String> =
                    (&mut reader).lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
                let length = head.iter().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
                let mut body = vec![0; length.unwrap_or(0)];
                reader.read_exact(&mut body).expect("a body");
                let body: Value = serde_json::from_slice(&body).unwrap_or_default();
                let (status, more, text) = match body["method"].as_str() {
                    Some("initialize") => {
                        let result = json!({"protocolVersion": "2025-11-25", "capabilities": {},
                            "serverInfo": {"name": "s", "version": "1"}});
                        let answer = json!({"jsonrpc": "2.0", "id": body["id"], "result": result});
                        (200, "content-type: application/json\r\nmcp-session-id: s\r\n", answer.to_string())
                    }
                    Some("tools/call") => {
                        (401, "www-authenticate: Bearer error=\"invalid_token\"\r\n", String::new())
                    }
                    Some(_) => (202, "", String::new()),
                    None => (405, "", String::new()),
                };
                let length = text.len();
                let _ = write!(
                    &socket,
                    "HTTP/1.1 {status} x\r\n{more}connection: close\r\ncontent-length: {length}\r\n\r\n{text}"
                );
            });
        }
    });
    address
}

/// The client gets a 401, fetches another token, and opens another session with it, because the old
/// session belongs to the old token.
#[test]
fn a_token_that_expires_in_a_session_is_a_401() {
    let gateway = in_front_of(expired(), &["--auth", "forward"]);
    let at = gateway.at("/mcp");
    let old = "Content-Type: application/json\r\nAuthorization: Bearer old\r\n";
    let new = "Content-Type: application/json\r\nAuthorization: Bearer new\r\n";
    let session_in = |reply: &str| {
        reply.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).expect("a session").to_owned()
    };
    let session = session_in(&initialize(at, "Authorization: Bearer old\r\n"));
    let call = |session: &str, headers: &str| {
        at.send("POST", Some(session), headers, &note("x").to_string()).read_to_end()
    };
    let reply = call(&session, old);
    assert!(reply.starts_with("HTTP/1.1 401 "), "{reply}");
    assert!(reply.contains("\r\nwww-authenticate: Bearer error=\"invalid_token\"\r\n"), "{reply}");
    let reply = call(&session, new);
    assert!(reply.starts_with("HTTP/1.1 404 ") && reply.contains("`initialize`"), "{reply}");
    session_in(&initialize(at, "Authorization: Bearer new\r\n"));
}
