//! One server's address, who we are to it, and how long its answers may take.

use std::pin::pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use steadfast_wire::{RequestId, Revision, headers};

use crate::Error;
use crate::config::{Backoff, Config, Limits, Timeouts};
use crate::error::Wait;
use crate::incoming::{End, Incoming, Stream};
use crate::message::{Answer, Received};
use crate::transport::{Body, SendError, Transport};
use steadfast_wire::members::Members;

/// Sends requests to one address.
pub(crate) struct Link {
    transport: Arc<dyn Transport>,
    url: Uri,
    /// What the owner wants on every request.
    headers: RwLock<HeaderMap>,
    /// The JSON texts of what the owner can do and who it is.
    pub(crate) capabilities: String,
    pub(crate) info: String,
    pub(crate) limits: Limits,
    pub(crate) timeouts: Timeouts,
    pub(crate) backoff: Backoff,
    ids: AtomicI64,
}

/// What became of a request that is answered at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Answer(Answer),
    /// An HTTP status that says no, and the answer that is its body, if it is one.
    Refusal {
        status: u16,
        body: Bytes,
        challenge: Option<String>,
        answer: Option<Answer>,
    },
}

impl Link {
    pub(crate) fn new(transport: Arc<dyn Transport>, config: &Config) -> Result<Self, Error> {
        if config.url.authority().is_none() || config.url.scheme().is_none() {
            return Err(Error::BadAddress(config.url.to_string()));
        }
        for (text, what) in [
            (&config.capabilities, "the capabilities are no object"),
            (&config.info, "the info is no object"),
        ] {
            Members::parse(text).map_err(|_| Error::BadConfig(what))?;
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

    /// An id that no request of this client has had; it also serves as a progress token.
    pub(crate) fn next_id(&self) -> RequestId {
        RequestId::Number(self.ids.fetch_add(1, Ordering::Relaxed))
    }

    /// Sends a request outside of any call, such as `initialize`, and waits for its answer. Whatever else comes with it is
    /// dropped: nobody is there yet to hear it.
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
                Incoming::Refusal { status, body, challenge } => {
                    let list = self.messages(&body, revision).unwrap_or_default();
                    let answer = list.iter().find_map(|message| message.refusal_of(id));
                    Reply::Refusal { status: status.as_u16(), body, challenge, answer }
                }
                Incoming::Whole(body) => match answer_in(&self.messages(&body, revision)?, id) {
                    Some(answer) => Reply::Answer(answer),
                    None => return Err(no_answer()),
                },
                Incoming::Stream(stream) => Reply::Answer(self.first_answer(stream, id, revision).await?),
            };
            Ok((headers, reply))
        };
        bounded(answered, Some(self.timeouts.control)).await
    }

    /// The messages in a body or an event.
    pub(crate) fn messages(&self, bytes: &Bytes, revision: Revision) -> Result<Vec<Received>, Error> {
        Received::parse(bytes, revision, self.limits.batch)
            .map_err(|error| Error::BadAnswer(error.to_string()))
    }

    async fn first_answer(
        &self,
        mut stream: Stream,
        id: &RequestId,
        revision: Revision,
    ) -> Result<Answer, Error> {
        loop {
            let event = match stream.next().await {
                Ok(event) if event.data.is_empty() => continue,
                Ok(event) => event,
                Err(End::Over(why)) => return Err(Error::OutcomeUnknown { why: why.to_string() }),
                Err(End::TooMuch(error)) => return Err(Error::BadAnswer(error.to_string())),
            };
            if let Some(answer) = answer_in(&self.messages(&event.data, revision)?, id) {
                return Ok(answer);
            }
        }
    }

    /// Sends a call and gives the head of its answer.
    pub(crate) async fn call(&self, headers: HeaderMap, body: Bytes) -> Result<Response<Body>, Error> {
        // A call has a timer already: another that cannot come first is none.
        let Timeouts { head, call, .. } = self.timeouts;
        bounded(self.post(headers, body), (head < call).then_some(head)).await
    }

    /// Sends what is no call and waits for all of the answer, unless that is a stream.
    pub(crate) async fn control(
        &self,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<(HeaderMap, Incoming), Error> {
        let answered = async {
            let response = self.post(headers, body).await?;
            let headers = response.headers().clone();
            Ok((headers, Incoming::read(response, &self.limits).await?))
        };
        bounded(answered, Some(self.timeouts.control)).await
    }

    /// Opens or resumes a stream.
    pub(crate) async fn get(&self, mut headers: HeaderMap) -> Result<Response<Body>, Error> {
        headers.insert(ACCEPT, HeaderValue::from_static(headers::EVENT_STREAM));
        bounded(self.send(Method::GET, headers, Bytes::new()), Some(self.timeouts.control)).await
    }

    pub(crate) async fn delete(&self, headers: HeaderMap) -> Result<Response<Body>, Error> {
        bounded(self.send(Method::DELETE, headers, Bytes::new()), Some(self.timeouts.control)).await
    }

    async fn post(&self, mut headers: HeaderMap, body: Bytes) -> Result<Response<Body>, Error> {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(headers::JSON));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        self.send(Method::POST, headers, body).await
    }

    /// What the owner wants on every request, and what this one has.
    fn with_own(&self, headers: HeaderMap) -> HeaderMap {
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
        *request.headers_mut() = self.with_own(headers);
        self.transport.send(request).await.map_err(|error| match error {
            SendError::Connect(why) => Error::Connect(why),
            SendError::Untrusted(why) => Error::Untrusted(why),
            SendError::Broken(why) => Error::Broken(why),
        })
    }
}

fn answer_in(list: &[Received], id: &RequestId) -> Option<Answer> {
    list.iter().find_map(|message| message.answer_to(id))
}

fn no_answer() -> Error {
    Error::BadAnswer("it answers another request".to_owned())
}

/// The response to a call does not hold its answer. The server may have executed the call.
pub(crate) fn unanswered() -> Error {
    Error::OutcomeUnknown { why: "the response of the server holds no answer to the call".to_owned() }
}

async fn bounded<T>(
    work: impl Future<Output = Result<T, Error>>,
    wait: Option<Duration>,
) -> Result<T, Error> {
    let work = pin!(work);
    match wait {
        Some(wait) => tokio::time::timeout(wait, work).await.unwrap_or(Err(Error::Timeout(Wait::Head))),
        None => work.await,
    }
}
