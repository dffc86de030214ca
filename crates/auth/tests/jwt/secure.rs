//! Keys that come over TLS.

use std::sync::Arc;

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use steadfast_auth::{Jwt, Keys};
use steadfast_client::transport::{Tls, TlsFiles};
use steadfast_http::Denied;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::support::{Signer, claims, clock, json, principal, settings, verdict};

/// Publishes this text at `localhost`, and gives its certificate, which is its own authority.
async fn publish(text: String) -> (Keys, String) {
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
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let length = text.len();
            let answer = format!("HTTP/1.1 200 x\r\ncontent-length: {length}\r\n\r\n{text}");
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
        }
    });
    (Keys::Url(format!("https://localhost:{port}/keys").parse().unwrap()), signed.cert.pem())
}

#[tokio::test]
async fn keys_are_believed_from_whoever_proves_its_name() {
    let signer = Signer::new("a");
    let (keys, certificate) = publish(json!({"keys": [signer.jwk()]}).to_string()).await;
    let token = signer.token(&claims());
    let stranger = Jwt::start(settings(keys.clone()), clock()).await.unwrap();
    assert!(matches!(verdict(&stranger, &token).await, Err(Denied::Unavailable { .. })));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), certificate).unwrap();
    let mut settings = settings(keys);
    settings.tls = Tls::load(&TlsFiles { ca: Some(file.path().to_owned()), identity: None }).unwrap();
    let jwt = Jwt::start(settings, clock()).await.unwrap();
    assert_eq!(verdict(&jwt, &token).await, principal("alice"));
}
