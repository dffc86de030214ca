//! TLS with rustls, behind the traits of the client library.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

/// Establishes TLS. `None` if the address disables TLS.
#[derive(Clone)]
pub(super) struct Tls(Option<TlsConnector>);

/// The certificate or the name of the server was rejected. This is a refusal, not a network error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct UntrustedServer(String);

impl Tls {
    pub(super) fn none() -> Self {
        Self(None)
    }

    /// Trusts the certificate authorities in a file, or else those of the operating system.
    pub(super) fn load(ca: Option<&Path>) -> Result<Self, String> {
        let roots = match ca {
            Some(file) => read_authorities(file).map_err(|why| format!("{}: {why}", file.display()))?,
            None => {
                let mut roots = RootCertStore::empty();
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                roots
            }
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self(Some(TlsConnector::from(Arc::new(config)))))
    }
}

fn read_authorities(file: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| error.to_string())? {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() { Err("the file contains no certificate".into()) } else { Ok(roots) }
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = TlsSocket;
    type TlsConnect = Handshake;
    type Error = UntrustedServer;

    fn make_tls_connect(&mut self, host: &str) -> Result<Handshake, UntrustedServer> {
        Ok(Handshake { tls: self.clone(), host: host.to_owned() })
    }
}

pub(super) struct Handshake {
    tls: Tls,
    host: String,
}

impl TlsConnect<Socket> for Handshake {
    type Stream = TlsSocket;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<TlsSocket, Self::Error>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let Some(connector) = self.tls.0 else {
                return Err(UntrustedServer("TLS is not configured".into()).into());
            };
            let name = ServerName::try_from(self.host).map_err(|error| UntrustedServer(error.to_string()))?;
            match connector.connect(name, socket).await {
                Ok(stream) => Ok(TlsSocket(stream)),
                Err(error) if error.get_ref().is_some_and(|why| why.is::<rustls::Error>()) => {
                    Err(UntrustedServer(error.to_string()).into())
                }
                Err(error) => Err(error.into()),
            }
        })
    }
}

pub(super) struct TlsSocket(tokio_rustls::client::TlsStream<Socket>);

impl TlsStream for TlsSocket {
    /// Not needed: the certificate is verified.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for TlsSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for TlsSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
