//! A server behind TLS, with an authority of its own.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use steadfast_upstream::{Config, Tls, TlsFiles, Upstream};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::front::{CALL, Front, INITIALIZE, play, request};

/// A server at `localhost`, and its certificate, which is its own authority.
async fn serve() -> (http::Uri, String) {
    let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signed.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![signed.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                while let Some((head, body)) = request(&mut stream).await {
                    stream.write_all(play(&head, &body).as_bytes()).await.unwrap();
                    stream.flush().await.unwrap();
                }
            });
        }
    });
    (format!("https://localhost:{port}/mcp").parse().unwrap(), signed.cert.pem())
}

fn trusting(file: &Path) -> Tls {
    Tls::load(&TlsFiles { ca: Some(file.to_owned()), identity: None }).unwrap()
}

#[tokio::test]
async fn sessions_hold_over_tls() {
    let (url, certificate) = serve().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), certificate).unwrap();
    let front = Front::start(Config { tls: trusting(file.path()), ..Config::http(vec![url]) }).await;
    let reply = front.post("", INITIALIZE).await;
    let id = reply.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).expect("a session");
    let session = format!("mcp-session-id: {id}\r\nmcp-protocol-version: 2025-11-25\r\n");
    assert!(front.post(&session, CALL).await.contains(r#""result":{"content":[]}"#));
}

#[tokio::test]
async fn a_server_that_proves_nothing_is_not_used() {
    let (url, _) = serve().await;
    let patience = std::time::Duration::from_millis(10);
    let front = Front::start(Config { patience, ..Config::http(vec![url]) }).await;
    let reply = front.post("", INITIALIZE).await;
    assert!(reply.contains("invalid peer certificate: UnknownIssuer"), "{reply}");
    assert!(reply.contains("upstream_unavailable"), "{reply}");
}

#[tokio::test]
async fn other_schemes_are_refused() {
    for url in ["ftp://localhost/", "ws://localhost/", "/mcp"] {
        let config = Config::http(vec![url.parse().unwrap()]);
        let error = Upstream::start(config).await.unwrap_err().to_string();
        assert!(error.starts_with(url), "{error}");
    }
}
