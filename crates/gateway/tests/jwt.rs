//! `auth = "jwt"`: the real binary, real tokens, and a server that publishes keys.
#![cfg(unix)]

#[path = "../../auth/tests/jwt/support/signer.rs"]
mod signer;
mod support;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use signer::Signer;
use support::{At, Server, eventually, get, note};
use tempfile::TempDir;

const ISSUER: &str = "https://id.example.com";
/// The URL that clients use. The gateway need not listen there.
const RESOURCE: &str = "http://localhost:7411/mcp";
/// The binary uses the real clock.
const IN_2096: u64 = 4_000_000_000;
const METADATA: &str = "/.well-known/oauth-protected-resource/mcp";

/// Publishes keys. Closes connections while there are none.
struct Publisher {
    address: SocketAddr,
    keys: Arc<Mutex<Option<String>>>,
}

impl Publisher {
    fn start(signer: Option<&Signer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let (address, keys) = (listener.local_addr().expect("an address"), Arc::<Mutex<_>>::default());
        let (published, publisher) = (Arc::clone(&keys), Self { address, keys });
        std::thread::spawn(move || {
            for mut socket in listener.incoming().map_while(Result::ok) {
                let Some(text) = published.lock().expect("not poisoned").clone() else { continue };
                let _ = socket.read(&mut [0; 4096]);
                let length = text.len();
                let _ = write!(
                    socket,
                    "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}"
                );
            }
        });
        signer.iter().for_each(|signer| publisher.publish(signer));
        publisher
    }

    fn close(&self) {
        *self.keys.lock().expect("not poisoned") = None;
    }

    fn publish(&self, signer: &Signer) {
        *self.keys.lock().expect("not poisoned") = Some(json!({"keys": [signer.jwk()]}).to_string());
    }
}

/// Forwards everything, and records what clients send.
struct Relay {
    address: SocketAddr,
    recorded: Arc<Mutex<Vec<u8>>>,
}

impl Relay {
    fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let (address, recorded) =
            (listener.local_addr().expect("an address"), Arc::<Mutex<Vec<u8>>>::default());
        let recorded_bytes = Arc::clone(&recorded);
        std::thread::spawn(move || {
            for mut client in listener.incoming().map_while(Result::ok) {
                let mut server = TcpStream::connect(server).expect("the server listens");
                let (mut from, mut back) =
                    (server.try_clone().expect("a socket"), client.try_clone().expect("a socket"));
                std::thread::spawn(move || std::io::copy(&mut from, &mut back));
                let recorded_bytes = Arc::clone(&recorded_bytes);
                std::thread::spawn(move || {
                    let mut buffer = [0; 4096];
                    while let Ok(count @ 1..) = client.read(&mut buffer) {
                        recorded_bytes.lock().expect("not poisoned").extend_from_slice(&buffer[..count]);
                        let _ = server.write_all(&buffer[..count]);
                    }
                });
            }
        });
        Self { address, recorded }
    }

    fn recorded(&self) -> String {
        String::from_utf8_lossy(&self.recorded.lock().expect("not poisoned")).into_owned()
    }
}

/// A gateway that verifies tokens.
struct Scene {
    _directory: TempDir,
    file: PathBuf,
    server: Server,
}

impl Scene {
    fn start(text: &str) -> Self {
        let directory = tempfile::tempdir().expect("a folder");
        let file = directory.path().join("steadfast.toml");
        std::fs::write(&file, text).expect("a file");
        let name = file.to_str().expect("a path of text");
        let server = Server::serve(&["--config", name, "--listen", "127.0.0.1:0", "--store", "memory:"]);
        Self { _directory: directory, file, server }
    }

    fn change(&self, text: &str) {
        std::fs::write(&self.file, text).expect("a file");
        self.server.signal("HUP");
    }

    fn at(&self) -> At<'_> {
        self.server.at("/mcp")
    }
}

fn endpoint(server: &str, publisher: &Publisher, more: &str) -> String {
    format!(
        "[[endpoint]]\n{server}\nauth = \"jwt\"\n[endpoint.jwt]\nissuer = \"{ISSUER}\"\nresource = \"{RESOURCE}\"\n\
         jwks = \"http://{}/keys\"\n{more}\n",
        publisher.address
    )
}

/// The claims of a valid token with these changes.
fn claims(change: &Value) -> Value {
    let mut claims =
        json!({"iss": ISSUER, "aud": RESOURCE, "sub": "alice", "scope": "mcp:use", "exp": IN_2096});
    for (name, value) in change.as_object().expect("an object") {
        claims[name] = value.clone();
    }
    claims
}

fn headers(token: &str) -> String {
    format!("Content-Type: application/json\r\nAuthorization: Bearer {token}\r\n")
}

fn initialize(at: At<'_>, headers: &str) -> String {
    let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
    }});
    at.send("POST", None, headers, &message.to_string()).read_to_end()
}

fn open(at: At<'_>, token: &str) -> String {
    let reply = initialize(at, &headers(token));
    let session = header(&reply, "mcp-session-id").unwrap_or_else(|| panic!("{reply}"));
    session.to_owned()
}

fn status(reply: &str) -> &str {
    reply.split(' ').nth(1).expect("a status")
}

fn header<'a>(reply: &'a str, name: &str) -> Option<&'a str> {
    reply.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn call(at: At<'_>, session: &str, token: &str) -> String {
    at.send("POST", Some(session), &headers(token), &note("x").to_string()).read_to_end()
}

#[test]
fn a_valid_token_is_accepted_and_not_forwarded() {
    let (signer, demo) = (Signer::new("k"), Server::start_with(&["--store", "memory:"]));
    let (publisher, relay) = (Publisher::start(Some(&signer)), Relay::to(demo.address()));
    let behind = format!(
        "upstream = \"http://{}/mcp\"\nheaders = {{ Authorization = \"Bearer own\" }}",
        relay.address
    );
    let scene = Scene::start(&endpoint(&behind, &publisher, ""));
    let token = signer.token(&claims(&json!({})));
    let session = open(scene.at(), &token);
    let reply = call(scene.at(), &session, &token);
    assert!(reply.contains("You have 1 note(s)."), "{reply}");
    let recorded = relay.recorded();
    assert!(recorded.contains("tools/call") && recorded.contains("authorization: Bearer own"), "{recorded}");
    assert!(
        !recorded.contains(&token) && !recorded.contains(token.rsplit('.').next().unwrap()),
        "{recorded}"
    );
}

#[test]
fn a_client_without_a_valid_token_learns_where_to_get_one() {
    let signer = Signer::new("k");
    let publisher = Publisher::start(Some(&signer));
    let scene = Scene::start(&endpoint("demo = true", &publisher, "scopes = [\"mcp:use\"]"));
    let refused = |headers: &str, expect: &str| {
        let reply = initialize(scene.at(), headers);
        assert_eq!(status(&reply), expect, "{reply}");
        header(&reply, "www-authenticate").unwrap_or_else(|| panic!("no challenge: {reply}")).to_owned()
    };
    let metadata = format!("resource_metadata=\"http://localhost:7411{METADATA}\"");
    let missing = refused("Content-Type: application/json\r\n", "401");
    assert_eq!(missing, format!("Bearer {metadata}, scope=\"mcp:use\""));
    for change in [
        json!({"aud": "https://another.example.com/mcp"}),
        json!({"iss": "https://another.example.com"}),
        json!({"exp": 1_700_000_000}),
    ] {
        let challenge = refused(&headers(&signer.token(&claims(&change))), "401");
        assert!(challenge.starts_with(&format!("Bearer {metadata}, error=\"invalid_token\"")), "{challenge}");
    }
    let forged = Signer::new("k").token(&claims(&json!({})));
    refused(&headers(&forged), "401");
    let unable = refused(&headers(&signer.token(&claims(&json!({"scope": "other"})))), "403");
    assert!(unable.starts_with(&format!("Bearer {metadata}, error=\"insufficient_scope\"")), "{unable}");

    let found = get(scene.server.address(), METADATA);
    assert_eq!(status(&found), "200", "{found}");
    assert_eq!(header(&found, "access-control-allow-origin"), Some("*"));
    let document: Value = serde_json::from_str(found.split("\r\n\r\n").nth(1).unwrap()).expect("JSON");
    let expect = json!({"resource": RESOURCE, "authorization_servers": [ISSUER],
        "bearer_methods_supported": ["header"], "scopes_supported": ["mcp:use"]});
    assert_eq!(document, expect);
    let preflight = scene.server.at(METADATA).send("OPTIONS", None, "Origin: https://page.example\r\n", "");
    let preflight = preflight.read_to_end();
    assert_eq!(status(&preflight), "204", "{preflight}");
    assert!(header(&preflight, "access-control-allow-methods").is_some_and(|list| list.contains("GET")));
    let head = scene.server.at(METADATA).send("HEAD", None, "", "").read_to_end();
    assert!(status(&head) == "200" && head.ends_with("\r\n\r\n"), "{head}");
    let other = get(scene.server.address(), "/.well-known/oauth-protected-resource/other");
    assert_eq!(status(&other), "404");
}

#[test]
fn a_session_belongs_to_its_subject() {
    let signer = Signer::new("k");
    let publisher = Publisher::start(Some(&signer));
    let scene = Scene::start(&endpoint("demo = true", &publisher, ""));
    let (alice, bob) = (signer.token(&claims(&json!({}))), signer.token(&claims(&json!({"sub": "bob"}))));
    let session = open(scene.at(), &alice);
    assert_eq!(status(&call(scene.at(), &session, &bob)), "404");
    let renewed = signer.token(&claims(&json!({"jti": "another"})));
    assert_ne!(renewed, alice);
    assert_eq!(status(&call(scene.at(), &session, &renewed)), "200", "a renewed token is the same subject's");
    let deleted = scene.at().send("DELETE", Some(&session), &headers(&bob), "").read_to_end();
    assert_eq!(status(&deleted), "404");
    assert_eq!(status(&call(scene.at(), &session, &alice)), "200");
}

#[test]
fn a_key_set_that_cannot_be_fetched_is_a_503() {
    let signer = Signer::new("k");
    let publisher = Publisher::start(None);
    let scene = Scene::start(&endpoint("demo = true", &publisher, ""));
    let token = signer.token(&claims(&json!({})));
    let reply = initialize(scene.at(), &headers(&token));
    assert_eq!(status(&reply), "503", "{reply}");
    assert_eq!(header(&reply, "retry-after"), Some("5"), "{reply}");
    let without = initialize(scene.at(), "Content-Type: application/json\r\n");
    assert_eq!(status(&without), "401", "a missing token needs no key");
}

#[test]
fn a_reload_changes_the_required_tokens_and_keeps_sessions() {
    let signer = Signer::new("k");
    let publisher = Publisher::start(Some(&signer));
    let scene = Scene::start(&endpoint("demo = true", &publisher, ""));
    let token = signer.token(&claims(&json!({})));
    let session = open(scene.at(), &token);
    assert!(call(scene.at(), &session, &token).contains("You have 1 note(s)."));
    let mut stream = scene.at().send("GET", Some(&session), &headers(&token), "");
    stream.read_until("\n\n");

    // A reload keeps the keys, even if they cannot be fetched at this moment.
    publisher.close();
    scene.change(&endpoint("demo = true", &publisher, "scopes = [\"mcp:more\"]"));
    eventually("the scope is wanted", || status(&call(scene.at(), &session, &token)) == "403");
    assert!(get(scene.server.address(), METADATA).contains("\"scopes_supported\":[\"mcp:more\"]"));
    let more = signer.token(&claims(&json!({"scope": "mcp:use mcp:more"})));
    let reply = call(scene.at(), &session, &more);
    assert_eq!(status(&reply), "200", "{reply}");
    assert!(stream.is_waiting(), "the open stream stays");

    publisher.publish(&signer);
    scene.change("[[endpoint]]\ndemo = true\n");
    eventually("nothing is asked", || {
        status(&initialize(scene.at(), "Content-Type: application/json\r\n")) == "200"
    });
    assert_eq!(status(&get(scene.server.address(), METADATA)), "404");
    assert_eq!(
        status(&call(scene.at(), &session, &token)),
        "404",
        "the session still belongs to its subject"
    );

    scene.change(&endpoint("demo = true", &publisher, ""));
    eventually("tokens are asked for", || status(&call(scene.at(), &session, &token)) == "200");
    assert!(stream.is_waiting());
}

#[test]
fn a_changed_key_file_is_read_again() {
    let (signer, next) = (Signer::new("k"), Signer::new("k"));
    let directory = tempfile::tempdir().unwrap();
    let keys = directory.path().join("keys.json");
    let write = |signer: &Signer| std::fs::write(&keys, json!({"keys": [signer.jwk()]}).to_string()).unwrap();
    write(&signer);
    let scene = Scene::start(&format!(
        "[[endpoint]]\ndemo = true\nauth = \"jwt\"\njwt = {{ issuer = \"{ISSUER}\", resource = \"{RESOURCE}\", jwks = \"{}\" }}",
        keys.display()
    ));
    let (old, new) = (signer.token(&claims(&json!({}))), next.token(&claims(&json!({}))));
    let answer = |token: &str| status(&initialize(scene.at(), &headers(token))).to_owned();
    assert_eq!((answer(&old).as_str(), answer(&new).as_str()), ("200", "401"));
    write(&next);
    scene.server.signal("HUP");
    eventually("the new key holds", || answer(&new) == "200");
    assert_eq!(answer(&old), "401", "a removed key is not accepted");
}

#[test]
fn the_same_subject_at_another_endpoint_is_another_principal() {
    let signer = Signer::new("k");
    let publisher = Publisher::start(Some(&signer));
    let other = endpoint("path = \"/other\"\ndemo = true", &publisher, "audience = \"all\"")
        .replace(RESOURCE, "http://localhost:7411/other");
    let scene = Scene::start(&(endpoint("demo = true", &publisher, "audience = \"all\"") + &other));
    let token = signer.token(&claims(&json!({"aud": "all"})));
    let session = open(scene.at(), &token);
    assert_eq!(status(&call(scene.server.at("/other"), &session, &token)), "404");
    assert_eq!(status(&call(scene.at(), &session, &token)), "200");
    let (one, two) = (
        get(scene.server.address(), METADATA),
        get(scene.server.address(), &METADATA.replace("/mcp", "/other")),
    );
    assert!(one.contains(RESOURCE) && two.contains("http://localhost:7411/other"), "{one} {two}");
}
