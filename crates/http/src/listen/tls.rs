//! TLS, with a certificate that can be replaced while connections are open.

use std::sync::{Arc, PoisonError, RwLock};

use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;

use super::door::{Door, Opening};

/// Who this server is: a certificate and its key. Cheap to clone.
#[derive(Clone)]
pub struct Identity(Arc<ServerConfig>);

/// Why there is none. The operator is to blame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityError {
    /// The file of the certificate has none in it.
    NoCertificate,
    /// The file of the key has none in it.
    NoKey,
    /// They cannot be used, or not with each other.
    Unusable(String),
}

impl Identity {
    /// From the text of PEM files: the certificate with those that lead to its authority, and its key.
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
            Self::NoCertificate => f.write_str("there is no certificate in it"),
            Self::NoKey => f.write_str("there is no private key in it"),
            Self::Unusable(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for IdentityError {}

/// Says nothing: a key is in it.
impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Identity")
    }
}

/// What a listener greets with. Cheap to clone; all clones change together.
#[derive(Clone, Debug)]
pub struct Tls(Arc<RwLock<Identity>>);

impl Tls {
    pub fn new(identity: Identity) -> Self {
        Self(Arc::new(RwLock::new(identity)))
    }

    /// For every handshake from now on. Open connections stay as they are.
    pub fn replace(&self, identity: Identity) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = identity;
    }
}

impl Door for Tls {
    type Stream = TlsStream<TcpStream>;

    fn open(&self, stream: TcpStream) -> Opening<Self::Stream> {
        let Identity(config) = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        Box::pin(async move { TlsAcceptor::from(config).accept(stream).await })
    }
}
