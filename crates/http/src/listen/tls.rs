//! TLS for the accept loop, with a certificate that can be replaced while connections are open.

use std::sync::{Arc, PoisonError, RwLock};

use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;

use super::handshake::{Handshake, HandshakeFuture};

/// The server's certificate and private key. Cheap to clone.
#[derive(Clone)]
pub struct Identity(Arc<ServerConfig>);

/// Why a certificate or key is unusable. The operator is to blame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityError {
    /// The certificate file contains no certificate.
    NoCertificate,
    /// The key file contains no private key.
    NoKey,
    /// The certificate or the key is invalid, or they do not match.
    Unusable(String),
}

impl Identity {
    /// Parses PEM texts: the certificate with its chain, and the private key.
    pub fn from_pem(certificates: &str, key: &str) -> Result<Self, IdentityError> {
        let unusable = |error: &dyn std::fmt::Display| IdentityError::Unusable(error.to_string());
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates.as_bytes()).collect();
        let chain = chain.map_err(|error| unusable(&error))?;
        if chain.is_empty() {
            return Err(IdentityError::NoCertificate);
        }
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| IdentityError::NoKey)?;
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| unusable(&error))?;
        let config = builder.with_no_client_auth().with_single_cert(chain, key);
        let mut config = config.map_err(|error: rustls::Error| unusable(&error))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }
}

impl std::fmt::Display for IdentityError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoCertificate => f.write_str("the file contains no certificate"),
            Self::NoKey => f.write_str("the file contains no private key"),
            Self::Unusable(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for IdentityError {}

/// Omits all fields, because they contain a private key.
impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Identity")
    }
}

/// The TLS handshake of a listener. Cheap to clone; all clones share one certificate.
#[derive(Clone, Debug)]
pub struct Tls(Arc<RwLock<Identity>>);

impl Tls {
    pub fn new(identity: Identity) -> Self {
        Self(Arc::new(RwLock::new(identity)))
    }

    /// Replaces the certificate for all later handshakes. Open connections are not affected.
    pub fn replace(&self, identity: Identity) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = identity;
    }
}

impl Handshake for Tls {
    type Stream = TlsStream<TcpStream>;

    fn perform(&self, stream: TcpStream) -> HandshakeFuture<Self::Stream> {
        let Identity(config) = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        Box::pin(async move { TlsAcceptor::from(config).accept(stream).await })
    }
}
