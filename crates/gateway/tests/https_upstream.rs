//! The gateway in front of a server with TLS and a private certificate authority, which is another
//! process of the binary.
#![cfg(unix)]

mod support;

use std::io::Read as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;
use support::{Server, eventually, messages, note};

/// Writes a certificate authority to `ca.pem`, and a certificate that it has signed.
fn certify(directory: &Path) {
    let (ca_key, key) = (KeyPair::generate().expect("a key"), KeyPair::generate().expect("a key"));
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = ca.self_signed(&ca_key).expect("a certificate");
    let issuer = Issuer::new(ca, ca_key);
    let server = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
    let server = server.signed_by(&key, &issuer).expect("a certificate");
    let at = |name: &str| directory.join(name);
    std::fs::write(at("ca.pem"), root.pem()).expect("a file");
    std::fs::write(at("cert.pem"), server.pem()).expect("a file");
    std::fs::write(at("key.pem"), key.serialize_pem()).expect("a file");
}

/// A server with such a certificate.
fn secured(directory: &Path) -> Server {
    certify(directory);
    let at = |name: &str| directory.join(name);
    let text = format!(
        "listen = \"127.0.0.1:0\"\nstore = \"memory:\"\n[tls]\ncertificate = \"{}\"\nkey = \"{}\"\n[[endpoint]]\ndemo = true\n",
        at("cert.pem").display(),
        at("key.pem").display()
    );
    std::fs::write(at("server.toml"), text).expect("a file");
    Server::serve(&["--config", at("server.toml").to_str().expect("a path of text")])
}

fn initialize(gateway: &Server) -> String {
    let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
    }});
    gateway.post(None, &message).read_to_end()
}

#[test]
fn a_private_authority_is_trusted_if_it_is_configured() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (server, _stranger) = (secured(one.path()), secured(other.path()));
    let url = format!("https://{}/mcp", server.address());
    let ca = one.path().join("trusted.pem");
    std::fs::copy(other.path().join("ca.pem"), &ca).unwrap();
    let file = one.path().join("gateway.toml");
    let text = format!(
        "listen = \"127.0.0.1:0\"\nstore = \"memory:\"\n[[endpoint]]\nupstream = \"{url}\"\nupstream_tls.ca = \"{}\"\ntimeouts.unavailable = \"10ms\"\n",
        ca.display()
    );
    std::fs::write(&file, text).unwrap();
    let name = file.to_str().unwrap();
    let checked =
        Command::new(env!("CARGO_BIN_EXE_steadfast")).args(["config", "check", name]).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");

    let gateway = Server::serve(&["--config", name]);
    let refused = initialize(&gateway);
    assert!(!refused.contains("mcp-session-id"), "another authority is trusted: {refused}");
    std::fs::copy(one.path().join("ca.pem"), &ca).unwrap();
    gateway.signal("HUP");
    eventually("the right authority is trusted", || initialize(&gateway).contains("mcp-session-id"));
    let session = gateway.open_session();
    let received = messages(&gateway.post(Some(&session), &note("x")).read_to_end());
    assert!(received.last().unwrap()["result"].to_string().contains("You have 1 note(s)."), "{received:?}");

    let by_flag = Server::serve_logged(
        &["--upstream", &url, "--listen", "127.0.0.1:0", "--store", "memory:"],
        &one.path().join("log"),
        &[("STEADFAST__DEFAULTS__TIMEOUTS__UNAVAILABLE", "10ms")],
    );
    let refused = initialize(&by_flag);
    assert!(!refused.contains("mcp-session-id"), "browsers do not know this authority: {refused}");
}

#[test]
fn a_server_that_asks_for_a_client_certificate_gets_it() {
    let directory = tempfile::tempdir().unwrap();
    certify(directory.path());
    let at = |name: &str| directory.path().join(name);
    let certificate = CertificateDer::from_pem_file(at("cert.pem")).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(at("ca.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let asking =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build().unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(asking)
        .with_single_cert(vec![certificate.clone()], PrivateKeyDer::from_pem_file(at("key.pem")).unwrap())
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, shown) = mpsc::channel();
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let mut stream =
                StreamOwned::new(ServerConnection::new(Arc::new(config.clone())).unwrap(), socket);
            // The read finishes the handshake.
            let _ = stream.read(&mut [0; 1024]);
            let _ = tell.send(stream.conn.peer_certificates().map(|list| list[0].clone().into_owned()));
        }
    });
    let file = at("gateway.toml");
    let path = |name: &str| at(name).display().to_string();
    let text = format!(
        "listen = \"127.0.0.1:0\"\nstore = \"memory:\"\n[[endpoint]]\nupstream = \"https://{address}/mcp\"\ntimeouts.unavailable = \"10ms\"\n\
         [endpoint.upstream_tls]\nca = \"{}\"\ncertificate = \"{}\"\nkey = \"{}\"\n",
        path("ca.pem"),
        path("cert.pem"),
        path("key.pem")
    );
    std::fs::write(&file, text).unwrap();
    let gateway = Server::serve(&["--config", file.to_str().unwrap()]);
    initialize(&gateway);
    let shown = shown.recv_timeout(Duration::from_secs(20)).expect("the server was reached");
    assert_eq!(shown, Some(certificate));
}
