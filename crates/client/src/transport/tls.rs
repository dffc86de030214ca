//! TLS for the client: trusted authorities, the client certificate, and encrypted connections.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fmt, io};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::dns::GaiResolver;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower_service::Service;

use super::{Http, PinnedAddress, with_socket_options};
use crate::config::{Limits, Timeouts};
use crate::handler::BoxFuture;

/// TLS settings: which authorities to trust, and which client certificate to present. Cheap to
/// clone.
#[derive(Clone)]
pub struct Tls(Arc<ClientConfig>);

/// PEM files with TLS settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The only authorities to trust. If `None`, the client trusts Mozilla's root certificates.
    pub ca: Option<PathBuf>,
    /// The client certificate for servers that request one.
    pub identity: Option<Identity>,
}

/// A client certificate with its chain, and its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub certificates: PathBuf,
    pub key: PathBuf,
}

/// Why files are unusable. The operator who provides the files is to blame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    #[error("{} cannot be read: {why}", file.display())]
    Unreadable { file: PathBuf, why: String },
    #[error("{} has no certificate in PEM", .0.display())]
    NoCertificate(PathBuf),
    #[error("{} has no private key in PEM", .0.display())]
    NoKey(PathBuf),
    #[error("{} cannot be used: {why}", file.display())]
    Unusable { file: PathBuf, why: String },
}

impl Tls {
    /// Trusts Mozilla's root certificates. They are compiled in, so that a binary behaves the same
    /// on every machine.
    pub fn public() -> Self {
        let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        Self::finish(trusting(roots).with_no_client_auth())
    }

    /// Reads the files. Later changes of the files have no effect on the returned value.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let roots = match &files.ca {
            Some(file) => authorities(file)?,
            None => RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() },
        };
        let builder = trusting(roots);
        let Some(Identity { certificates, key }) = &files.identity else {
            return Ok(Self::finish(builder.with_no_client_auth()));
        };
        let chain = certificates_in(certificates)?;
        let secret = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|_| TlsError::NoKey(key.clone()))?;
        let config = builder
            .with_client_auth_cert(chain, secret)
            .map_err(|error| TlsError::Unusable { file: key.clone(), why: error.to_string() })?;
        Ok(Self::finish(config))
    }

    fn finish(mut config: ClientConfig) -> Self {
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self(Arc::new(config))
    }
}

impl Default for Tls {
    fn default() -> Self {
        Self::public()
    }
}

/// Omits all fields, because they contain a private key.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

fn trusting(roots: RootCertStore) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    // Every provider supports the default versions.
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    builder.expect("ring has the ciphers of TLS 1.2 and 1.3").with_root_certificates(roots)
}

fn authorities(file: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates_in(file)? {
        roots.add(certificate).map_err(|error| TlsError::Unusable {
            file: file.to_owned(),
            why: format!("a certificate is not a valid authority: {error}"),
        })?;
    }
    Ok(roots)
}

fn certificates_in(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let list: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(file)?).collect();
    match list {
        Ok(list) if !list.is_empty() => Ok(list),
        _ => Err(TlsError::NoCertificate(file.to_owned())),
    }
}

fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable =
        |error: io::Error| TlsError::Unreadable { file: file.to_owned(), why: error.to_string() };
    std::fs::read(file).map_err(unreadable)
}

impl Http<Secured<GaiResolver>> {
    /// A transport over TLS. Only `https` addresses are allowed.
    pub fn secured(tls: &Tls, timeouts: &Timeouts, limits: &Limits) -> Self {
        Self::over(Secured::new(HttpConnector::new(), tls, timeouts.connect), limits)
    }
}

impl Http<Secured<PinnedAddress>> {
    /// A transport over TLS that connects to the pinned address. The certificate must match the
    /// host of the request.
    pub fn pinned_and_secured(
        pinned_address: &PinnedAddress,
        tls: &Tls,
        timeouts: &Timeouts,
        limits: &Limits,
    ) -> Self {
        let connector = HttpConnector::new_with_resolver(pinned_address.clone());
        Self::over(Secured::new(connector, tls, timeouts.connect), limits)
    }
}

/// Opens TLS connections, never unencrypted ones.
#[derive(Clone)]
pub struct Secured<R> {
    tcp: HttpConnector<R>,
    tls: TlsConnector,
    /// For connecting and the handshake together.
    timeout: Duration,
}

impl<R> Secured<R> {
    fn new(tcp: HttpConnector<R>, tls: &Tls, timeout: Duration) -> Self {
        let mut tcp = with_socket_options(tcp, timeout);
        tcp.enforce_http(false);
        Self { tcp, tls: TlsConnector::from(Arc::clone(&tls.0)), timeout }
    }
}

impl<R> fmt::Debug for Secured<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secured").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl<R> Service<Uri> for Secured<R>
where
    HttpConnector<R>: Service<Uri, Response = TokioIo<TcpStream>> + Clone,
    <HttpConnector<R> as Service<Uri>>::Error: std::error::Error + Send + Sync + 'static,
    <HttpConnector<R> as Service<Uri>>::Future: Send + 'static,
{
    type Response = SecureStream;
    type Error = io::Error;
    type Future = BoxFuture<'static, Result<SecureStream, io::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        self.tcp.poll_ready(context).map_err(io::Error::other)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let name = match server_name(&server) {
            Ok(name) => name,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        let (tcp, tls, timeout) = (self.tcp.call(server), self.tls.clone(), self.timeout);
        let connecting = async move {
            let tcp = tcp.await.map_err(io::Error::other)?;
            Ok(SecureStream(TokioIo::new(tls.connect(name, tcp.into_inner()).await?)))
        };
        Box::pin(async move {
            let late = || io::Error::new(io::ErrorKind::TimedOut, "timed out connecting over TLS");
            tokio::time::timeout(timeout, connecting).await.unwrap_or_else(|_| Err(late()))
        })
    }
}

/// Returns true if a connection failed because the server's certificate is invalid or missing.
pub(super) fn is_untrusted(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        // `io::Error::source` skips the wrapped error, so look at the wrapped error itself.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let tls = inner.and_then(|inner| inner.downcast_ref()).or_else(|| error.downcast_ref());
        if let Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented) = tls {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The name that the server's certificate must match.
fn server_name(server: &Uri) -> io::Result<ServerName<'static>> {
    if server.scheme_str() != Some("https") {
        return Err(io::Error::other(format!("{server} is not an https address")));
    }
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    ServerName::try_from(host.to_owned()).map_err(io::Error::other)
}

/// An encrypted connection.
#[derive(Debug)]
pub struct SecureStream(TokioIo<TlsStream<TcpStream>>);

impl Connection for SecureStream {
    fn connected(&self) -> Connected {
        self.0.inner().get_ref().0.connected()
    }
}

impl Read for SecureStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl Write for SecureStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the roots directly: no test server has a publicly trusted certificate, so a test over
    /// the network would not notice additional roots.
    #[test]
    fn only_the_ca_file_is_trusted() {
        let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), signed.cert.pem().repeat(2)).unwrap();
        assert_eq!(authorities(file.path()).unwrap().roots.len(), 2);
    }
}
