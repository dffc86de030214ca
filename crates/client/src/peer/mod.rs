//! The server that a client talks to: sends requests to its address with the client's headers,
//! identity and timeouts.

use std::pin::pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use steadfast_wire::{RawObject, RequestId, Revision, headers};

use crate::Error;
use crate::config::{Backoff, Config, Limits, Timeouts};
use crate::error::Wait;
use crate::transport::{Body, SendError, Transport};

pub(crate) mod message;
mod response;
mod stream_position;

pub use message::Answer;
pub(crate) use message::ServerMessage;
pub use response::{CloseCause, EventStream, ServerResponse, StreamEnd};
pub(crate) use stream_position::StreamPosition;

/// One server, reached over a transport.
pub(crate) struct Peer {
    transport: Arc<dyn Transport>,
    url: Uri,
    /// Headers of the application, sent with every request.
    headers: RwLock<HeaderMap>,
    /// JSON texts of the client's capabilities and `clientInfo`.
    pub(crate) capabilities: String,
    pub(crate) info: String,
    pub(crate) limits: Limits,
    pub(crate) timeouts: Timeouts,
    pub(crate) backoff: Backoff,
    ids: AtomicI64,
}

/// The outcome of a request that is not a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Answer(Answer),
    /// An HTTP error status. `answer` is set if the body is a JSON-RPC error for the request.
    Refusal {
        status: u16,
        body: Bytes,
        challenge: Option<String>,
        answer: Option<Answer>,
    },
}

impl Peer {
    pub(crate) fn new(transport: Arc<dyn Transport>, config: &Config) -> Result<Self, Error> {
        if config.url.authority().is_none() || config.url.scheme().is_none() {
            return Err(Error::BadAddress(config.url.to_string()));
        }
        for (text, what) in [
            (&config.capabilities, "`capabilities` is not a JSON object"),
            (&config.info, "`info` is not a JSON object"),
        ] {
            RawObject::parse(text).map_err(|_| Error::BadConfig(what))?;
        }
        Ok(Self {
            transport,
            url: config.url.clone(),
            headers: RwLock::new(config.headers.clone()),
            capabilities: config.capabilities.clone(),
            info: config.info.clone(),
            limits: config.limits,
            timeouts: config.timeouts,
            backoff: config.backoff,
            ids: AtomicI64::new(config.first_id),
        })
    }

    pub(crate) fn set_headers(&self, headers: HeaderMap) {
        *self.headers.write().unwrap_or_else(PoisonError::into_inner) = headers;
    }

    /// Returns an id that no request of this client has used. It also serves as a progress token.
    pub(crate) fn next_id(&self) -> RequestId {
        RequestId::Number(self.ids.fetch_add(1, Ordering::Relaxed))
    }

    /// Sends a request that is not a call, such as `initialize`, and waits for its answer. Other
    /// messages in the response are dropped, because no receiver exists for them yet.
    pub(crate) async fn request(
        &self,
        id: &RequestId,
        revision: Revision,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<(HeaderMap, Reply), Error> {
        let answered = async {
            let (headers, incoming) = self.control(headers, body).await?;
            let reply = match incoming {
                ServerResponse::Refusal { status, body, challenge } => {
                    let list = self.messages(&body, revision).unwrap_or_default();
                    let answer = list.iter().find_map(|message| message.error_for(id));
                    Reply::Refusal { status: status.as_u16(), body, challenge, answer }
                }
                ServerResponse::Complete(body) => match answer_in(&self.messages(&body, revision)?, id) {
                    Some(answer) => Reply::Answer(answer),
                    None => return Err(answers_other_request()),
                },
                ServerResponse::Stream(stream) => {
                    Reply::Answer(self.first_answer(stream, id, revision).await?)
                }
            };
            Ok((headers, reply))
        };
        with_timeout(answered, Some(self.timeouts.control)).await
    }

    /// Parses the messages in a body or an event.
    pub(crate) fn messages(&self, bytes: &Bytes, revision: Revision) -> Result<Vec<ServerMessage>, Error> {
        ServerMessage::parse(bytes, revision, self.limits.batch)
            .map_err(|error| Error::BadAnswer(error.to_string()))
    }

    async fn first_answer(
        &self,
        mut stream: EventStream,
        id: &RequestId,
        revision: Revision,
    ) -> Result<Answer, Error> {
        loop {
            let event = match stream.next().await {
                Ok(event) if event.data.is_empty() => continue,
                Ok(event) => event,
                Err(StreamEnd::Closed(why)) => return Err(Error::OutcomeUnknown { why: why.to_string() }),
                Err(StreamEnd::OverLimit(error)) => return Err(Error::BadAnswer(error.to_string())),
            };
            if let Some(answer) = answer_in(&self.messages(&event.data, revision)?, id) {
                return Ok(answer);
            }
        }
    }

    /// Posts a call and returns the response, whose body is unread.
    pub(crate) async fn call(&self, headers: HeaderMap, body: Bytes) -> Result<Response<Body>, Error> {
        // The caller has a timer for the whole call, so a second timer that cannot fire first is
        // not set.
        let Timeouts { head, call, .. } = self.timeouts;
        with_timeout(self.post(headers, body), (head < call).then_some(head)).await
    }

    /// Posts a message that is not a call and reads the response, unless it is a stream.
    pub(crate) async fn control(
        &self,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<(HeaderMap, ServerResponse), Error> {
        let answered = async {
            let response = self.post(headers, body).await?;
            let headers = response.headers().clone();
            Ok((headers, ServerResponse::read(response, &self.limits).await?))
        };
        with_timeout(answered, Some(self.timeouts.control)).await
    }

    /// Opens or resumes a stream.
    pub(crate) async fn get(&self, mut headers: HeaderMap) -> Result<Response<Body>, Error> {
        headers.insert(ACCEPT, HeaderValue::from_static(headers::EVENT_STREAM));
        with_timeout(self.send(Method::GET, headers, Bytes::new()), Some(self.timeouts.control)).await
    }

    pub(crate) async fn delete(&self, headers: HeaderMap) -> Result<Response<Body>, Error> {
        with_timeout(self.send(Method::DELETE, headers, Bytes::new()), Some(self.timeouts.control)).await
    }

    async fn post(&self, mut headers: HeaderMap, body: Bytes) -> Result<Response<Body>, Error> {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(headers::JSON));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        self.send(Method::POST, headers, body).await
    }

    /// Merges the application's headers with those of one request, which take precedence.
    fn with_configured_headers(&self, headers: HeaderMap) -> HeaderMap {
        let own = self.headers.read().unwrap_or_else(PoisonError::into_inner);
        if own.is_empty() {
            return headers;
        }
        let mut all = own.clone();
        all.extend(headers);
        all
    }

    async fn send(&self, method: Method, headers: HeaderMap, body: Bytes) -> Result<Response<Body>, Error> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = self.url.clone();
        *request.headers_mut() = self.with_configured_headers(headers);
        self.transport.send(request).await.map_err(|error| match error {
            SendError::Connect(why) => Error::Connect(why),
            SendError::Untrusted(why) => Error::Untrusted(why),
            SendError::Broken(why) => Error::Broken(why),
        })
    }
}

fn answer_in(list: &[ServerMessage], id: &RequestId) -> Option<Answer> {
    list.iter().find_map(|message| message.answer_to(id))
}

fn answers_other_request() -> Error {
    Error::BadAnswer("it answers a different request".to_owned())
}

/// The response to a call holds no answer. The server may have executed the call.
pub(crate) fn no_answer_in_response() -> Error {
    Error::OutcomeUnknown { why: "the response holds no answer to the call".to_owned() }
}

async fn with_timeout<T>(
    work: impl Future<Output = Result<T, Error>>,
    wait: Option<Duration>,
) -> Result<T, Error> {
    let work = pin!(work);
    match wait {
        Some(wait) => tokio::time::timeout(wait, work).await.unwrap_or(Err(Error::Timeout(Wait::Head))),
        None => work.await,
    }
}
