//! POSTs of stateless revisions: checks their headers against the body and answers them. No session
//! is involved.

use std::borrow::Cow;
use std::task::Poll;

use http::request::Parts;
use http::{HeaderName, Response, StatusCode};
use steadfast_engine::backend::response as response_message;
use steadfast_engine::{Answer, Principal, Replies, Reply};
use steadfast_wire::envelope::{Message, MessageKind};
use steadfast_wire::params::client_info;
use steadfast_wire::stateless::{self, Envelope};
use steadfast_wire::{Reason, RequestId, Revision, Revisions, discover, header_annotations, rpc};

use super::{Endpoint, Post, ResponseBody, empty, json};
use crate::quirks::{Agent, Effect, Quirk};
use crate::request::header_names;
use crate::response::event_stream;
use crate::response::exchange_body::ExchangeBody;
use crate::response::problem::Problem;

impl Endpoint {
    /// Handles a message of a stateless revision. Ignores the session header.
    pub(super) async fn stateless(
        &self,
        post: Post<'_>,
        message: &Message<'_>,
        principal: Principal,
    ) -> Result<Response<ResponseBody>, Problem> {
        let id = match &message.kind {
            MessageKind::Request(id) => id.clone(),
            // The revision has no client notifications: a client cancels a request by closing its
            // response.
            MessageKind::Notification => return Ok(empty(StatusCode::ACCEPTED)),
            MessageKind::Response(_) => {
                return Err(Problem::bad_request("Stateless revisions have no responses of the client."));
            }
        };
        let is_discover = message.method == discover::METHOD;
        let discovery = if is_discover { self.discovery(&post.parts, message) } else { Discovery::default() };
        if let Some(result) = self.check(&post.parts, message)? {
            return Ok(discovery.respond(&id, Ok(result.into())));
        }
        self.check_keys(&post.parts, std::slice::from_ref(message), &principal).await?;
        let request = post.incoming(message);
        // The backend becomes the only owner of the request's head.
        drop(post);
        let mut replies = self.engine.serve(principal.clone(), id, request).await?;
        // A client that does not know the revisions yet does not resume, and a stream could not
        // carry the status of its answer.
        if !is_discover && self.should_promote(&mut replies).await {
            match self.promote(replies, &principal).await {
                Ok(response) => return Ok(response),
                Err(unchanged) => replies = unchanged,
            }
        }
        Ok(self.exchange(replies, discovery).await)
    }

    /// Checks the envelope, the version, the headers that repeat the body and the method, in this
    /// order. Returns the result of `server/discover` if no stateless revision is offered.
    fn check(&self, parts: &Parts, message: &Message<'_>) -> Result<Option<String>, Problem> {
        let offered = &self.config.revisions;
        let envelope = stateless::read(&message.method, message.params)?;
        check_version_header(parts, &envelope)?;
        let is_answered_here = message.method == discover::METHOD && !offered.offers_modern();
        if !is_answered_here {
            check_offered(&envelope, offered)?;
        }
        check_mirrors(parts, message, &envelope)?;
        Ok(is_answered_here.then(|| discover::result(offered)))
    }

    /// Waits for the first reply, which determines the status: an answer is sent as plain JSON, any
    /// other reply opens a stream. A silence of `keep_alive` opens a stream as well, so that
    /// proxies do not close the connection.
    async fn exchange(&self, mut replies: Replies, discovery: Discovery<'_>) -> Response<ResponseBody> {
        let first = std::future::poll_fn(|context| Poll::Ready(replies.poll_next(context))).await;
        let first = match first {
            Poll::Ready(reply) => reply,
            Poll::Pending => {
                let next = std::future::poll_fn(|context| replies.poll_next(context));
                tokio::time::timeout(self.config.keep_alive, next).await.unwrap_or_default()
            }
        };
        if let Some(Reply::Answer(answer)) = first {
            return match replies.denial() {
                Some(denial) => Problem::from(denial).with_id(Some(replies.id())).into_response(),
                None => discovery.respond(replies.id(), answer),
            };
        }
        let mut body = ExchangeBody::new(replies, first, self.config.keep_alive);
        body.collect_ready().await;
        event_stream(ResponseBody::exchange(body))
    }

    fn discovery(&self, parts: &Parts, message: &Message<'_>) -> Discovery<'_> {
        let client = message.params.map(client_info).unwrap_or_default();
        let mut quirks = self.config.quirks.of(&client, Agent::of(parts));
        Discovery {
            listed: (self.config.revisions != Revisions::all()).then_some(&self.config.revisions),
            quirk: quirks.find(|quirk| quirk.effect == Effect::DiscoverNotFound),
        }
    }
}

/// What changes the answer to `server/discover`. The default changes nothing.
#[derive(Default)]
struct Discovery<'a> {
    /// The revisions that may be listed, if some are declined.
    listed: Option<&'a Revisions>,
    /// The client does not open a session if the result lists only revisions with sessions.
    quirk: Option<&'static Quirk>,
}

impl Discovery<'_> {
    fn respond(self, id: &RequestId, answer: Answer) -> Response<ResponseBody> {
        let answer = match (&answer, self.listed) {
            (Ok(result), Some(listed)) => {
                discover::restrict(result, listed).map_or(answer, |result| Ok(result.into()))
            }
            _ => answer,
        };
        let has_only_sessions = || answer.as_ref().is_ok_and(|result| discover::lists_only_sessions(result));
        match self.quirk.filter(|_| has_only_sessions()) {
            Some(quirk) => {
                let message = "This endpoint has sessions. Open one with `initialize`.";
                let problem = Problem::new(Reason::MethodNotFound, rpc::METHOD_NOT_FOUND, message);
                quirk.mark(problem.with_id(Some(id)).into_response())
            }
            None => plain(id, answer),
        }
    }
}

fn plain(id: &RequestId, answer: Answer) -> Response<ResponseBody> {
    let status = match &answer {
        Err(error) => status_of(error.code),
        Ok(_) => StatusCode::OK,
    };
    let mut response = json(response_message(id, &answer));
    *response.status_mut() = status;
    response
}

/// Protocol errors have an HTTP status. Errors of the handler are ordinary answers with status 200.
fn status_of(code: i32) -> StatusCode {
    match code {
        rpc::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        rpc::HEADER_MISMATCH
        | rpc::MISSING_CLIENT_CAPABILITY
        | rpc::UNSUPPORTED_PROTOCOL_VERSION
        | rpc::INVALID_REQUEST => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

fn check_mirrors(parts: &Parts, message: &Message<'_>, envelope: &Envelope<'_>) -> Result<(), Problem> {
    check_mirror(parts, &header_names::METHOD, &message.method)?;
    if header_annotations::name_member(&message.method).is_some() {
        match &envelope.name {
            Some(name) => check_mirror(parts, &header_names::NAME, name)?,
            // If the body has no name, the backend reports what is missing. A header must not
            // supply a name.
            None if mirror(parts, &header_names::NAME)?.is_some() => {
                return Err(Problem::header_mismatch("Mcp-Name names what the body does not."));
            }
            None => {}
        }
    }
    if stateless::is_removed(&message.method) {
        return Err(Problem::method_not_found(&message.method));
    }
    Ok(())
}

fn check_version_header(parts: &Parts, envelope: &Envelope<'_>) -> Result<(), Problem> {
    match mirror(parts, &header_names::PROTOCOL_VERSION)? {
        None => Err(Problem::header_mismatch("The header MCP-Protocol-Version is missing.")),
        Some(version) if version != envelope.version => Err(Problem::header_mismatch(
            "MCP-Protocol-Version and the version in params._meta are not the same.",
        )),
        Some(_) => Ok(()),
    }
}

fn check_offered(envelope: &Envelope<'_>, offered: &Revisions) -> Result<(), Problem> {
    match Revision::parse(&envelope.version) {
        Some(revision) if revision.is_modern() && offered.offers(revision) => Ok(()),
        _ => Err(Problem::unsupported_version(&envelope.version, offered)),
    }
}

/// Checks that a header that mirrors part of the body is present and equal to it.
fn check_mirror(parts: &Parts, name: &HeaderName, expected: &str) -> Result<(), Problem> {
    match mirror(parts, name)? {
        None => Err(Problem::header_mismatch(format!("The header {name} is missing."))),
        Some(value) => match header_annotations::decode(value) {
            Ok(value) if value == Cow::Borrowed(expected) => Ok(()),
            Ok(_) => Err(Problem::header_mismatch(format!("The header {name} is not what the body says."))),
            Err(_) => {
                Err(Problem::header_mismatch(format!("The header {name} has a base64 value that is none.")))
            }
        },
    }
}

/// The value of a header that repeats part of the body, which may be sent once.
fn mirror<'a>(parts: &'a Parts, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    crate::request::headers::single_header(parts, name)
        .map(|value| value.map(str::trim))
        .map_err(|problem| Problem::header_mismatch(problem.error.message))
}
