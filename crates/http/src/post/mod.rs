//! POST: requests, notifications and responses from the client.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use http_body::Body as HttpBody;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use steadfast_engine::backend::response as response_message;
use steadfast_engine::{CallDriver, Cursor, IncomingMessage, LiveSession, OpenError, Principal, Refusal};
use steadfast_wire::envelope::{Body, Message, MessageKind};
use steadfast_wire::params::ClientInfo;
use steadfast_wire::{Reason, RequestId, Revision, Revisions, media_types, params, stateless as envelope};

use crate::config::ResponseMode;
use crate::mcp_endpoint::Endpoint;
use crate::quirks::{Agent, Quirk, Quirks};
use crate::request::headers::{ClaimedEra, claimed_version, session_header, single_header};
use crate::response::body::ResponseBody;
use crate::response::problem::Problem;
use crate::response::{empty, json, repeat_session_id, set_session_id};

mod calls;
mod credential_denial;
mod in_band;
mod keyed;
mod promote;
mod stateless;

use credential_denial::refuse;

impl Endpoint {
    pub(crate) async fn post<B>(
        &self,
        parts: Parts,
        body: B,
        principal: Principal,
    ) -> Result<Response<ResponseBody>, Problem>
    where
        B: HttpBody,
        B::Error: std::fmt::Display,
    {
        check_media_types(&parts)?;
        let bytes = self.collect(&parts, body).await?;
        let session_header = session_header(&parts);
        match self.process(parts, &bytes, principal).await? {
            PostResult::Response(response) => Ok(response),
            PostResult::Running { session, mut running, shape, single_id, quirk } => {
                match self.denial(&mut running, single_id.as_ref()).await {
                    Some(denial) => Err(refuse(running, denial).await.with_id(single_id.as_ref())),
                    None => {
                        let mut response = self.respond(&session, running, shape).await;
                        repeat_session_id(&mut response, session_header);
                        Ok(match quirk {
                            Some(quirk) => quirk.mark(response),
                            None => response,
                        })
                    }
                }
            }
        }
    }

    async fn process(
        &self,
        parts: Parts,
        bytes: &Bytes,
        principal: Principal,
    ) -> Result<PostResult, Problem> {
        let body = Body::parse(bytes, self.config.max_batch)?;
        let id = match &body {
            Body::One(message) if message.is_request() => message.id().cloned(),
            Body::One(_) | Body::Batch(_) => None,
        };
        let outcome = async {
            let era = era(&body, &parts, &self.config.revisions)?;
            let post = Post { bytes, parts: Arc::new(parts) };
            match body {
                Body::One(message) if era == Era::Stateless => {
                    self.stateless(post, &message, principal).await.map(PostResult::Response)
                }
                Body::One(message) if message.method == "initialize" && message.is_request() => {
                    self.initialize(&post, &message, principal).await.map(PostResult::Response)
                }
                Body::One(message) => {
                    self.in_session(post, vec![message], BodyShape::Single, id.as_ref(), &principal).await
                }
                Body::Batch(messages) => {
                    self.in_session(post, messages, BodyShape::Batch, None, &principal).await
                }
            }
        };
        outcome.await.map_err(|problem| problem.with_id(id.as_ref()))
    }

    async fn collect<B>(&self, parts: &Parts, body: B) -> Result<Bytes, Problem>
    where
        B: HttpBody,
        B::Error: std::fmt::Display,
    {
        let body = body.map_err(|error| BodyError(error.to_string()));
        let mut body = std::pin::pin!(body);
        let limit = self.config.body_timeout;
        let collected = tokio::time::timeout(limit, self.collect_bounded(parts, body.as_mut())).await;
        let collected = collected.unwrap_or_else(|_| Err(Problem::body_too_slow(limit)));
        if collected.is_err() {
            discard(body).await;
        }
        collected
    }

    async fn collect_bounded<B>(&self, parts: &Parts, body: B) -> Result<Bytes, Problem>
    where
        B: HttpBody<Error = BodyError> + Unpin,
    {
        let limit = self.config.max_request_bytes;
        let announced = parts.headers.get(http::header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        if announced.and_then(|length| length.parse::<u64>().ok()).is_some_and(|length| length > limit as u64)
        {
            return Err(Problem::body_too_large(limit));
        }
        match Limited::new(body, limit).collect().await {
            Ok(collected) => Ok(collected.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(Problem::body_too_large(limit)),
            Err(error) => Err(Problem::bad_request(format!("The body could not be read: {error}."))),
        }
    }

    async fn initialize(
        &self,
        post: &Post<'_>,
        message: &Message<'_>,
        principal: Principal,
    ) -> Result<Response<ResponseBody>, Problem> {
        let Some(id) = message.id() else { return Err(Problem::session_required()) };
        let limit = self.config.max_initialize_bytes;
        if message.params.is_some_and(|params| params.len() > limit) {
            return Err(Problem::initialize_too_large(limit));
        }
        let requested = message.params.and_then(params::initialize_protocol_version).ok_or_else(|| {
            Problem::new(
                Reason::BadRequest,
                steadfast_wire::rpc::INVALID_PARAMS,
                "`initialize` needs the parameters protocolVersion, capabilities and clientInfo.",
            )
        })?;
        let offered = &self.config.revisions;
        let revision =
            offered.negotiate(&requested).ok_or_else(|| Problem::unsupported_version(&requested, offered))?;
        let client = message.params.map(params::client_info).unwrap_or_default();
        match self.engine.open(principal, revision, post.incoming(message)).await {
            Ok((token, result)) => {
                log_quirks(self.config.quirks, &client);
                let mut response = json(response_message(id, &Ok(result)));
                set_session_id(&mut response, token);
                Ok(response)
            }
            Err(OpenError::Backend(error)) => Ok(json(response_message(id, &Err(error)))),
            Err(OpenError::Denied(denial)) => Err(denial.into()),
            Err(OpenError::Refused(refusal)) => self.refuse_initialize(refusal.into(), id, &client),
        }
    }

    /// Handles messages of a session: everything except `initialize`. `id` is that of the only
    /// request.
    async fn in_session(
        &self,
        post: Post<'_>,
        messages: Vec<Message<'_>>,
        shape: BodyShape,
        id: Option<&RequestId>,
        principal: &Principal,
    ) -> Result<PostResult, Problem> {
        let session = self.session(&post.parts, principal).await?;
        let facts = Arc::clone(session.facts());
        match self.take(session, post, messages, shape).await {
            Err(problem) => self.refuse_in_session(problem, id, &facts).map(PostResult::Response),
            taken => taken,
        }
    }

    /// Takes the messages of a session: begins its calls, and delivers the rest.
    async fn take(
        &self,
        session: Arc<LiveSession>,
        post: Post<'_>,
        messages: Vec<Message<'_>>,
        shape: BodyShape,
    ) -> Result<PostResult, Problem> {
        if shape == BodyShape::Batch {
            check_batch(&messages, session.facts().revision)?;
        }
        let (requests, others): (Vec<_>, Vec<_>) = messages.into_iter().partition(Message::is_request);
        if requests.is_empty() {
            self.deliver_all(&session, &post, others).await?;
            return Ok(PostResult::Response(empty(StatusCode::ACCEPTED)));
        }
        self.check_keys(&post.parts, &requests, &session.facts().principal).await?;
        // Calls come first: if they are refused, nothing of the batch has been executed.
        let incoming: Vec<IncomingMessage> = requests.iter().map(|request| post.incoming(request)).collect();
        let (posted, quirk) = self.begin(&session, &requests, &incoming).await?;
        if let Err(problem) = self.deliver_all(&session, &post, others).await {
            // The calls have started and must be answered. A notification has no answer that could
            // report the failure.
            tracing::warn!(reason = problem.error.message, "lost a notification in a batch with calls");
        }
        // The backend of a single call becomes the only owner of the request's head.
        drop(post);
        let single_id =
            requests.first().filter(|_| requests.len() == 1).and_then(|request| request.id().cloned());
        let running = self.run(posted, incoming).await;
        Ok(PostResult::Running { session, running, shape, single_id, quirk })
    }

    /// Delivers notifications and responses in order. A response that answers no open server
    /// request does not stop the others; the error lists all of them at the end.
    async fn deliver_all(
        &self,
        session: &Arc<LiveSession>,
        post: &Post<'_>,
        messages: Vec<Message<'_>>,
    ) -> Result<(), Problem> {
        let is_single = messages.len() == 1;
        let mut unmatched = Vec::new();
        for message in messages {
            match &message.kind {
                MessageKind::Response(Some(id)) => {
                    let text = post.slice(message.text);
                    match self.engine.answer(session, id, text).await {
                        Err(Refusal::UnknownServerRequest) if !is_single => unmatched.push(Some(id.clone())),
                        outcome => outcome?,
                    }
                }
                MessageKind::Response(None) => unmatched.push(None),
                MessageKind::Notification | MessageKind::Request(_) => {
                    if message.method == "notifications/cancelled"
                        && let Some(id) = message.params.and_then(params::cancelled_request)
                    {
                        self.engine.cancel(session, id).await?;
                    }
                    self.engine.notify(session, post.incoming(&message)).await?;
                }
            }
        }
        match (unmatched.is_empty(), is_single) {
            (true, _) => Ok(()),
            (false, true) => {
                Err(Problem::bad_request("An error without an id answers no request of the server."))
            }
            (false, false) => Err(Problem::answers_to_nothing(&unmatched)),
        }
    }
}

/// Writes one line for a new session whose client has quirks.
fn log_quirks(quirks: Quirks, client: &ClientInfo<'_>) {
    let mut found = quirks.of(client, Agent::Named).peekable();
    let Some(Quirk { client, .. }) = found.peek() else { return };
    let reasons: Vec<String> =
        found.map(|quirk| format!("{}: {}", quirk.effect.as_str(), quirk.behaviour)).collect();
    tracing::info!(client, quirks = reasons.join(" "), "the client of this session has known quirks");
}

/// Result of handling a POST.
enum PostResult {
    Response(Response<ResponseBody>),
    /// Calls were started, and their answers are still to be read.
    Running {
        session: Arc<LiveSession>,
        running: (Cursor, Vec<CallDriver>),
        shape: BodyShape,
        /// The id of the call, if the POST has only one.
        single_id: Option<RequestId>,
        /// The quirk of the client that the calls needed.
        quirk: Option<&'static Quirk>,
    },
}

/// Whether the body of a POST is one message or a JSON array. A JSON response has the same shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyShape {
    Single,
    Batch,
}

/// A POST whose head has been checked.
struct Post<'a> {
    bytes: &'a Bytes,
    parts: Arc<Parts>,
}

impl Post<'_> {
    /// A slice of the body, without copying.
    fn slice(&self, text: &str) -> Bytes {
        self.bytes.slice_ref(text.as_bytes())
    }

    fn incoming(&self, message: &Message<'_>) -> IncomingMessage {
        IncomingMessage {
            method: message.method.clone().into_owned(),
            params: message.params.map(|params| self.slice(params)),
            http: Arc::clone(&self.parts),
        }
    }
}

/// How much of a refused body is read anyway, and how long its next frame may take.
const MAX_DISCARDED_BYTES: usize = 16 << 20;
const DISCARD_TIMEOUT: Duration = Duration::from_millis(100);

/// Reads and discards the rest of a refused body. A client that sends its whole request before it
/// reads would otherwise see a connection reset instead of the refusal.
async fn discard<B: HttpBody + Unpin>(mut body: B) {
    let mut left = MAX_DISCARDED_BYTES;
    while left > 0
        && let Ok(Some(Ok(frame))) = tokio::time::timeout(DISCARD_TIMEOUT, body.frame()).await
    {
        left = left.saturating_sub(frame.data_ref().map_or(1, bytes::Buf::remaining));
    }
}

fn check_media_types(parts: &Parts) -> Result<(), Problem> {
    if !single_header(parts, &http::header::CONTENT_TYPE)?.is_some_and(media_types::is_json) {
        return Err(Problem::unsupported_media_type());
    }
    // A list of media ranges may be split over several headers.
    let mut accepted =
        parts.headers.get_all(http::header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let is_fine = match (accepted.next(), accepted.next()) {
        (None, _) => false,
        (Some(single_id), None) => media_types::accepts_json_and_sse(single_id),
        (Some(first), Some(second)) => {
            let rest: Vec<&str> = [first, second].into_iter().chain(accepted).collect();
            media_types::accepts_json_and_sse(&rest.join(","))
        }
    };
    if is_fine { Ok(()) } else { Err(Problem::not_acceptable("both application/json and text/event-stream")) }
}

/// The protocol era of a POST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Era {
    /// Revisions with sessions.
    Legacy,
    /// 2026-07-28 and later.
    Stateless,
}

/// The body determines the era. If it does not, the header does.
fn era(body: &Body<'_>, parts: &Parts, offered: &Revisions) -> Result<Era, Problem> {
    let has_envelope = |message: &Message<'_>| message.params.is_some_and(envelope::is_stateless_request);
    match body {
        Body::One(message) if has_envelope(message) => Ok(Era::Stateless),
        Body::One(message) => match claimed_version(parts, offered)? {
            // `initialize` always belongs to the legacy era, whatever the header says.
            ClaimedEra::Modern if message.method != "initialize" => Ok(Era::Stateless),
            ClaimedEra::Modern | ClaimedEra::Legacy | ClaimedEra::Nothing => Ok(Era::Legacy),
        },
        Body::Batch(messages) => {
            let claimed = claimed_version(parts, offered)?;
            if claimed == ClaimedEra::Modern || messages.iter().any(has_envelope) {
                Err(Problem::bad_request("Stateless revisions have no batches."))
            } else {
                Ok(Era::Legacy)
            }
        }
    }
}

fn check_batch(messages: &[Message<'_>], revision: Revision) -> Result<(), Problem> {
    if !revision.allows_batches() {
        return Err(Problem::bad_request(format!(
            "Revision {revision} has no batches. Send one message per POST."
        )));
    }
    if messages.iter().any(|message| message.is_request() && message.method == "initialize") {
        return Err(Problem::bad_request("`initialize` must not be part of a batch."));
    }
    let responses = messages.iter().filter(|message| message.is_response()).count();
    if responses != 0 && responses != messages.len() {
        return Err(Problem::bad_request("A batch must not mix responses with other messages."));
    }
    Ok(())
}

#[derive(Debug)]
struct BodyError(String);

impl std::fmt::Display for BodyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BodyError {}
