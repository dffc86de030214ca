//! POST: requests, notifications and answers of the client.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use http_body::Body as HttpBody;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use steadfast_engine::backend::response as response_message;
use steadfast_engine::{Cursor, Incoming, LiveSession, OpenError, Principal, Refusal, Unfinished};
use steadfast_wire::envelope::{Body, Message, MessageKind};
use steadfast_wire::{RequestId, Revision, accept, params, stateless as envelope};

use crate::body::ResponseBody;
use crate::config::ResponseMode;
use crate::endpoint::{
    Claimed, Endpoint, claimed_version, echo_session, empty, header, json, session_header, tell_session,
};
use crate::problem::Problem;

mod calls;
mod denial;
mod stateless;

use denial::refuse;

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
        match self.take(parts, &bytes, principal).await? {
            Taken::Answer(response) => Ok(response),
            Taken::Calls { session, mut running, batch, only } => {
                match self.denial(&mut running, only.as_ref()).await {
                    Some(denial) => Err(refuse(running, denial).await.with_id(only.as_ref())),
                    None => {
                        let mut response = self.respond(&session, running, batch).await;
                        echo_session(&mut response, session_header);
                        Ok(response)
                    }
                }
            }
        }
    }

    async fn take(&self, parts: Parts, bytes: &Bytes, principal: Principal) -> Result<Taken, Problem> {
        let body = Body::parse(bytes, self.config.max_batch)?;
        let id = match &body {
            Body::One(message) if message.is_request() => message.id().cloned(),
            Body::One(_) | Body::Batch(_) => None,
        };
        let taken = async {
            let era = era(&body, &parts)?;
            let post = Post { bytes, parts: Arc::new(parts) };
            match body {
                Body::One(message) if era == Era::Stateless => {
                    self.stateless(post, &message, principal).await.map(Taken::Answer)
                }
                Body::One(message) if message.method == "initialize" && message.is_request() => {
                    self.initialize(&post, &message, principal).await.map(Taken::Answer)
                }
                Body::One(message) => self.in_session(post, vec![message], false, &principal).await,
                Body::Batch(messages) => self.in_session(post, messages, true, &principal).await,
            }
        };
        taken.await.map_err(|problem| problem.with_id(id.as_ref()))
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
        let limit = self.config.max_body_bytes;
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
                StatusCode::BAD_REQUEST,
                steadfast_wire::rpc::INVALID_PARAMS,
                "`initialize` needs the parameters protocolVersion, capabilities and clientInfo.",
            )
        })?;
        match self.engine.open(principal, Revision::negotiate(&requested), post.incoming(message)).await {
            Ok((token, result)) => {
                let mut response = json(response_message(id, &Ok(result)));
                tell_session(&mut response, token);
                Ok(response)
            }
            Err(OpenError::Backend(error)) => Ok(json(response_message(id, &Err(error)))),
            Err(OpenError::Denied(denial)) => Err(denial.into()),
            Err(OpenError::Refused(refusal)) => Err(refusal.into()),
        }
    }

    /// Everything but `initialize` happens in a session.
    async fn in_session(
        &self,
        post: Post<'_>,
        messages: Vec<Message<'_>>,
        batch: bool,
        principal: &Principal,
    ) -> Result<Taken, Problem> {
        let session = self.session(&post.parts, principal).await?;
        if batch {
            check_batch(&messages, session.facts().revision)?;
        }
        let (requests, others): (Vec<_>, Vec<_>) = messages.into_iter().partition(Message::is_request);
        if requests.is_empty() {
            self.take_all(&session, &post, others).await?;
            return Ok(Taken::Answer(empty(StatusCode::ACCEPTED)));
        }
        // The calls first: if they are refused, nothing of the batch has happened.
        let incoming: Vec<Incoming> = requests.iter().map(|request| post.incoming(request)).collect();
        let posted = self.begin(&session, &requests, &incoming).await?;
        if let Err(problem) = self.take_all(&session, &post, others).await {
            // The calls are begun and have to be answered; a notification has no answer that could tell.
            tracing::warn!(reason = problem.error.message, "a notification beside calls was lost");
        }
        // Whoever runs a single call gets the request's head for itself.
        drop(post);
        let only = requests.first().filter(|_| requests.len() == 1).and_then(|request| request.id().cloned());
        let running = self.run(posted, incoming).await;
        Ok(Taken::Calls { session, running, batch, only })
    }

    /// Notifications and answers, in the order in which they came. Answers that nobody waits for keep none of the others
    /// from being taken; they are named in the end.
    async fn take_all(
        &self,
        session: &Arc<LiveSession>,
        post: &Post<'_>,
        messages: Vec<Message<'_>>,
    ) -> Result<(), Problem> {
        let alone = messages.len() == 1;
        let mut not_taken = Vec::new();
        for message in messages {
            match &message.kind {
                MessageKind::Response(Some(id)) => {
                    let text = post.slice(message.text);
                    match self.engine.answer(session, id, text).await {
                        Err(Refusal::UnknownAsk) if !alone => not_taken.push(Some(id.clone())),
                        taken => taken?,
                    }
                }
                MessageKind::Response(None) => not_taken.push(None),
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
        match (not_taken.is_empty(), alone) {
            (true, _) => Ok(()),
            (false, true) => {
                Err(Problem::bad_request("An error without an id answers no request of the server."))
            }
            (false, false) => Err(Problem::answers_to_nothing(&not_taken)),
        }
    }
}

/// What has come of a POST.
enum Taken {
    Answer(Response<ResponseBody>),
    /// Calls that run. Their answers are to be read.
    Calls {
        session: Arc<LiveSession>,
        running: (Cursor, Vec<Unfinished>),
        batch: bool,
        /// The id of the call, if there is but one.
        only: Option<RequestId>,
    },
}

/// A POST that has passed the edge.
struct Post<'a> {
    bytes: &'a Bytes,
    parts: Arc<Parts>,
}

impl Post<'_> {
    /// A part of the body, without copying it.
    fn slice(&self, text: &str) -> Bytes {
        self.bytes.slice_ref(text.as_bytes())
    }

    fn incoming(&self, message: &Message<'_>) -> Incoming {
        Incoming {
            method: message.method.clone().into_owned(),
            params: message.params.map(|params| self.slice(params)),
            http: Arc::clone(&self.parts),
        }
    }
}

/// How much of a body that is refused is read all the same, and how long its next piece may take.
const DISCARDED_BYTES: usize = 16 << 20;
const DISCARD_PATIENCE: Duration = Duration::from_millis(100);

/// A client that sends all before it reads anything would find its connection reset, and never see why it was refused.
async fn discard<B: HttpBody + Unpin>(mut body: B) {
    let mut left = DISCARDED_BYTES;
    while left > 0
        && let Ok(Some(Ok(frame))) = tokio::time::timeout(DISCARD_PATIENCE, body.frame()).await
    {
        left = left.saturating_sub(frame.data_ref().map_or(1, bytes::Buf::remaining));
    }
}

fn check_media_types(parts: &Parts) -> Result<(), Problem> {
    if !header(parts, &http::header::CONTENT_TYPE)?.is_some_and(accept::is_json) {
        return Err(Problem::unsupported_media_type());
    }
    // A list of media ranges may be spread over several headers.
    let mut accepted =
        parts.headers.get_all(http::header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let is_fine = match (accepted.next(), accepted.next()) {
        (None, _) => false,
        (Some(only), None) => accept::admits_answers(only),
        (Some(first), Some(second)) => {
            let rest: Vec<&str> = [first, second].into_iter().chain(accepted).collect();
            accept::admits_answers(&rest.join(","))
        }
    };
    if is_fine { Ok(()) } else { Err(Problem::not_acceptable("both application/json and text/event-stream")) }
}

/// Which rules a POST goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Era {
    /// Those of sessions.
    Legacy,
    /// Those of 2026-07-28 and later.
    Stateless,
}

/// The era is chosen by the body; the header decides where the body does not.
fn era(body: &Body<'_>, parts: &Parts) -> Result<Era, Problem> {
    let enveloped = |message: &Message<'_>| message.params.is_some_and(envelope::is_enveloped);
    match body {
        Body::One(message) if enveloped(message) => Ok(Era::Stateless),
        Body::One(message) => match claimed_version(parts)? {
            // The handshake of old is always of the old era, whatever the header says.
            Claimed::Modern if message.method != "initialize" => Ok(Era::Stateless),
            Claimed::Modern | Claimed::Legacy | Claimed::Nothing => Ok(Era::Legacy),
        },
        Body::Batch(messages) => {
            let modern = claimed_version(parts)? == Claimed::Modern || messages.iter().any(enveloped);
            if modern {
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
