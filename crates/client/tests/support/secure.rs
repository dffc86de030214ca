//! A TLS listener at `localhost` with a self-signed certificate.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::Uri;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use steadfast_client::transport::{Tls, TlsFiles};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

pub(crate) struct Secure {
    port: u16,
    certificate: tempfile::NamedTempFile,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    hellos: AtomicUsize,
    is_rude: AtomicBool,
}

#[derive(Clone, Copy)]
pub(crate) enum Age {
    InTime,
    Over,
}

impl Secure {
    /// Serves each connection in its own task.
    pub(crate) async fn listen<F>(
        age: Age,
        serve: impl Fn(TlsStream<TcpStream>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (acceptor, pem) = acceptor(age);
        let certificate = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(certificate.path(), pem).expect("a file");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (serve, state) = (Arc::new(serve), Arc::<State>::default());
        let this = Self { port, certificate, state: Arc::clone(&state) };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, serve, state) = (acceptor.clone(), Arc::clone(&serve), Arc::clone(&state));
                tokio::spawn(async move {
                    // A liveness check connects without sending anything.
                    if !matches!(stream.peek(&mut [0]).await, Ok(1)) {
                        return;
                    }
                    state.hellos.fetch_add(1, Ordering::SeqCst);
                    if state.is_rude.load(Ordering::SeqCst) {
                        return;
                    }
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve(stream).await;
                    }
                });
            }
        });
        this
    }

    pub(crate) fn url(&self, path: &str) -> Uri {
        format!("https://localhost:{}{path}", self.port).parse().expect("an address")
    }

    /// TLS settings that trust only this server's certificate.
    pub(crate) fn tls(&self) -> Tls {
        let ca = Some(self.certificate.path().to_owned());
        Tls::load(&TlsFiles { ca, identity: None }).expect("a certificate")
    }

    /// How many handshakes clients have started.
    pub(crate) fn hellos(&self) -> usize {
        self.state.hellos.load(Ordering::SeqCst)
    }

    /// From now on the server closes connections before the handshake.
    pub(crate) fn be_rude(&self) {
        self.state.is_rude.store(true, Ordering::SeqCst);
    }
}

fn acceptor(age: Age) -> (TlsAcceptor, String) {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    if let Age::Over = age {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    }
    let key = KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate");
    let secret = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], secret)
        .expect("a certificate and its key");
    (TlsAcceptor::from(Arc::new(config)), certificate.pem())
}
