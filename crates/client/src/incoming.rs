//! The answer to a request, from its head to its messages, in bounded memory.

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
const MAX_REFUSAL_BYTES: usize = 64 << 10;

/// How long the body of a refusal is read. Its status says what matters, and whoever waits has no other use for the rest.
const MAX_REFUSAL: Duration = Duration::from_secs(5);

/// How many characters of a refusal are logged.
const MAX_EXCERPT: usize = 200;

/// A longer challenge is none: half of one would be of no use.
const MAX_CHALLENGE_BYTES: usize = 4 << 10;

/// How long, and for how many more events, a stream is read after its answer, so that its connection can be used again.
const FAREWELL: Duration = Duration::from_secs(1);
const MAX_FAREWELL_EVENTS: usize = 16;

/// An answer by its kind.
#[derive(Debug)]
pub enum Incoming {
    /// A body in one piece.
    Whole(Bytes),
    Stream(Stream),
    /// An HTTP status that says no. Its body may be JSON-RPC, or anything else.
    Refusal {
        status: StatusCode,
        body: Bytes,
        challenge: Option<String>,
    },
}

/// Why a stream gives no more events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It is over: the server ended it, or the network did.
    Over(Over),
    /// The server sent more than the limits allow.
    TooMuch(sse::DecodeError),
}

/// How a stream came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Over {
    /// The server said that it was the end.
    Ended,
    Broken(String),
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ended => "the stream ended",
            Self::Broken(why) => why,
        })
    }
}

impl Incoming {
    /// Reads the head, and the body unless it is a stream.
    pub async fn read(response: Response<Body>, limits: &Limits) -> Result<Self, Error> {
        let status = response.status();
        let is_stream = is_event_stream(&response);
        let kind = if status.is_success() { None } else { media_type(response.headers()) };
        let challenge = if status.is_success() { None } else { challenge(response.headers()) };
        let body = response.into_body();
        if !status.is_success() {
            // What a refusal says is worth little: as much of it as comes and fits.
            let body = read_up_to(body, MAX_REFUSAL_BYTES).await;
            log_refusal(status, kind.as_deref(), &body);
            return Ok(Self::Refusal { status, body, challenge });
        }
        if is_stream {
            return Ok(Self::Stream(Stream::new(body, limits)));
        }
        read_whole(body, limits.body_bytes).await.map(Self::Whole)
    }
}

/// The events of one connection.
#[derive(Debug)]
pub struct Stream {
    body: Body,
    decoder: Decoder,
    chunk: Bytes,
}

impl Stream {
    fn new(body: Body, limits: &Limits) -> Self {
        let limits = sse::Limits { max_line_bytes: limits.line_bytes, max_event_bytes: limits.event_bytes };
        Self { body, decoder: Decoder::new(limits), chunk: Bytes::new() }
    }

    /// The next event. Dropped while it waits, it has lost nothing.
    pub async fn next(&mut self) -> Result<Event, End> {
        loop {
            match self.decoder.decode(&mut self.chunk) {
                Ok(Some(event)) => return Ok(event),
                Ok(None) => {}
                Err(error) => return Err(End::TooMuch(error)),
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.chunk = frame.into_data().unwrap_or_default(),
                Some(Err(error)) => return Err(End::Over(Over::Broken(error.to_string()))),
                None => return Err(End::Over(Over::Ended)),
            }
        }
    }

    /// Nothing more is wanted of this stream: its answer has come. Most servers end it now; if this one does, its connection is spared.
    pub fn let_go(mut self) {
        tokio::spawn(async move {
            let rest = async {
                for _ in 0..MAX_FAREWELL_EVENTS {
                    if self.next().await.is_err() {
                        return;
                    }
                }
            };
            // Dropped before its end, it closes its connection.
            let _ = tokio::time::timeout(FAREWELL, rest).await;
        });
    }
}

/// Whether the media type says so, whatever its parameters and its case.
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

/// Logs how the body of a refusal begins, for debugging. Only plain text and JSON are quoted: a page of markup is of no use in a log.
fn log_refusal(status: StatusCode, kind: Option<&str>, body: &[u8]) {
    let text = String::from_utf8_lossy(body);
    let is_quotable = matches!(kind, Some("text/plain" | headers::JSON)) && !text.contains('<');
    // Subscribers escape text, so it cannot be taken for another line of the log.
    let begins: Option<String> = is_quotable.then(|| text.chars().take(MAX_EXCERPT).collect());
    tracing::debug!(status = status.as_u16(), begins, "the server refused a request");
}

/// What the server wants to be shown. Several challenges may be in one header or in several, which means the same.
fn challenge(headers: &HeaderMap) -> Option<String> {
    let list: Result<Vec<&str>, _> =
        headers.get_all(WWW_AUTHENTICATE).iter().map(|value| value.to_str()).collect();
    let text = list.ok()?.join(", ");
    Some(text).filter(|text| !text.is_empty() && text.len() <= MAX_CHALLENGE_BYTES)
}

async fn read_whole(mut body: Body, limit: usize) -> Result<Bytes, Error> {
    // Most bodies come in one piece, which stays where it is.
    let (mut first, mut whole) = (Bytes::new(), BytesMut::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Error::Broken(error.to_string()))?;
        let data = frame.into_data().unwrap_or_default();
        if first.len() + whole.len() + data.len() > limit {
            return Err(Error::BadAnswer(format!("its body has more than {limit} bytes")));
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
    let end = Instant::now() + MAX_REFUSAL;
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
    async fn a_refusal_whose_body_never_ends_is_a_refusal() {
        let begun = Instant::now();
        let mut response = Response::new(Endless(Some("no".into())).boxed_unsync());
        *response.status_mut() = StatusCode::FORBIDDEN;
        let read = tokio::time::timeout(MAX_REFUSAL * 10, Incoming::read(response, &Limits::default())).await;
        let Ok(Ok(Incoming::Refusal { status, body, challenge })) = read else { panic!("{read:?}") };
        assert_eq!((status, &*body, challenge), (StatusCode::FORBIDDEN, b"no".as_slice(), None));
        assert_eq!(begun.elapsed(), MAX_REFUSAL);
    }
}
