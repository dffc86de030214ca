//! TLS for the connections: rustls, under the traits of the client library.

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

/// `None` where the address says that there is no TLS.
#[derive(Clone)]
pub(super) struct Tls(Option<TlsConnector>);

/// A certificate or a name that is not believed: an answer, not a failure of the network.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NotBelieved(String);

impl Tls {
    pub(super) fn none() -> Self {
        Self(None)
    }

    /// Believes the authorities in a file, or else those that the operating system believes.
    pub(super) fn load(ca: Option<&Path>) -> Result<Self, String> {
        let roots = match ca {
            Some(file) => authorities(file).map_err(|why| format!("{}: {why}", file.display()))?,
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

fn authorities(file: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| error.to_string())? {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() { Err("there is no certificate in it".into()) } else { Ok(roots) }
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Secured;
    type TlsConnect = Handshake;
    type Error = NotBelieved;

    fn make_tls_connect(&mut self, host: &str) -> Result<Handshake, NotBelieved> {
        Ok(Handshake { tls: self.clone(), host: host.to_owned() })
    }
}

pub(super) struct Handshake {
    tls: Tls,
    host: String,
}

impl TlsConnect<Socket> for Handshake {
    type Stream = Secured;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Secured, Self::Error>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let Some(connector) = self.tls.0 else {
                return Err(NotBelieved("no TLS is set up".into()).into());
            };
            let name = ServerName::try_from(self.host).map_err(|error| NotBelieved(error.to_string()))?;
            match connector.connect(name, socket).await {
                Ok(stream) => Ok(Secured(stream)),
                Err(error) if error.get_ref().is_some_and(|why| why.is::<rustls::Error>()) => {
                    Err(NotBelieved(error.to_string()).into())
                }
                Err(error) => Err(error.into()),
            }
        })
    }
}

pub(super) struct Secured(tokio_rustls::client::TlsStream<Socket>);

impl TlsStream for Secured {
    /// The certificate is verified already.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Secured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Secured {
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
