//! Reads the response to a request in bounded memory: a complete body, an event stream, or a
//! refusal.

use std::fmt;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt as _;
use steadfast_wire::headers;
use steadfast_wire::sse::{self, Decoder, Event};
use tokio::time::Instant;

use crate::Error;
use crate::config::Limits;
use crate::transport::Body;

/// How much of the body of a refusal is read.
const MAX_REFUSAL_BODY_BYTES: usize = 64 << 10;

/// How long the client reads the body of a refusal. The status carries the information that callers
/// need.
const REFUSAL_BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// How many characters of a refusal are logged.
const MAX_LOGGED_CHARS: usize = 200;

/// A longer `WWW-Authenticate` value is ignored: a truncated challenge is unusable.
const MAX_CHALLENGE_BYTES: usize = 4 << 10;

/// How long, and for how many more events, the client reads a stream after its answer, so that the
/// connection can be reused.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_DRAIN_EVENTS: usize = 16;

/// The response to a request.
#[derive(Debug)]
pub enum ServerResponse {
    /// A success status with a body that is not a stream.
    Complete(Bytes),
    Stream(EventStream),
    /// An HTTP error status. The body may be JSON-RPC or anything else.
    Refusal {
        status: StatusCode,
        body: Bytes,
        challenge: Option<String>,
    },
}

/// Why a stream yields no more events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// The server ended the stream, or the connection broke.
    Closed(CloseCause),
    /// The server exceeded the limits for lines or events.
    OverLimit(sse::DecodeError),
}

/// How a stream was closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseCause {
    /// The server ended the response properly.
    Ended,
    Broken(String),
}

impl fmt::Display for CloseCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ended => "the stream ended",
            Self::Broken(why) => why,
        })
    }
}

impl ServerResponse {
    /// Reads the response. Reads the body as well, unless it is a stream.
    pub async fn read(response: Response<Body>, limits: &Limits) -> Result<Self, Error> {
        let status = response.status();
        let is_stream = is_event_stream(&response);
        let media_type = if status.is_success() { None } else { media_type(response.headers()) };
        let challenge = if status.is_success() { None } else { challenge(response.headers()) };
        let body = response.into_body();
        if !status.is_success() {
            // The body of a refusal matters little, so a partial body is enough.
            let body = read_up_to(body, MAX_REFUSAL_BODY_BYTES).await;
            log_refusal(status, media_type.as_deref(), &body);
            return Ok(Self::Refusal { status, body, challenge });
        }
        if is_stream {
            return Ok(Self::Stream(EventStream::new(body, limits)));
        }
        read_whole(body, limits.body_bytes).await.map(Self::Complete)
    }
}

/// The events of one response.
#[derive(Debug)]
pub struct EventStream {
    body: Body,
    decoder: Decoder,
    chunk: Bytes,
}

impl EventStream {
    fn new(body: Body, limits: &Limits) -> Self {
        let limits = sse::Limits { max_line_bytes: limits.line_bytes, max_event_bytes: limits.event_bytes };
        Self { body, decoder: Decoder::new(limits), chunk: Bytes::new() }
    }

    /// Returns the next event. Cancel safe: dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Event, StreamEnd> {
        loop {
            match self.decoder.decode(&mut self.chunk) {
                Ok(Some(event)) => return Ok(event),
                Ok(None) => {}
                Err(error) => return Err(StreamEnd::OverLimit(error)),
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.chunk = frame.into_data().unwrap_or_default(),
                Some(Err(error)) => return Err(StreamEnd::Closed(CloseCause::Broken(error.to_string()))),
                None => return Err(StreamEnd::Closed(CloseCause::Ended)),
            }
        }
    }

    /// Reads the rest of a stream whose answer has arrived, in a new task. Most servers end the
    /// stream after the answer. If this server does, the connection returns to the pool.
    pub fn drain_in_background(mut self) {
        tokio::spawn(async move {
            let rest = async {
                for _ in 0..MAX_DRAIN_EVENTS {
                    if self.next().await.is_err() {
                        return;
                    }
                }
            };
            // Dropping the body before its end closes the connection.
            let _ = tokio::time::timeout(DRAIN_TIMEOUT, rest).await;
        });
    }
}

/// Returns true if the media type is that of an event stream, regardless of its parameters and
/// case.
fn is_event_stream(response: &Response<Body>) -> bool {
    let value = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = value.and_then(|value| value.split(';').next()).unwrap_or_default();
    essence.trim().eq_ignore_ascii_case(headers::EVENT_STREAM)
}

/// The media type in lower case, without its parameters.
fn media_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    value.split(';').next().map(|essence| essence.trim().to_ascii_lowercase())
}

/// Logs the beginning of the body of a refusal. Quotes only plain text and JSON, because markup is
/// useless in a log.
fn log_refusal(status: StatusCode, media_type: Option<&str>, body: &[u8]) {
    let text = String::from_utf8_lossy(body);
    let is_quotable = matches!(media_type, Some("text/plain" | headers::JSON)) && !text.contains('<');
    // Log subscribers escape the text, so it cannot forge another log line.
    let begins: Option<String> = is_quotable.then(|| text.chars().take(MAX_LOGGED_CHARS).collect());
    tracing::debug!(status = status.as_u16(), begins, "the server refused a request");
}

/// The authentication challenges. Several challenges in one header and several headers are
/// equivalent.
fn challenge(headers: &HeaderMap) -> Option<String> {
    let list: Result<Vec<&str>, _> =
        headers.get_all(WWW_AUTHENTICATE).iter().map(|value| value.to_str()).collect();
    let text = list.ok()?.join(", ");
    Some(text).filter(|text| !text.is_empty() && text.len() <= MAX_CHALLENGE_BYTES)
}

async fn read_whole(mut body: Body, limit: usize) -> Result<Bytes, Error> {
    // Most bodies arrive in one frame, which is returned without copying.
    let (mut first, mut whole) = (Bytes::new(), BytesMut::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Error::Broken(error.to_string()))?;
        let data = frame.into_data().unwrap_or_default();
        if first.len() + whole.len() + data.len() > limit {
            return Err(Error::BadAnswer(format!("the body is larger than {limit} bytes")));
        }
        if first.is_empty() && whole.is_empty() {
            first = data;
            continue;
        }
        whole.extend_from_slice(&std::mem::take(&mut first));
        whole.extend_from_slice(&data);
    }
    Ok(if whole.is_empty() { first } else { whole.freeze() })
}

async fn read_up_to(mut body: Body, limit: usize) -> Bytes {
    let mut whole = BytesMut::new();
    let end = Instant::now() + REFUSAL_BODY_TIMEOUT;
    while whole.len() < limit {
        let Ok(Some(Ok(frame))) = tokio::time::timeout_at(end, body.frame()).await else { break };
        whole.extend_from_slice(&frame.into_data().unwrap_or_default());
    }
    whole.truncate(limit);
    whole.freeze()
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use http_body::Frame;

    use super::*;
    use crate::transport::BrokenBody;

    /// A body that begins and never ends.
    struct Endless(Option<Bytes>);

    impl http_body::Body for Endless {
        type Data = Bytes;
        type Error = BrokenBody;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BrokenBody>>> {
            match self.0.take() {
                Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
                None => Poll::Pending,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_endless_refusal_body_is_cut_off() {
        let begun = Instant::now();
        let mut response = Response::new(Endless(Some("no".into())).boxed_unsync());
        *response.status_mut() = StatusCode::FORBIDDEN;
        let read = tokio::time::timeout(
            REFUSAL_BODY_TIMEOUT * 10,
            ServerResponse::read(response, &Limits::default()),
        )
        .await;
        let Ok(Ok(ServerResponse::Refusal { status, body, challenge })) = read else { panic!("{read:?}") };
        assert_eq!((status, &*body, challenge), (StatusCode::FORBIDDEN, b"no".as_slice(), None));
        assert_eq!(begun.elapsed(), REFUSAL_BODY_TIMEOUT);
    }
}
