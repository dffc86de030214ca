//! Where keys come from: bounded in size and time.

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

/// A place with a key set.
pub(crate) struct Source {
    place: Place,
    timeout: Duration,
    max_bytes: usize,
}

enum Place {
    Url { url: Uri, transport: Arc<dyn Transport> },
    File(PathBuf),
}

/// Why there are no keys. The network, whoever publishes them, or the operator is to blame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("it cannot be read: {0}")]
    Unreachable(String),
    #[error("it was not there after {0:?}")]
    TooLate(Duration),
    #[error("it is answered with status {0}")]
    Refused(StatusCode),
    #[error("it has more than {0} bytes")]
    TooLarge(usize),
    #[error(transparent)]
    Unusable(#[from] KeySetError),
}

impl Source {
    pub(crate) fn new(settings: &Settings) -> Self {
        let fetching = &settings.fetching;
        let place = match &settings.keys {
            Keys::File(file) => Place::File(file.clone()),
            Keys::Url(url) => {
                let timeouts = Timeouts { connect: fetching.timeout, ..Timeouts::default() };
                let limits = Limits::default();
                let transport: Arc<dyn Transport> = if is_loopback(url) {
                    Arc::new(Http::new(&timeouts, &limits))
                } else {
                    Arc::new(Http::secured(&settings.tls, &timeouts, &limits))
                };
                Place::Url { url: url.clone(), transport }
            }
        };
        Self { place, timeout: fetching.timeout, max_bytes: fetching.max_bytes }
    }

    pub(crate) async fn fetch(&self) -> Result<KeySet, FetchError> {
        let bytes = tokio::time::timeout(self.timeout, self.read()).await;
        let bytes = bytes.unwrap_or(Err(FetchError::TooLate(self.timeout)))?;
        Ok(KeySet::parse(&bytes)?)
    }

    async fn read(&self) -> Result<Bytes, FetchError> {
        match &self.place {
            Place::Url { url, transport } => download(url, transport.as_ref(), self.max_bytes).await,
            Place::File(file) => {
                let (file, max_bytes) = (file.clone(), self.max_bytes);
                let read = tokio::task::spawn_blocking(move || load(&file, max_bytes));
                read.await.unwrap_or_else(|error| Err(FetchError::Unreachable(error.to_string())))
            }
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Url { url, .. } => url.fmt(f),
            Place::File(file) => file.display().fmt(f),
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({self})")
    }
}

/// Redirects are not followed: keys come from where the operator said, or not at all.
async fn download(url: &Uri, transport: &dyn Transport, max_bytes: usize) -> Result<Bytes, FetchError> {
    let mut request = Request::new(Bytes::new());
    *request.uri_mut() = url.clone();
    let accept = http::HeaderValue::from_static("application/jwk-set+json, application/json");
    request.headers_mut().insert(http::header::ACCEPT, accept);
    let response =
        transport.send(request).await.map_err(|error| FetchError::Unreachable(error.to_string()))?;
    if response.status() != StatusCode::OK {
        return Err(FetchError::Refused(response.status()));
    }
    let (mut body, mut whole) = (response.into_body(), BytesMut::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| FetchError::Unreachable(error.to_string()))?;
        let data = frame.into_data().unwrap_or_default();
        if whole.len() + data.len() > max_bytes {
            return Err(FetchError::TooLarge(max_bytes));
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

fn load(file: &std::path::Path, max_bytes: usize) -> Result<Bytes, FetchError> {
    let unreadable = |error: std::io::Error| FetchError::Unreachable(error.to_string());
    let file = std::fs::File::open(file).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(max_bytes as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > max_bytes { Err(FetchError::TooLarge(max_bytes)) } else { Ok(bytes.into()) }
}
