//! Presents a stdio program as an HTTP server: POST, GET and DELETE, sessions included.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use steadfast_client::BoxFuture;
use steadfast_client::transport::{Body, SendError, Transport};
use steadfast_wire::rpc::ErrorObject;
use steadfast_wire::{Message, MessageKind, RequestId, headers, raw_json};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use crate::config::Sharing;
use crate::stdio::process::lifecycle::{PendingRequest, Process, WriteError};
use crate::stdio::process::restart_backoff::RestartBackoff;
use crate::stdio::process_pool::PoolState;
use crate::stdio::routing::outbox::{End, Outbox};
use crate::stdio::routing::router::Sender;
use crate::stdio::transport::http_response::{empty, events, json, not_found, refuse};
use crate::stdio::transport::session_id::ProcessSessionId;
use crate::stdio::transport::sse_body::Source;
use crate::stdio::transport::unavailable::Unavailable;

/// How long to wait for the answer before the response starts as an event stream. An answer that
/// arrives in time is plain JSON.
const HEAD_TIMEOUT: Duration = Duration::from_secs(1);

const INITIALIZE: &str = "initialize";

/// The transport to a process. Starts the process when a session is opened, and again after it has
/// ended. Ends the process when it is dropped.
#[derive(Debug)]
pub struct ProcessTransport {
    this: Weak<Self>,
    pub(super) pool: Arc<PoolState>,
    name: String,
    pub(super) current: Mutex<Current>,
    /// Held while a process is started or a session is opened.
    pub(super) starts: AsyncMutex<Starts>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Current {
    pub(super) process: Option<Arc<Process>>,
    /// The number of the process among all processes of the program.
    generation: u64,
    /// What standalone streams read while the process is suspended. It ends when another process
    /// replaces the suspended one.
    suspended: Arc<Outbox>,
}

#[derive(Debug, Default)]
pub(super) struct Starts {
    pub(super) restart_backoff: RestartBackoff,
    /// Kept for the next client if the one that sent it stops waiting: a process is initialised
    /// once, and may be slow.
    opening: Option<Opening>,
}

/// An `initialize` request in flight.
#[derive(Debug)]
pub(super) struct Opening {
    generation: u64,
    session: u64,
    request: PendingRequest,
    /// The deadline for the answer.
    deadline: Instant,
}

/// Why no session was opened.
enum OpenFailure {
    /// The process has ended by itself.
    Ended(Unavailable),
    /// The process was idle and was ended before anything was sent to it.
    Unsent(Unavailable),
    Other(Unavailable),
}

impl ProcessTransport {
    pub(crate) fn new(pool: Arc<PoolState>, name: &str) -> Arc<Self> {
        let (name, current, starts) = (name.to_owned(), Mutex::default(), AsyncMutex::default());
        Arc::new_cyclic(|this| Self { this: Weak::clone(this), pool, name, current, starts })
    }

    async fn serve(&self, request: Request<Bytes>) -> Response<Body> {
        let session = request.headers().get(headers::SESSION_ID);
        let session = session.map(|value| ProcessSessionId::parse(value.to_str().ok()?));
        let method = request.method().clone();
        match (method, session) {
            (Method::POST, session) => self.post(session, request.body()).await,
            (Method::GET, Some(session)) => self.get(session),
            (Method::DELETE, Some(session)) => self.delete(session),
            _ => empty(StatusCode::METHOD_NOT_ALLOWED),
        }
    }

    async fn post(&self, session: Option<Option<ProcessSessionId>>, body: &Bytes) -> Response<Body> {
        let message = match std::str::from_utf8(body).map(Message::parse) {
            Ok(Ok(message)) => message,
            Ok(Err(error)) => {
                let error = ErrorObject::new(error.code(), error.to_string());
                return refuse(StatusCode::BAD_REQUEST, None, &error);
            }
            Err(_) => return empty(StatusCode::BAD_REQUEST),
        };
        match (&message.kind, session) {
            (MessageKind::Request(id), None) if message.method == INITIALIZE => self.open(&message, id).await,
            (MessageKind::Request(id), None) => self.serve_stateless(&message, id).await,
            (kind, Some(session)) => {
                let Some((process, session)) = self.find(session) else { return not_found() };
                match kind {
                    MessageKind::Request(id) => call(&process, Sender::Session(session), &message, id).await,
                    MessageKind::Notification => accepted(process.notify(Some(session), &message)),
                    MessageKind::Response(Some(id)) => accepted(process.answer(session, &message, id)),
                    MessageKind::Response(None) => empty(StatusCode::ACCEPTED),
                }
            }
            (MessageKind::Notification, None) => match self.process() {
                Some(process) => accepted(process.notify(None, &message)),
                None => not_found(),
            },
            (MessageKind::Response(_), None) => empty(StatusCode::BAD_REQUEST),
        }
    }

    /// Returns the standalone stream.
    fn get(&self, session: Option<ProcessSessionId>) -> Response<Body> {
        let found = self.find(session).and_then(|(process, session)| process.outbox_of(session));
        let outbox = found.or_else(|| self.outbox_while_suspended(session));
        outbox.map_or_else(not_found, |outbox| events(Source::Session(outbox.reader())))
    }

    /// Returns an empty outbox if the session's process is suspended. A process is started again
    /// for a request, not because the gateway listens.
    fn outbox_while_suspended(&self, session: Option<ProcessSessionId>) -> Option<Arc<Outbox>> {
        let current = self.current();
        let is_current = session?.boot == self.pool.boot && session?.generation == current.generation;
        let is_suspended = current.process.as_ref().is_some_and(|process| process.is_suspended());
        (is_current && is_suspended).then(|| Arc::clone(&current.suspended))
    }

    fn delete(&self, session: Option<ProcessSessionId>) -> Response<Body> {
        let Some((process, session)) = self.find(session) else { return not_found() };
        match self.pool.stdio.sharing {
            Sharing::PerSession => process.end("its session was closed"),
            Sharing::Shared => process.remove_session(session),
        }
        empty(StatusCode::OK)
    }

    /// Opens a session: in a new process, or in the shared one. If the process ends meanwhile,
    /// starts it once more. If it ends again, the client gets an error, and the next clients have
    /// to wait.
    async fn open(&self, message: &Message<'_>, id: &RequestId) -> Response<Body> {
        let mut starts = self.starts.lock().await;
        let mut opened = self.open_once(&mut starts, message, id).await;
        let should_retry = match &opened {
            Err(OpenFailure::Ended(_)) => self.pool.start_failures().failures() == 1,
            Err(OpenFailure::Unsent(_)) => true,
            Ok(_) | Err(OpenFailure::Other(_)) => false,
        };
        if should_retry {
            opened = self.open_once(&mut starts, message, id).await;
        }
        let (OpenFailure::Ended(why) | OpenFailure::Unsent(why) | OpenFailure::Other(why)) = match opened {
            Ok(response) => return response,
            Err(failure) => failure,
        };
        why.response(id)
    }

    async fn open_once(
        &self,
        starts: &mut Starts,
        message: &Message<'_>,
        id: &RequestId,
    ) -> Result<Response<Body>, OpenFailure> {
        if let (Sharing::PerSession, Some(process)) = (self.pool.stdio.sharing, self.process())
            && process.initialize_result().is_some()
        {
            process.end("another session replaces it");
        }
        let (process, generation) =
            self.running(&mut starts.restart_backoff).await.map_err(OpenFailure::Other)?;
        let boot = self.pool.boot;
        let gone = || OpenFailure::Unsent(Unavailable::temporary(WriteError::Gone.to_string()));
        if let Some(result) = process.initialize_result() {
            let text =
                [format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#).as_bytes(), &result, b"}"].concat();
            let session = process.add_session().ok_or_else(gone)?;
            return Ok(ProcessSessionId { boot, generation, session }.initialize_response(text.into()));
        }
        if starts.opening.as_ref().is_none_or(|opening| opening.generation != generation) {
            let session = process.add_session().ok_or_else(gone)?;
            match process.begin_request(Sender::Opening(session), message, id) {
                Ok(request) => {
                    let deadline = Instant::now() + self.pool.timing().initialize_timeout;
                    starts.opening = Some(Opening { generation, session, request, deadline });
                }
                Err(error) => return Ok(not_written(&error, id)),
            }
        }
        // Stays in place during the wait, which may be cancelled.
        let Some(opening) = &mut starts.opening else { return Ok(not_found()) };
        let (session, end) =
            (opening.session, opening.outcome(&process, self.pool.timing().initialize_timeout).await);
        starts.opening = None;
        match end {
            Some(End::Answer(text)) => {
                let text = with_id(text, id);
                let Some(result) = result_in(&text) else {
                    process.remove_session(session);
                    return Ok(json(StatusCode::OK, text));
                };
                process.set_initialize_result(result);
                *self.pool.start_failures() = RestartBackoff::default();
                Ok(ProcessSessionId { boot, generation, session }.initialize_response(text))
            }
            Some(End::Broken(why)) => {
                process.ended().await;
                if process.take_lived().is_some() {
                    self.pool.start_failures().failed(&why, Instant::now());
                }
                let was_ended = process.was_ended();
                let unavailable = Unavailable::broken(why);
                Err(if was_ended { OpenFailure::Other(unavailable) } else { OpenFailure::Ended(unavailable) })
            }
            // A request whose sender wants the answer only gets no other messages.
            Some(End::Closed) | None => Ok(not_found()),
        }
    }

    /// Returns the process, unless it has ended.
    pub(crate) fn process(&self) -> Option<Arc<Process>> {
        self.current().process.clone().filter(|process| !process.is_gone())
    }

    /// Returns the process and the session in it that a session id names.
    fn find(&self, session: Option<ProcessSessionId>) -> Option<(Arc<Process>, u64)> {
        let ProcessSessionId { boot, generation, session } = session?;
        let Current { process, generation: current, .. } = self.current().clone();
        let process = process.filter(|process| !process.is_gone())?;
        let is_ours = boot == self.pool.boot && generation == current;
        (is_ours && process.outbox_of(session).is_some()).then_some((process, session))
    }

    /// Returns the process and its generation. Starts a process if none runs.
    pub(super) async fn running(
        &self,
        backoff: &mut RestartBackoff,
    ) -> Result<(Arc<Process>, u64), Unavailable> {
        let Current { process: old, generation, .. } = self.current().clone();
        if let Some(old) = old {
            if !old.is_gone() {
                return Ok((old, generation));
            }
            // Two processes at a time might disturb each other.
            old.ended().await;
            note_end(backoff, &old);
        }
        let process = match self.pool.take_spare() {
            Some(process) => {
                process.rename(&self.name);
                process
            }
            None => {
                let delay = self.pool.restart_delay(backoff)?;
                tokio::time::sleep(delay).await;
                self.start().await?
            }
        };
        let generation = self.pool.generations.fetch_add(1, Ordering::Relaxed) + 1;
        let previous = std::mem::replace(
            &mut *self.current(),
            Current { process: Some(Arc::clone(&process)), generation, suspended: Arc::default() },
        );
        previous.suspended.end(End::Closed);
        let mut transports = self.pool.transports();
        transports.remove(&previous.generation);
        transports.insert(generation, Weak::clone(&self.this));
        drop(transports);
        Ok((process, generation))
    }

    async fn start(&self) -> Result<Arc<Process>, Unavailable> {
        let pool = &self.pool;
        if pool.ending.is_cancelled() {
            return Err(Unavailable::temporary("the gateway is shutting down".to_owned()));
        }
        let permit = pool.process_permit().await?;
        let started =
            Process::start(&pool.stdio, &self.name, &pool.orphan_guard, permit, pool.ending.child_token());
        started.map_err(|error| {
            let command = &pool.stdio.program.command;
            tracing::warn!(session = self.name, command, %error, "could not start a program");
            let why = format!("the program {command:?} could not be started: {error}");
            pool.start_failures().failed(&why, Instant::now());
            Unavailable::broken(why)
        })
    }

    pub(super) fn current(&self) -> std::sync::MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transport for ProcessTransport {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Body>, SendError>> {
        Box::pin(async move { Ok(self.serve(request).await) })
    }
}

impl Drop for ProcessTransport {
    fn drop(&mut self) {
        let generation = self.current().generation;
        self.pool.transports().remove(&generation);
        if let Some(process) = self.process() {
            process.end("its session has ended");
        }
    }
}

impl Opening {
    /// Waits for the answer. A process that has not answered in time is killed, so that the next
    /// client gets another process.
    async fn outcome(&mut self, process: &Process, timeout: Duration) -> Option<End> {
        let answer = self.request.reader.wait_first();
        if let Ok(end) = tokio::time::timeout_at(self.deadline, answer).await {
            return end;
        }
        process.end_misbehaving(format!("it did not answer initialize within {timeout:?}"));
        self.request.reader.wait_first().await
    }
}

/// Sends a request and returns its response.
async fn call(
    process: &Arc<Process>,
    sender: Sender,
    message: &Message<'_>,
    id: &RequestId,
) -> Response<Body> {
    match process.begin_request(sender, message, id) {
        Ok(request) => response_of(request).await,
        // The process has just ended. The next request opens a new session.
        Err(WriteError::Gone) => not_found(),
        Err(error) => not_written(&error, id),
    }
}

pub(super) async fn response_of(mut request: PendingRequest) -> Response<Body> {
    match tokio::time::timeout(HEAD_TIMEOUT, request.reader.wait_first()).await {
        Ok(Some(End::Answer(text))) => json(StatusCode::OK, text),
        _ => events(Source::Request(request)),
    }
}

/// Counts the end of a process, once.
fn note_end(backoff: &mut RestartBackoff, process: &Process) {
    if let Some(lived) = process.take_lived() {
        backoff.ended(lived, Instant::now());
    }
}

/// Replaces the id of an answer.
fn with_id(text: Bytes, id: &RequestId) -> Bytes {
    let Ok(json) = std::str::from_utf8(&text) else { return text };
    match raw_json::find(json, &["id"]) {
        Some(part) => raw_json::replace(json, &[(part, &id.to_string())]),
        None => text,
    }
}

fn result_in(text: &Bytes) -> Option<Bytes> {
    let result = raw_json::get(std::str::from_utf8(text).ok()?, &["result"])?;
    Some(text.slice_ref(result.as_bytes()))
}

fn not_written(error: &WriteError, id: &RequestId) -> Response<Body> {
    Unavailable::temporary(error.to_string()).response(id)
}

fn accepted(written: Result<(), WriteError>) -> Response<Body> {
    match written {
        Ok(()) => empty(StatusCode::ACCEPTED),
        Err(WriteError::Gone) => not_found(),
        Err(WriteError::Full | WriteError::TooManyCalls(_)) => empty(StatusCode::SERVICE_UNAVAILABLE),
    }
}
