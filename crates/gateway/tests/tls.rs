//! HTTPS, with a client that checks the certificate.
#![cfg(unix)]

mod support;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use support::{Server, eventually};

/// Writes a self-signed certificate and its key.
fn certificate(directory: &Path) -> CertificateDer<'static> {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let signing_key: KeyPair = signing_key;
    std::fs::write(directory.join("cert.pem"), cert.pem()).expect("a file");
    std::fs::write(directory.join("key.pem"), signing_key.serialize_pem()).expect("a file");
    cert.der().clone()
}

fn config(directory: &Path) -> PathBuf {
    let file = directory.join("steadfast.toml");
    let at = |name: &str| directory.join(name).display().to_string();
    let text = format!(
        "listen = \"127.0.0.1:0\"\nstore = \"memory:\"\n[tls]\ncertificate = \"{}\"\nkey = \"{}\"\n[[endpoint]]\ndemo = true\n",
        at("cert.pem"),
        at("key.pem")
    );
    std::fs::write(&file, text).expect("a file");
    file
}

fn connect(
    address: SocketAddr,
    trusted: &CertificateDer<'static>,
) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).expect("a certificate");
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let client =
        ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").expect("a client"))
            .expect("a client");
    let socket = TcpStream::connect(address).expect("it listens");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    StreamOwned::new(client, socket)
}

/// Returns the status line of a GET, or the error.
fn ask(stream: &mut StreamOwned<ClientConnection, TcpStream>) -> Result<String, std::io::Error> {
    stream.write_all(b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")?;
    let mut head = Vec::new();
    while !head.ends_with(b"}}") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("text");
    Ok(head.lines().next().unwrap_or_default().to_owned())
}

#[test]
fn certificates_can_be_renewed_under_open_connections() {
    let directory = tempfile::tempdir().unwrap();
    let first = certificate(directory.path());
    let server = Server::serve(&["--config", config(directory.path()).to_str().unwrap()]);
    assert!(server.banner().contains("URL    https://127.0.0.1:"), "{}", server.banner());
    let mut open = connect(server.address(), &first);
    assert_eq!(ask(&mut open).unwrap(), "HTTP/1.1 405 Method Not Allowed");

    let second = certificate(directory.path());
    assert!(ask(&mut connect(server.address(), &second)).is_err(), "the gateway has not read it yet");
    server.signal("HUP");
    eventually("the new certificate is shown", || ask(&mut connect(server.address(), &second)).is_ok());
    assert!(ask(&mut connect(server.address(), &first)).is_err(), "the old certificate is not used any more");
    assert_eq!(ask(&mut open).unwrap(), "HTTP/1.1 405 Method Not Allowed", "the open connection stays");
}

#[test]
fn a_client_that_sends_plain_http_is_disconnected() {
    let directory = tempfile::tempdir().unwrap();
    let known = certificate(directory.path());
    let server = Server::serve(&["--config", config(directory.path()).to_str().unwrap()]);
    let mut plain = TcpStream::connect(server.address()).unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    plain.write_all(b"GET /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut received = Vec::new();
    // The system closes or resets the connection.
    let _ = plain.read_to_end(&mut received);
    assert!(!received.starts_with(b"HTTP"), "{received:?}");
    assert!(ask(&mut connect(server.address(), &known)).is_ok(), "other clients are served");
}
