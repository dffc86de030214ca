//! Keeps the standalone stream of a session open: opens, resumes and reopens it until the client
//! closes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::StatusCode;
use steadfast_wire::headers;
use steadfast_wire::sse::Kind;
use tokio::sync::watch;
use tokio::time::Instant;

use super::dispatch::dispatch;
use super::session_probe::is_unknown_to_server;
use super::{Session, Sessions};
use crate::error::{Error, Wait};
use crate::handler::Event;
use crate::peer::{EventStream, ServerResponse, StreamEnd, StreamPosition};
use crate::shared::{Mode, Shared};

/// The pause between closing and reopening a stream on request. A server that has not noticed the
/// close may refuse a second stream.
const REOPEN_DELAY: Duration = Duration::from_millis(500);

/// How many sessions in a row the client renews because the server lost them before their
/// standalone stream was open. After that the client assumes that the server offers no stream.
const MAX_SESSIONS_LOST_UNOPENED: u32 = 1;

/// Keeps the standalone stream open until the client closes, the application disables the stream,
/// the server answers 405, or an event exceeds the size limit. After too many consecutive failures
/// it waits until a retry is worthwhile.
pub(crate) async fn run_standalone_stream(shared: Arc<Shared>) {
    let Mode::Session(sessions) = &shared.mode else { return };
    let end = tokio::select! {
        biased;
        () = shared.closing.cancelled() => return,
        () = shared.standalone_disabled.cancelled() => return,
        end = keep_open(&shared, sessions) => end,
    };
    shared.handler.on_event(match end {
        Some(error) => Event::StandaloneLost(error),
        None => Event::StandaloneAbsent,
    });
}

/// Keeps the stream open. Returns an error if an event exceeds the size limit, and `None` if the
/// server offers no standalone stream.
async fn keep_open(shared: &Arc<Shared>, sessions: &Sessions) -> Option<Error> {
    let backoff = &shared.peer.backoff;
    let mut keeper = StreamKeeper::new(shared, sessions);
    loop {
        let session = keeper.session();
        // Boxed, because the future of this function exists for every session and must stay small.
        let error = match Box::pin(open(shared, &session, &keeper.position)).await {
            Ok(stream) => match keeper.read_connection(&session, stream).await {
                Ok(()) => continue,
                Err(error) => return Some(error),
            },
            Err(OpenError::NotOffered) => return None,
            Err(OpenError::UnknownEventId) => {
                keeper.position.forget_last_event();
                continue;
            }
            Err(OpenError::NotFound) => match Box::pin(keeper.handle_not_found(sessions, &session)).await {
                Ok(()) => continue,
                Err(error) => error,
            },
            Err(OpenError::MaybeLost(error)) => {
                match Box::pin(keeper.renew_if_lost(sessions, &session, error)).await {
                    Ok(()) => continue,
                    Err(error) => error,
                }
            }
            Err(OpenError::Failed(error)) => error,
        };
        keeper.position.failed();
        if !keeper.position.should_give_up(backoff) {
            tokio::time::sleep(keeper.position.wait(backoff)).await;
            continue;
        }
        let is_transient = is_transient(&error);
        shared.handler.on_event(Event::StandaloneLost(error));
        keeper.wait_for_retry_trigger(is_transient).await;
    }
}

/// What the client knows about the stream between two connections.
struct StreamKeeper<'a> {
    shared: &'a Arc<Shared>,
    changes: watch::Receiver<Arc<Session>>,
    position: StreamPosition,
    session_generation: Option<u64>,
    /// Whether the stream was open in this session.
    was_open_in_session: bool,
    /// Consecutive sessions that were lost before their stream was open.
    sessions_lost_unopened: u32,
}

impl<'a> StreamKeeper<'a> {
    fn new(shared: &'a Arc<Shared>, sessions: &Sessions) -> Self {
        let (changes, position) = (sessions.watch(), StreamPosition::default());
        Self {
            shared,
            changes,
            position,
            session_generation: None,
            was_open_in_session: false,
            sessions_lost_unopened: 0,
        }
    }

    /// Returns the session for the next connection. A new session has a new stream.
    fn session(&mut self) -> Arc<Session> {
        let session = Arc::clone(&self.changes.borrow_and_update());
        if self.session_generation.replace(session.generation) != Some(session.generation) {
            self.position.forget_last_event();
            self.was_open_in_session = false;
        }
        session
    }

    /// Reads one connection until it ends, then waits before the next one.
    async fn read_connection(
        &mut self,
        session: &Arc<Session>,
        stream: Box<EventStream>,
    ) -> Result<(), Error> {
        let (shared, position) = (self.shared, &mut self.position);
        (self.was_open_in_session, self.sessions_lost_unopened) = (true, 0);
        position.connected();
        shared.handler.on_event(Event::StandaloneOpen);
        let may_have_been_open = session.mark_standalone_stream_open();
        if may_have_been_open && position.last_event_id().is_none() {
            shared.handler.on_event(Event::Gap);
        }
        let (begun, has_received_data) = (Instant::now(), AtomicBool::new(false));
        tokio::select! {
            end = read_events(shared, session, stream, position, &has_received_data) => match end {
                StreamEnd::Closed(_) => {}
                // The server would send the same event on every attempt.
                StreamEnd::OverLimit(error) => return Err(Error::BadAnswer(error.to_string())),
            },
            // The session was replaced, so its stream is useless even if the server keeps it open.
            _ = self.changes.changed() => {}
            () = reopen_requested(shared, &has_received_data) => {
                tokio::time::sleep(REOPEN_DELAY).await;
                return Ok(());
            }
        }
        position.ended(begun.elapsed());
        if position.is_closed_repeatedly() {
            // The server may no longer know the last event. rmcp then sends empty streams instead
            // of an error.
            position.forget_last_event();
        }
        position.credit_duration(begun.elapsed(), &shared.peer.backoff);
        tokio::time::sleep(position.wait(&shared.peer.backoff)).await;
        Ok(())
    }

    /// Handles status 404. Renews the session if the server has lost it. Otherwise, or if the
    /// server loses one session after the other, the server offers no stream in this session. In
    /// that case this function waits until a call replaces the session.
    async fn handle_not_found(&mut self, sessions: &Sessions, lost: &Arc<Session>) -> Result<(), Error> {
        let is_lost = self.was_open_in_session || is_unknown_to_server(self.shared, lost).await?;
        if is_lost && self.sessions_lost_unopened < MAX_SESSIONS_LOST_UNOPENED {
            return self.renew(sessions, lost).await;
        }
        self.shared.handler.on_event(Event::StandaloneAbsent);
        // The sender lives as long as the client, so this cannot fail.
        let _ = self.changes.changed().await;
        Ok(())
    }

    /// Handles a refusal that may mean that the server has lost the session. Renews the session if
    /// so.
    async fn renew_if_lost(
        &mut self,
        sessions: &Sessions,
        lost: &Arc<Session>,
        refused: Error,
    ) -> Result<(), Error> {
        if self.sessions_lost_unopened == MAX_SESSIONS_LOST_UNOPENED
            || !is_unknown_to_server(self.shared, lost).await.unwrap_or(false)
        {
            return Err(refused);
        }
        self.renew(sessions, lost).await
    }

    async fn renew(&mut self, sessions: &Sessions, lost: &Arc<Session>) -> Result<(), Error> {
        sessions.renew(self.shared, lost).await?;
        self.sessions_lost_unopened += u32::from(!self.was_open_in_session);
        Ok(())
    }

    /// Waits until another attempt is worthwhile: when the session is replaced, or when the headers
    /// change. If the error is transient, also when the server answers a call, or after a while.
    async fn wait_for_retry_trigger(&mut self, is_transient: bool) {
        tokio::select! {
            () = self.shared.headers_changed.notified() => {}
            _ = self.changes.changed() => {}
            () = self.shared.call_answered.notified(), if is_transient => {}
            // Keeps the count of failures: if this attempt fails, the client waits here again.
            () = tokio::time::sleep(self.shared.peer.backoff.standalone_retry), if is_transient => return,
        }
        self.position.reset_failures();
    }
}

/// Waits until the application requests a reopening. Ignores requests once the server has sent data
/// on this connection, because then the stream works.
async fn reopen_requested(shared: &Shared, has_received_data: &AtomicBool) {
    loop {
        shared.reopen_standalone.notified().await;
        if !has_received_data.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// Returns true if a later attempt may succeed with the same session and the same headers.
fn is_transient(error: &Error) -> bool {
    match error {
        Error::Connect(_) | Error::Broken(_) | Error::Timeout(_) | Error::OutcomeUnknown { .. } => true,
        // The operator may renew the certificate.
        Error::Untrusted(_) => true,
        // Another client holds the stream, or the server is starting.
        Error::Refused { status, .. } => matches!(status, 408 | 409 | 429 | 500..=599),
        _ => false,
    }
}

/// Why the stream could not be opened.
enum OpenError {
    /// The server offers no standalone stream.
    NotOffered,
    /// The server refused a request with `Last-Event-ID` (400), probably because it does not know
    /// the event.
    UnknownEventId,
    /// The server has lost the session, or does not support GET.
    NotFound,
    /// The server has lost the session, or considers the request malformed.
    MaybeLost(Error),
    Failed(Error),
}

async fn open(
    shared: &Shared,
    session: &Session,
    position: &StreamPosition,
) -> Result<Box<EventStream>, OpenError> {
    let peer = &shared.peer;
    let mut headers = session.headers();
    let last = position.last_event_id();
    if let Some(last) = &last {
        headers.insert(headers::LAST_EVENT_ID, last.clone());
    }
    let response = peer.get(headers).await.map_err(OpenError::Failed)?;
    let read = tokio::time::timeout(peer.timeouts.control, ServerResponse::read(response, &peer.limits));
    match read.await.unwrap_or(Err(Error::Timeout(Wait::Head))).map_err(OpenError::Failed)? {
        ServerResponse::Stream(stream) => Ok(Box::new(stream)),
        ServerResponse::Refusal { status: StatusCode::METHOD_NOT_ALLOWED, .. } => Err(OpenError::NotOffered),
        ServerResponse::Refusal { status, .. } if session.status_means_lost(status) => {
            Err(OpenError::NotFound)
        }
        ServerResponse::Refusal { status, .. } if last.is_some() && status == StatusCode::BAD_REQUEST => {
            Err(OpenError::UnknownEventId)
        }
        ServerResponse::Refusal { status, body, challenge } => {
            let error = Error::refused(status, &body, challenge);
            Err(if session.status_may_mean_lost(status) {
                OpenError::MaybeLost(error)
            } else {
                OpenError::Failed(error)
            })
        }
        ServerResponse::Complete(_) => {
            Err(OpenError::Failed(Error::BadAnswer("the response to the GET is not a stream".to_owned())))
        }
    }
}

/// Reads and dispatches the events of one connection until it ends.
async fn read_events(
    shared: &Arc<Shared>,
    session: &Arc<Session>,
    mut stream: Box<EventStream>,
    position: &mut StreamPosition,
    has_received_data: &AtomicBool,
) -> StreamEnd {
    loop {
        let event = match stream.next().await {
            Ok(event) => event,
            Err(end) => return end,
        };
        if !event.data.is_empty() {
            has_received_data.store(true, Ordering::Relaxed);
        }
        let is_new = position.record(&event);
        if !is_new || event.kind != Kind::Message || event.data.is_empty() {
            continue;
        }
        match shared.peer.messages(&event.data, session.revision) {
            Ok(list) => {
                for message in list {
                    Box::pin(dispatch(shared, session, message, None)).await;
                }
            }
            Err(error) => tracing::warn!(%error, "ignored an invalid message on the standalone stream"),
        }
    }
}
