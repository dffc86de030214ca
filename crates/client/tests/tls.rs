//! The client's TLS connections.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt as _;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use steadfast_client::transport::{
    Http, Identity, PinnedAddress, SendError, Tls, TlsError, TlsFiles, Transport,
};
use steadfast_client::{Bytes, Limits, Timeouts};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// A certificate authority, and the folder with its files.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: tempfile::TempDir,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// TLS settings that trust only this authority.
    fn tls(&self) -> Tls {
        Tls::load(&TlsFiles { ca: Some(self.file("ca.pem")), identity: None }).unwrap()
    }

    /// Issues a certificate. Returns it with its key.
    fn certify(&self, name: &str, age: Age) -> (rcgen::Certificate, KeyPair) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        if let Age::Over = age {
            params.not_before = rcgen::date_time_ymd(2001, 1, 1);
            params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    fn acceptor(&self, name: &str, age: Age, clients: Clients) -> TlsAcceptor {
        let (certificate, key) = self.certify(name, age);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = match clients {
            Clients::Any => builder.with_no_client_auth(),
            Clients::Certified => {
                let mut roots = RootCertStore::empty();
                roots.add(self.issuer.der().clone()).unwrap();
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = builder.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}

#[derive(Clone, Copy)]
enum Age {
    InTime,
    Over,
}

#[derive(Clone, Copy)]
enum Clients {
    Any,
    Certified,
}

/// Responds to each request with the server name and protocol of its handshake.
async fn serve(acceptor: TlsAcceptor) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let connection = stream.get_ref().1;
                let name = connection.server_name().unwrap_or("unnamed").to_owned();
                let protocol = String::from_utf8_lossy(connection.alpn_protocol().unwrap_or(b"none"));
                let text = format!("{name} {protocol}");
                let _ = answer(stream, &text).await;
            });
        }
    });
    address
}

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, text: &str) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let text = format!("HTTP/1.1 200 x\r\ncontent-length: {}\r\n\r\n{text}", text.len());
    stream.write_all(text.as_bytes()).await?;
    stream.flush().await
}

fn timeouts() -> Timeouts {
    Timeouts { connect: Duration::from_secs(10), ..Timeouts::default() }
}

async fn get(transport: &dyn Transport, url: &str) -> Result<String, SendError> {
    let request = Request::get(url).body(Bytes::new()).unwrap();
    let work = async {
        let body = transport.send(request).await?.into_body();
        Ok(String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap())
    };
    tokio::time::timeout(Duration::from_secs(20), work).await.expect("an end")
}

fn pinned(address: SocketAddr, tls: &Tls) -> impl Transport {
    Http::pinned_and_secured(&PinnedAddress::new(Some(address)), tls, &timeouts(), &Limits::default())
}

/// Checks that there is no connection, and that the error tells an operator the reason.
async fn refused(transport: &dyn Transport, url: &str, why: &str) {
    match get(transport, url).await {
        Err(SendError::Connect(text)) => assert!(text.contains(why), "{why}: {text}"),
        other => panic!("{why}: {other:?}"),
    }
}

/// Checks that the server is reachable and not trusted, so that a caller does not retry.
async fn untrusted(transport: &dyn Transport, url: &str, why: &str) {
    match get(transport, url).await {
        Err(SendError::Untrusted(text)) => assert!(text.contains(why), "{why}: {text}"),
        other => panic!("{why}: {other:?}"),
    }
}

#[tokio::test]
async fn a_server_with_a_valid_certificate_is_trusted() {
    let authority = Authority::new();
    // A name that only the request contains: the client sends and verifies it although the address
    // is pinned.
    let address = serve(authority.acceptor("mcp.example.test", Age::InTime, Clients::Any)).await;
    let transport = pinned(address, &authority.tls());
    let url = format!("https://mcp.example.test:{}/", address.port());
    for _ in 0..2 {
        assert_eq!(get(&transport, &url).await.as_deref(), Ok("mcp.example.test http/1.1"));
    }
    // An IP address is verified as well, and is not sent as a server name.
    let address = serve(authority.acceptor("127.0.0.1", Age::InTime, Clients::Any)).await;
    let transport = Http::secured(&authority.tls(), &timeouts(), &Limits::default());
    assert_eq!(get(&transport, &format!("https://{address}/")).await.as_deref(), Ok("unnamed http/1.1"));
}

#[tokio::test]
async fn a_server_without_a_valid_certificate_is_not_trusted() {
    let (authority, other) = (Authority::new(), Authority::new());
    let address = serve(authority.acceptor("mcp.example.test", Age::InTime, Clients::Any)).await;
    let url = format!("https://mcp.example.test:{}/", address.port());
    // An authority with an equal name is still a different authority.
    untrusted(&pinned(address, &other.tls()), &url, "invalid peer certificate: BadSignature").await;
    untrusted(&pinned(address, &Tls::public()), &url, "UnknownIssuer").await;
    let elsewhere = format!("https://evil.example.test:{}/", address.port());
    untrusted(&pinned(address, &authority.tls()), &elsewhere, "not valid for name").await;
    let address = serve(authority.acceptor("mcp.example.test", Age::Over, Clients::Any)).await;
    let url = format!("https://mcp.example.test:{}/", address.port());
    untrusted(&pinned(address, &authority.tls()), &url, "expired").await;
}

#[tokio::test]
async fn nothing_is_sent_in_plain_text() {
    let tls = Authority::new().tls();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let heard = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut first = [0; 1];
        stream.read_exact(&mut first).await.unwrap();
        // Responds like a server without TLS.
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        first[0]
    });
    let transport = Http::secured(&tls, &timeouts(), &Limits::default());
    refused(&transport, &format!("https://{address}/"), "corrupt message").await;
    // The first byte of a TLS handshake, not of an HTTP method.
    assert_eq!(heard.await.unwrap(), 22);
    refused(&transport, &format!("http://{address}/"), "not an https address").await;
}

#[tokio::test]
async fn a_handshake_times_out() {
    let tls = Authority::new().tls();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let timeouts = Timeouts { connect: Duration::from_millis(100), ..Timeouts::default() };
    let transport = Http::secured(&tls, &timeouts, &Limits::default());
    refused(&transport, &format!("https://{address}/"), "timed out connecting over TLS").await;
    drop(listener);
}

#[tokio::test]
async fn a_client_certificate_is_presented_on_request() {
    let authority = Authority::new();
    let address = serve(authority.acceptor("mcp.example.test", Age::InTime, Clients::Certified)).await;
    let url = format!("https://mcp.example.test:{}/", address.port());
    assert!(get(&pinned(address, &authority.tls()), &url).await.is_err());
    let (certificate, key) = authority.certify("client", Age::InTime);
    let (certificates, secret) = (authority.file("client.pem"), authority.file("client.key"));
    std::fs::write(&certificates, certificate.pem()).unwrap();
    std::fs::write(&secret, key.serialize_pem()).unwrap();
    let identity = Some(Identity { certificates, key: secret });
    let tls = Tls::load(&TlsFiles { ca: Some(authority.file("ca.pem")), identity }).unwrap();
    assert_eq!(get(&pinned(address, &tls), &url).await.as_deref(), Ok("mcp.example.test http/1.1"));
}

#[test]
fn unusable_files_are_named() {
    let authority = Authority::new();
    let (_, key) = authority.certify("client", Age::InTime);
    let (ca, key_file, text) = (authority.file("ca.pem"), authority.file("a.key"), authority.file("text"));
    std::fs::write(&key_file, key.serialize_pem()).unwrap();
    std::fs::write(&text, "hello").unwrap();
    let load = |ca: &Path, identity: Option<(&Path, &Path)>| {
        let identity = identity.map(|(certificates, key)| Identity {
            certificates: certificates.to_owned(),
            key: key.to_owned(),
        });
        Tls::load(&TlsFiles { ca: Some(ca.to_owned()), identity }).err()
    };
    let nowhere = Path::new("/nowhere/ca.pem");
    let unreadable = load(nowhere, None).unwrap().to_string();
    assert!(unreadable.starts_with("/nowhere/ca.pem cannot be read: No such file"), "{unreadable}");
    assert_eq!(load(&text, None), Some(TlsError::NoCertificate(text.clone())));
    assert_eq!(load(&key_file, None), Some(TlsError::NoCertificate(key_file.clone())));
    assert_eq!(load(&ca, Some((&text, &key_file))), Some(TlsError::NoCertificate(text.clone())));
    assert_eq!(load(&ca, Some((&ca, &text))), Some(TlsError::NoKey(text)));
    // The key of another certificate.
    assert!(
        matches!(load(&ca, Some((&ca, &key_file))), Some(TlsError::Unusable { file, .. }) if file == key_file)
    );
}
