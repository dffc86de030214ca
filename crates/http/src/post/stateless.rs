//! POSTs of stateless revisions: checked against their own headers, answered, and forgotten.

use std::borrow::Cow;
use std::task::Poll;

use http::request::Parts;
use http::{HeaderName, Response, StatusCode};
use steadfast_engine::backend::response as response_message;
use steadfast_engine::{Answer, Principal, Replies, Reply};
use steadfast_wire::envelope::{Message, MessageKind};
use steadfast_wire::rpc;
use steadfast_wire::stateless::{self, Envelope};
use steadfast_wire::{RequestId, Revision, mirrored};

use super::{Endpoint, Post, ResponseBody, empty, json};
use crate::endpoint::event_stream;
use crate::exchange_body::ExchangeBody;
use crate::names;
use crate::problem::Problem;

impl Endpoint {
    /// A message of a stateless revision. Whatever session it names is none of its business.
    pub(super) async fn stateless(
        &self,
        post: Post<'_>,
        message: &Message<'_>,
        principal: Principal,
    ) -> Result<Response<ResponseBody>, Problem> {
        let id = match &message.kind {
            MessageKind::Request(id) => id.clone(),
            // No notification of a client means anything there: a request is cancelled by closing its response.
            MessageKind::Notification => return Ok(empty(StatusCode::ACCEPTED)),
            MessageKind::Response(_) => {
                return Err(Problem::bad_request("Stateless revisions have no responses of the client."));
            }
        };
        check(&post.parts, message)?;
        let request = post.incoming(message);
        // Whoever answers gets the request's head for itself.
        drop(post);
        let replies = self.engine.serve(principal, id, request).await?;
        Ok(self.exchange(replies).await)
    }

    /// The response's status is known once the first reply is there: an answer goes out as it is, anything else opens a
    /// stream, and so does a long silence, so that no proxy takes the connection for dead.
    async fn exchange(&self, mut replies: Replies) -> Response<ResponseBody> {
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
                None => plain(replies.id(), answer),
            };
        }
        let mut body = ExchangeBody::new(replies, first, self.config.keep_alive);
        body.collect_ready().await;
        event_stream(ResponseBody::exchange(body))
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

/// Refusals have a status of their own; errors of the handler are answers like any other.
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

/// The envelope, the version, the mirrored headers and the method, in this order.
fn check(parts: &Parts, message: &Message<'_>) -> Result<(), Problem> {
    let envelope = stateless::read(&message.method, message.params)?;
    check_version(parts, &envelope)?;
    check_mirror(parts, &names::METHOD, &message.method)?;
    if mirrored::name_member(&message.method).is_some() {
        match &envelope.name {
            Some(name) => check_mirror(parts, &names::NAME, name)?,
            // Without a name in the body the backend will say what is missing; a header must not make one up.
            None if mirror(parts, &names::NAME)?.is_some() => {
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

fn check_version(parts: &Parts, envelope: &Envelope<'_>) -> Result<(), Problem> {
    match mirror(parts, &names::PROTOCOL_VERSION)? {
        None => return Err(Problem::header_mismatch("The header MCP-Protocol-Version is missing.")),
        Some(version) if version != envelope.version => {
            return Err(Problem::header_mismatch(
                "MCP-Protocol-Version and the version in params._meta are not the same.",
            ));
        }
        Some(_) => {}
    }
    match Revision::parse(&envelope.version) {
        Some(revision) if revision.is_modern() => Ok(()),
        _ => Err(Problem::unsupported_version(&envelope.version)),
    }
}

/// A header that repeats a part of the body must be there and say the same.
fn check_mirror(parts: &Parts, name: &HeaderName, expected: &str) -> Result<(), Problem> {
    match mirror(parts, name)? {
        None => Err(Problem::header_mismatch(format!("The header {name} is missing."))),
        Some(value) => match mirrored::decode(value) {
            Ok(value) if value == Cow::Borrowed(expected) => Ok(()),
            Ok(_) => Err(Problem::header_mismatch(format!("The header {name} is not what the body says."))),
            Err(_) => {
                Err(Problem::header_mismatch(format!("The header {name} has a base64 value that is none.")))
            }
        },
    }
}

/// The value of a header that may be sent once.
fn mirror<'a>(parts: &'a Parts, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    crate::endpoint::header(parts, name)
        .map(|value| value.map(str::trim))
        .map_err(|problem| Problem::header_mismatch(problem.error.message))
}
