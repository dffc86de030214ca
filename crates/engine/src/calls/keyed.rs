//! Calls with an idempotency key: executed once, in whatever session and at whatever
//! node a client repeats them.
//!
//! The outcome of a keyed call is a job: an internal session whose id derives from the principal
//! and the key, so that the store decides which of several nodes opens it. The node that opens it
//! executes the call and records the answer there. All others wait for that answer. The job's facts
//! hold a hash of the request, so that a key that is used for another request is recognised.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use steadfast_session::command::{Close, Duplicates};
use steadfast_session::{CloseReason, Facts, Principal, Read, SessionId};
use steadfast_store::{Opened, StoreError, StoreExt};
use steadfast_wire::idempotency_key::CanonicalParams;
use steadfast_wire::rpc::ErrorObject;
use steadfast_wire::{IdempotencyKey, RawObject, Reason, RequestId, Revision, headers};
use tokio_util::sync::CancellationToken;

use crate::backend::{IncomingMessage, response};
use crate::calls::{BegunCalls, CallHandle, ResponseFormat};
use crate::delivery::Cursor;
use crate::engine::Engine;
use crate::internal_sessions::{FIRST_CALL, key_principal};
use crate::refusal::Refusal;
use crate::shutdown::{InFlightCount, InFlightGuard};
use crate::stateless::Answer;

/// The JSON-RPC id of every recorded answer. Each client gets the answer under its own id.
const RECORDED_ID: RequestId = RequestId::Number(0);

/// How often a claim is repeated if the job of an earlier call expires at the same moment.
const MAX_CLAIM_ATTEMPTS: usize = 3;

/// The pauses between two looks for an outcome, the first and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// How often to look for a call that another node was about to begin. After that the node has most
/// likely died, and whether it began the call is not known.
const MAX_LOOKS_BEFORE_BEGIN: usize = 12;

/// A request with a key.
#[derive(Clone, Debug)]
pub(crate) struct KeyedRequest {
    job: Facts,
}

/// The right to execute a keyed call, and the duty to record its outcome. If it is dropped, the
/// outcome is recorded as unknown.
struct KeyedOutcome {
    engine: Arc<Engine>,
    parts: Option<(CallHandle, InFlightGuard, Cursor)>,
}

impl KeyedRequest {
    /// Returns `None` if the request has no key. The HTTP layer has refused invalid keys.
    pub(crate) fn of(request: &IncomingMessage, principal: &Principal, engine: &Engine) -> Option<Self> {
        let header = request.http.headers.get(headers::IDEMPOTENCY_KEY).and_then(|value| value.to_str().ok());
        let params = request.params.as_deref().and_then(|params| std::str::from_utf8(params).ok());
        let key = IdempotencyKey::read(header, params).ok().flatten()?;
        Some(Self::new(&key, &request.method, params, principal, engine))
    }

    fn new(
        key: &IdempotencyKey,
        method: &str,
        params: Option<&str>,
        principal: &Principal,
        engine: &Engine,
    ) -> Self {
        let (owner, key) = (principal.as_str().as_bytes(), key.as_str().as_bytes());
        let CanonicalParams { request, round } = CanonicalParams::of(params);
        let fingerprint = SessionId::derived("request", &[method.as_bytes(), request.as_bytes()]);
        let job = Facts {
            id: SessionId::derived("idempotency key", &[owner, key, round.as_bytes()]),
            principal: key_principal(principal),
            revision: Revision::V2026_07_28,
            initialize: Bytes::copy_from_slice(fingerprint.as_bytes()),
            opened_at: engine.now(),
        };
        Self { job }
    }
}

impl Engine {
    /// Fails with [`Refusal::KeyReused`] if the principal has used the key for another request.
    pub async fn check_key(
        &self,
        principal: &Principal,
        key: &IdempotencyKey,
        (method, params): (&str, Option<&str>),
    ) -> Result<(), Refusal> {
        let request = KeyedRequest::new(key, method, params, principal, self);
        match self.store().facts(request.job.id).await? {
            Some(facts) if facts.initialize != request.job.initialize => Err(Refusal::KeyReused),
            _ => Ok(()),
        }
    }

    /// Executes `work` if this is the first call with its key, and otherwise returns the outcome of
    /// the first call. A call without a key is executed.
    pub(crate) async fn execute_once(
        &self,
        request: Option<KeyedRequest>,
        cancel: &CancellationToken,
        work: impl Future<Output = Answer>,
    ) -> Answer {
        let Some(request) = request else { return work.await };
        match self.claim(&request).await {
            Ok(Some(outcome)) => {
                let answer = work.await;
                outcome.record(&answer).await;
                answer
            }
            Ok(None) => tokio::select! {
                biased;
                answer = self.recorded_outcome(request.job.id) => answer,
                () = cancel.cancelled() => {
                    Err(Reason::Cancelled.error_retryable(true, "The call was cancelled."))
                }
            },
            Err(Refusal::KeyReused) => {
                Err(Reason::KeyReused.error("The idempotency key belongs to another request."))
            }
            Err(refusal) => Err(Reason::NotStarted.error(format!("The call was not started: {refusal}."))),
        }
    }

    /// Opens the job of a keyed call. Returns `None` if another call has opened it.
    async fn claim(&self, request: &KeyedRequest) -> Result<Option<KeyedOutcome>, Refusal> {
        for _ in 0..MAX_CLAIM_ATTEMPTS {
            match self.store().open(request.job.clone()).await? {
                Opened::Opened(facts) => return self.begin_keyed(&facts).await.map(Some),
                Opened::OverLimit(limit) => return Err(Refusal::OverLimit(limit)),
                Opened::IdInUse => match self.store().facts(request.job.id).await? {
                    Some(facts) if facts.initialize == request.job.initialize => return Ok(None),
                    Some(_) => return Err(Refusal::KeyReused),
                    // The job has just expired, and the store keeps its id for a moment.
                    None => {}
                },
            }
        }
        Err(StoreError::Unavailable("the idempotency key has just expired".into()).into())
    }

    async fn begin_keyed(&self, facts: &Arc<Facts>) -> Result<KeyedOutcome, Refusal> {
        let (session, _) = self.sessions.get_or_create(facts);
        // A draining node still runs calls that others have forwarded to it.
        let admitted = InFlightCount::increment(&self.admission.starting);
        let (format, duplicates) = (ResponseFormat::EventStream, Duplicates::Reject);
        let begun = self.begin_admitted(&session, vec![RECORDED_ID], &[], format, duplicates, admitted).await;
        let BegunCalls { cursor, calls } = match begun {
            Ok(begun) => begun,
            Err(refusal) => {
                // Nothing was executed, so the key is free.
                self.free_key(facts.id).await;
                return Err(refusal);
            }
        };
        let Some((call, in_flight)) = calls.into_iter().next().and_then(|call| call.into_parts()) else {
            return Err(Refusal::InDoubt);
        };
        Ok(KeyedOutcome { engine: self.arc(), parts: Some((call, in_flight, cursor)) })
    }

    /// Waits for the outcome that the node of the first call records.
    async fn recorded_outcome(&self, job: SessionId) -> Answer {
        let (mut pause, mut looks) = (FIRST_PAUSE, 0);
        loop {
            match self.store().read(job, FIRST_CALL, 0, self.options().read_bytes).await {
                Ok(Read::Slice(slice)) if slice.ended => {
                    let recorded = slice.events.last().and_then(|event| event.payload.as_ref());
                    return recorded.and_then(parse_answer).unwrap_or_else(|| Err(unknown()));
                }
                Ok(Read::Slice(_)) => {}
                Ok(Read::UnknownEvent) if looks < MAX_LOOKS_BEFORE_BEGIN => looks += 1,
                Ok(Read::Gone | Read::NoSession | Read::UnknownEvent) => return Err(unknown()),
                Err(error) => tracing::debug!(%error, "could not read the outcome of a keyed call"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn free_key(&self, job: SessionId) {
        let close = Close { reason: CloseReason::ServerEnded };
        if let Err(error) = self.with_retry(|| self.store().run(job, close.clone(), self.now())).await {
            tracing::warn!(%error, "could not free an idempotency key; it is in use until it expires");
        }
    }
}

impl KeyedOutcome {
    async fn record(mut self, answer: &Answer) {
        let Some((call, in_flight, cursor)) = self.parts.take() else { return };
        call.finish(response(&RECORDED_ID, answer)).await;
        // Read completely, so that the store keeps the session as one without connections.
        cursor.read_to_end().await;
        drop(in_flight);
    }
}

impl Drop for KeyedOutcome {
    fn drop(&mut self) {
        let Some((call, in_flight, cursor)) = self.parts.take() else { return };
        self.engine.spawn(async move {
            call.finish(response(&RECORDED_ID, &Err(unknown()))).await;
            cursor.read_to_end().await;
            drop(in_flight);
        });
    }
}

fn unknown() -> ErrorObject {
    Reason::OutcomeUnknown
        .error("A call with this idempotency key was made before. Whether it took effect is not known.")
}

fn parse_answer(message: &Bytes) -> Option<Answer> {
    let members = RawObject::parse(std::str::from_utf8(message).ok()?).ok()?;
    match (members.get("result"), members.get("error")) {
        (Some(result), _) => Some(Ok(Bytes::from(result.to_owned()))),
        (None, Some(error)) => ErrorObject::parse(error.as_bytes()).map(Err),
        (None, None) => None,
    }
}
