//! [`KeySource`]: fetches a key set from a URL or reads it from a file, bounded in size and time.

use std::fmt;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, StatusCode, Uri};
use http_body_util::BodyExt as _;
use steadfast_client::transport::{Http, Transport};
use steadfast_client::{Limits, Timeouts};

use crate::jwks::{KeySet, KeySetError};
use crate::settings::{Keys, Settings, is_loopback};

pub(crate) struct KeySource {
    location: Location,
    timeout: Duration,
    max_bytes: usize,
}

enum Location {
    Url { url: Uri, transport: Arc<dyn Transport> },
    File(PathBuf),
}

/// Why keys could not be fetched: a network failure, a fault of the issuer, or a wrong
/// configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("the key set cannot be read: {0}")]
    Unreachable(String),
    #[error("the key set did not arrive within {0:?}")]
    Timeout(Duration),
    #[error("the server answered with status {0}")]
    Status(StatusCode),
    #[error("the key set has more than {0} bytes")]
    TooLarge(usize),
    #[error(transparent)]
    Unusable(#[from] KeySetError),
}

impl KeySource {
    pub(crate) fn new(settings: &Settings) -> Self {
        let fetching = &settings.fetching;
        let location = match &settings.keys {
            Keys::File(file) => Location::File(file.clone()),
            Keys::Url(url) => {
                let timeouts = Timeouts { connect: fetching.timeout, ..Timeouts::default() };
                // The transport bounds the head of the response, and `download` bounds the body.
                let limits = Limits::default();
                let transport: Arc<dyn Transport> = if is_loopback(url) {
                    Arc::new(Http::new(&timeouts, &limits))
                } else {
                    Arc::new(Http::secured(&settings.tls, &timeouts, &limits))
                };
                Location::Url { url: url.clone(), transport }
            }
        };
        Self { location, timeout: fetching.timeout, max_bytes: fetching.max_bytes }
    }

    pub(crate) async fn fetch(&self) -> Result<KeySet, FetchError> {
        let bytes = tokio::time::timeout(self.timeout, self.read()).await;
        let bytes = bytes.unwrap_or(Err(FetchError::Timeout(self.timeout)))?;
        Ok(KeySet::parse(&bytes)?)
    }

    async fn read(&self) -> Result<Bytes, FetchError> {
        match &self.location {
            Location::Url { url, transport } => download(url, transport.as_ref(), self.max_bytes).await,
            Location::File(file) => {
                let (file, max_bytes) = (file.clone(), self.max_bytes);
                let read = tokio::task::spawn_blocking(move || load(&file, max_bytes));
                read.await.unwrap_or_else(|error| Err(FetchError::Unreachable(error.to_string())))
            }
        }
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.location {
            Location::Url { url, .. } => url.fmt(f),
            Location::File(file) => file.display().fmt(f),
        }
    }
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeySource({self})")
    }
}

/// Downloads the key set. Does not follow redirects: keys come only from the URL that the operator
/// configured.
async fn download(url: &Uri, transport: &dyn Transport, max_bytes: usize) -> Result<Bytes, FetchError> {
    let mut request = Request::new(Bytes::new());
    *request.uri_mut() = url.clone();
    let accept = http::HeaderValue::from_static("application/jwk-set+json, application/json");
    request.headers_mut().insert(http::header::ACCEPT, accept);
    let response =
        transport.send(request).await.map_err(|error| FetchError::Unreachable(error.to_string()))?;
    if response.status() != StatusCode::OK {
        return Err(FetchError::Status(response.status()));
    }
    let (mut body, mut bytes) = (response.into_body(), BytesMut::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| FetchError::Unreachable(error.to_string()))?;
        let data = frame.into_data().unwrap_or_default();
        if bytes.len() + data.len() > max_bytes {
            return Err(FetchError::TooLarge(max_bytes));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.freeze())
}

fn load(file: &std::path::Path, max_bytes: usize) -> Result<Bytes, FetchError> {
    let unreadable = |error: std::io::Error| FetchError::Unreachable(error.to_string());
    let file = std::fs::File::open(file).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(max_bytes as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > max_bytes { Err(FetchError::TooLarge(max_bytes)) } else { Ok(bytes.into()) }
}
