//! Passing a request on, and its answer back.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Uri};
use steadfast_client::incoming::{End, Incoming as Received, Stream};
use steadfast_client::transport::{SendError, Transport};
use steadfast_client::{Error, Limits, Timeouts};
use steadfast_engine::{Answer, ChangeFilter, Class, ExchangeHandle, Incoming};
use steadfast_wire::params::META_SUBSCRIPTION_ID;
use steadfast_wire::rpc::ErrorObject;
use steadfast_wire::sse::Kind;
use steadfast_wire::{Message, MessageKind, RequestId, listen};

use super::errors::{self, Refused};
use super::outgoing::Outgoing;
use crate::config::{Config, Credential, Server};
use crate::replicas::is_away;
use crate::stdio::splice;

pub(super) const TOO_LONG: &str = "the server took too long to answer";

/// Why a server has not answered a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Missed {
    /// Nobody is there, and nothing was sent. The network is to blame, or the server.
    Away(String),
    /// Nothing was sent: the server has not proven who it is, and its operator is to blame, or ours. It does not help to wait.
    Untrusted(String),
    /// The server takes no requests now (status 503), as it said when it was asked something else. Nothing was sent.
    Refused(ErrorObject),
    /// The server was lost before it said anything. It may have begun.
    Lost(ErrorObject),
    /// The server is there, and its response holds no answer. It may have begun.
    Unanswered(ErrorObject),
    /// The server was lost while it answered. Its client may have heard a part of that.
    BrokeOff(ErrorObject),
    /// Nothing is wrong with the way to the server: its answer cannot be read, it took too long, or nobody waits any more.
    Ended(Answer),
}

impl From<Missed> for Answer {
    fn from(missed: Missed) -> Self {
        match missed {
            Missed::Away(why) => Err(crate::errors::unavailable(&why)),
            Missed::Untrusted(why) => Err(crate::errors::untrusted(&why)),
            Missed::Refused(error)
            | Missed::Lost(error)
            | Missed::Unanswered(error)
            | Missed::BrokeOff(error) => Err(error),
            Missed::Ended(answer) => answer,
        }
    }
}

/// Passes requests on.
pub struct Forwarder {
    /// Sent with every request.
    pub(super) headers: HeaderMap,
    pub(super) credential: Credential,
    pub(super) limits: Limits,
    pub(super) timeouts: Timeouts,
    ids: AtomicI64,
}

impl Forwarder {
    pub fn new(config: &Config) -> Self {
        let headers = match &config.server {
            Server::Http { headers, .. } => headers.clone(),
            Server::Stdio(_) => HeaderMap::new(),
        };
        let credential = config.credential.clone();
        let (limits, timeouts) = (config.limits, config.timeouts);
        Self { headers, credential, limits, timeouts, ids: AtomicI64::new(1) }
    }

    pub(super) fn next_id(&self) -> i64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Has the server at this address answer a request: `Ok` is its word, even if that is an error. When the exchange is cancelled, the connection is closed at once; a
    /// subscription then ends in good order.
    pub async fn forward(
        &self,
        transport: &Arc<dyn Transport>,
        url: &Uri,
        exchange: &ExchangeHandle,
        request: &Incoming,
    ) -> Result<Answer, Missed> {
        let own = self.next_id();
        let outgoing = Outgoing::new(request, own, url, &self.headers, &self.credential);
        let Outgoing { request: outgoing, token } = outgoing;
        let method = request.method.clone();
        let shows_clients = matches!(self.credential, Credential::Forwarded);
        let run = Run { exchange, own, token, method: &method, limits: &self.limits, shows_clients };
        let limit = (!exchange.is_subscription()).then_some(self.timeouts.call);
        let work = async {
            match tokio::time::timeout(self.timeouts.head, transport.send(outgoing)).await {
                Ok(Ok(response)) => run.read(response).await,
                Ok(Err(SendError::Connect(why))) => Err(Missed::Away(why)),
                Ok(Err(SendError::Untrusted(why))) => Err(Missed::Untrusted(why)),
                Ok(Err(SendError::Broken(why))) => Err(Missed::Lost(errors::broken(&method, &why))),
                Err(_) => Err(Missed::Lost(errors::broken(&method, TOO_LONG))),
            }
        };
        tokio::select! {
            biased;
            answer = work => answer,
            () = exchange.cancelled().cancelled() => Err(Missed::Ended(cancelled(exchange))),
            () = elapsed(limit) => Err(Missed::Ended(Err(errors::broken(&method, TOO_LONG)))),
        }
    }
}

/// Leaves out the headers, which may be secrets.
impl std::fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forwarder").field("credential", &self.credential).finish_non_exhaustive()
    }
}

/// A request on its way.
struct Run<'a> {
    exchange: &'a ExchangeHandle,
    own: i64,
    /// The JSON text of the client's progress token.
    token: Option<String>,
    method: &'a str,
    limits: &'a Limits,
    /// The server sees the client's own credentials, so its word on them is for the client.
    shows_clients: bool,
}

impl Run<'_> {
    async fn read(
        &self,
        response: http::Response<steadfast_client::transport::Body>,
    ) -> Result<Answer, Missed> {
        match Received::read(response, self.limits).await {
            Ok(Received::Whole(body)) => self.whole(&body),
            Ok(Received::Stream(stream)) => self.follow(stream).await,
            Ok(Received::Refusal { status, body, challenge }) => {
                self.refused(status.as_u16(), &body, challenge)
            }
            Err(Error::BadAnswer(why)) => Err(self.bad_answer(&why)),
            Err(error) => Err(self.broke_off(&error.to_string())),
        }
    }

    fn refused(&self, status: u16, body: &[u8], challenge: Option<String>) -> Result<Answer, Missed> {
        let message = std::str::from_utf8(body).ok().and_then(|text| Message::parse(text).ok());
        let error = message.as_ref().and_then(error_in);
        let is_ours = message.as_ref().and_then(Message::id) == Some(&RequestId::Number(self.own));
        let error = errors::of_refusal(self.method, Refused { status, error, is_ours });
        let denial = crate::errors::denial(status, challenge, error.clone());
        if let Some(denial) = denial.filter(|_| self.shows_clients) {
            self.exchange.deny(denial);
        }
        // What stands before a server says 503, too, when it loses the server half way.
        if is_away(status) { Err(Missed::Lost(error)) } else { Ok(Err(error)) }
    }

    fn whole(&self, body: &Bytes) -> Result<Answer, Missed> {
        let unanswered = || {
            let why = "the response of the server holds no answer to the request";
            Err(Missed::Unanswered(errors::broken(self.method, why)))
        };
        if body.trim_ascii().is_empty() {
            return unanswered();
        }
        match self.take(body) {
            Taken::Answer(answer) => Ok(answer),
            Taken::Other(_) => unanswered(),
            Taken::Bad(why) => Err(self.bad_answer(&why)),
        }
    }

    /// Reads a stream to the answer.
    async fn follow(&self, mut stream: Stream) -> Result<Answer, Missed> {
        let mut acknowledged = false;
        loop {
            let event = match stream.next().await {
                Ok(event) if event.kind != Kind::Message || event.data.is_empty() => continue,
                Ok(event) => event,
                Err(End::Over(why)) => return Err(self.broke_off(&why.to_string())),
                Err(End::TooMuch(error)) => return Err(self.bad_answer(&error.to_string())),
            };
            match self.take(&event.data) {
                Taken::Answer(answer) => {
                    stream.let_go();
                    return Ok(answer);
                }
                Taken::Other(message) => {
                    self.pass_on(&message, &mut acknowledged).map_err(|error| Missed::Ended(Err(error)))?;
                }
                Taken::Bad(why) => return Err(self.bad_answer(&why)),
            }
        }
    }

    fn bad_answer(&self, why: &str) -> Missed {
        Missed::Ended(Err(errors::bad_answer(self.method, why)))
    }

    fn broke_off(&self, why: &str) -> Missed {
        Missed::BrokeOff(errors::broken(self.method, why))
    }

    fn take<'b>(&self, bytes: &'b Bytes) -> Taken<'b> {
        let message = match std::str::from_utf8(bytes).map(Message::parse) {
            Ok(Ok(message)) => message,
            Ok(Err(error)) => return Taken::Bad(error.to_string()),
            Err(_) => return Taken::Bad("it is not UTF-8".to_owned()),
        };
        match &message.kind {
            MessageKind::Response(Some(RequestId::Number(id))) if *id == self.own => {}
            // The server could not read the id; there is but one request that it can mean.
            MessageKind::Response(None) => {}
            MessageKind::Request(_) => {
                return Taken::Bad(format!("it asks for {} in a stateless request", message.method));
            }
            MessageKind::Response(Some(_)) | MessageKind::Notification => return Taken::Other(message),
        }
        let result = splice::find(message.text, &["result"]).map(|part| &message.text[part]);
        Taken::Answer(match (error_in(&message), result) {
            (Some(error), _) => Err(errors::of_answer(self.method, error)),
            (None, Some(result)) => {
                let renamed = self.with_client_subscription(result, &["_meta"]);
                Ok(renamed.unwrap_or_else(|| bytes.slice_ref(result.as_bytes())))
            }
            (None, None) => return Taken::Bad("its error cannot be read".to_owned()),
        })
    }

    /// Hands a notification to the client.
    fn pass_on(&self, message: &Message<'_>, acknowledged: &mut bool) -> Result<(), ErrorObject> {
        let text = || Bytes::copy_from_slice(message.text.as_bytes());
        let (class, payload) = match &*message.method {
            // Requests without a session are of different principals, so it is given to none of them.
            _ if message.is_response() => {
                tracing::warn!(method = self.method, "an answer to another request is ignored");
                return Ok(());
            }
            // The result or the end of the stream says the same.
            "notifications/cancelled" => return Ok(()),
            "notifications/progress" => match self.with_client_token(message.text) {
                Some(payload) => (Class::Chatter, payload),
                None => return Ok(()),
            },
            "notifications/message" => (Class::Chatter, text()),
            _ if self.exchange.is_subscription() => {
                let Some(payload) = self.with_client_subscription(message.text, &["params", "_meta"]) else {
                    tracing::warn!(method = %message.method, "a notification of another subscription is ignored");
                    return Ok(());
                };
                (Class::Notice, payload)
            }
            _ => (Class::Notice, text()),
        };
        if self.exchange.is_subscription() && message.method == listen::ACKNOWLEDGED {
            // What changes here is none of its business: it hears what the server sends.
            if !std::mem::replace(acknowledged, true) {
                self.exchange.acknowledge(ChangeFilter::default(), payload);
            }
            return Ok(());
        }
        match self.exchange.notify(class, payload) {
            Err(_) if self.exchange.is_subscription() => Err(errors::overflow()),
            Err(_) => {
                tracing::warn!(method = %message.method, "a notification is dropped: its client does not read");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Progress in the client's terms. `None` if it is not about this request.
    fn with_client_token(&self, text: &str) -> Option<Bytes> {
        let part = splice::find(text, &["params", "progressToken"])?;
        let token = self.token.as_ref().filter(|_| text[part.clone()] == self.own.to_string())?;
        Some(splice::replace(text, &[(part, token)]))
    }

    /// What names our subscription, with the id that the client gave it. `None` if it does not.
    fn with_client_subscription(&self, text: &str, meta: &[&str]) -> Option<Bytes> {
        let part = splice::find(text, &[meta, &[META_SUBSCRIPTION_ID]].concat())?;
        let is_ours = text[part.clone()] == self.own.to_string();
        is_ours.then(|| splice::replace(text, &[(part, &self.exchange.id().to_string())]))
    }
}

/// What a client is told that has cancelled its request. A subscription has come to its end.
pub(super) fn cancelled(exchange: &ExchangeHandle) -> Answer {
    if !exchange.is_subscription() {
        return Err(crate::errors::cancelled(true));
    }
    let id = exchange.id();
    Ok(format!(r#"{{"resultType":"complete","_meta":{{"{META_SUBSCRIPTION_ID}":{id}}}}}"#).into())
}

/// What a message of the server is.
enum Taken<'a> {
    Answer(Answer),
    /// Not the answer.
    Other(Message<'a>),
    /// Nothing that may come here.
    Bad(String),
}

pub(super) fn error_in(message: &Message<'_>) -> Option<ErrorObject> {
    let part = splice::find(message.text, &["error"])?;
    ErrorObject::parse(message.text[part].as_bytes())
}

async fn elapsed(limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => std::future::pending().await,
    }
}
