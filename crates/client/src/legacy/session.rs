//! Sessions: opening them, replacing those that the server has lost, and deleting them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use steadfast_wire::rpc::{ErrorObject, json_string};
use steadfast_wire::{RawObject, Revision, headers, raw_json};
use tokio::sync::{Mutex, watch};

use super::dispatch::post;
use super::session_probe::is_unknown_to_server;
use crate::client::OpenSession;
use crate::error::Error;
use crate::handler::{Event, LostSessionAction, ReplayRequest};
use crate::peer::{Answer, Peer, Reply, ServerResponse, message};
use crate::shared::{Mode, Shared};

#[derive(Debug)]
pub(crate) struct Session {
    /// `None` if the server assigned no id.
    id: Option<HeaderValue>,
    pub(crate) revision: Revision,
    /// Counts the sessions of this client. A replacement has a higher number.
    pub(crate) generation: u64,
    /// The JSON text of the result of `initialize`.
    pub(crate) server: Bytes,
    /// Whether the standalone stream was ever open, here or in the process that had the session
    /// before.
    had_standalone_stream: AtomicBool,
}

impl Session {
    /// The headers of every request of the session.
    pub(crate) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(id) = &self.id {
            headers.insert(headers::SESSION_ID, id.clone());
        }
        let version = HeaderValue::from_static(self.revision.as_str());
        headers.insert(headers::PROTOCOL_VERSION, version);
        headers
    }

    /// Returns true if this status means that the server has lost the session.
    pub(crate) fn status_means_lost(&self, status: StatusCode) -> bool {
        status == StatusCode::NOT_FOUND && self.id.is_some()
    }

    /// Returns true if this status may mean that the server has lost the session. Many servers
    /// answer 400 for an unknown session, and also for malformed requests.
    pub(crate) fn status_may_mean_lost(&self, status: StatusCode) -> bool {
        status == StatusCode::BAD_REQUEST && self.id.is_some()
    }

    /// Records that the standalone stream is open. Returns true if it may have been open before, so
    /// that messages may have been missed.
    pub(crate) fn mark_standalone_stream_open(&self) -> bool {
        self.had_standalone_stream.swap(true, Ordering::Relaxed)
    }

    /// The session in the form that another client can resume.
    pub(crate) fn to_open_session(&self) -> OpenSession {
        OpenSession { id: self.id_text(), revision: self.revision, server: self.server.clone() }
    }

    pub(crate) fn id_text(&self) -> Option<String> {
        self.id.as_ref().map(|id| String::from_utf8_lossy(id.as_bytes()).into_owned())
    }
}

/// The current session, and the means to replace it.
#[derive(Debug)]
pub(crate) struct Sessions {
    current: watch::Sender<Arc<Session>>,
    /// Locked while a session is being opened.
    renewal: Mutex<RenewalState>,
    /// Whether the server refuses pings even in new sessions, so that pings show nothing about a
    /// session.
    refuses_pings: AtomicBool,
}

/// The outcome of the last attempt to open a session, for callers that waited for it.
#[derive(Debug, Default)]
struct RenewalState {
    failed: Option<Error>,
}

impl Sessions {
    pub(crate) fn new(session: Session) -> Self {
        let current = watch::Sender::new(Arc::new(session));
        Self { current, renewal: Mutex::default(), refuses_pings: AtomicBool::new(false) }
    }

    pub(crate) fn current(&self) -> Arc<Session> {
        Arc::clone(&self.current.borrow())
    }

    /// Returns a receiver that sees each replacement of the session.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<Session>> {
        self.current.subscribe()
    }

    /// Returns true if the server has lost `session`, in which it refused a message with `status`
    /// and no answer. `first` is the generation of the session in which the message was sent first.
    /// A session that was opened for the message since then is not lost.
    pub(crate) async fn is_session_lost(
        &self,
        shared: &Shared,
        session: &Session,
        first: u64,
        status: StatusCode,
    ) -> bool {
        if session.status_means_lost(status) {
            return true;
        }
        if !session.status_may_mean_lost(status) || self.refuses_pings.load(Ordering::Relaxed) {
            return false;
        }
        if self.current().generation != session.generation {
            return true;
        }
        let is_unknown_to_server = is_unknown_to_server(shared, session).await.unwrap_or(false);
        if is_unknown_to_server && session.generation != first {
            self.refuses_pings.store(true, Ordering::Relaxed);
            return false;
        }
        is_unknown_to_server
    }

    /// Returns the session after `lost`, which the server has lost. Concurrent callers share one
    /// attempt, and all of them get its error.
    pub(crate) async fn renew(
        &self,
        shared: &Arc<Shared>,
        lost: &Arc<Session>,
    ) -> Result<Arc<Session>, Error> {
        // In a task of its own: the caller may be cancelled after the server has opened a session.
        let task = tokio::spawn(renew(Arc::clone(shared), Arc::clone(lost)));
        task.await.unwrap_or(Err(Error::Closed))
    }
}

async fn renew(shared: Arc<Shared>, lost: Arc<Session>) -> Result<Arc<Session>, Error> {
    let Mode::Session(sessions) = &shared.mode else { return Err(Error::Closed) };
    let mut renewal = match sessions.renewal.try_lock() {
        // This caller starts an attempt, so an earlier failure does not concern it.
        Ok(mut renewal) => {
            renewal.failed = None;
            renewal
        }
        Err(_) => sessions.renewal.lock().await,
    };
    let current = sessions.current();
    if current.generation != lost.generation {
        return Ok(current);
    }
    if let Some(error) = &renewal.failed {
        return Err(error.clone());
    }
    shared.server_requests.cancel_all(&lost);
    match replace(&shared, &lost).await {
        Ok(session) => {
            let session = Arc::new(session);
            sessions.current.send_replace(Arc::clone(&session));
            shared.handler.on_event(Event::SessionRenewed);
            Ok(session)
        }
        Err(error) => {
            renewal.failed = Some(error.clone());
            Err(error)
        }
    }
}

async fn replace(shared: &Arc<Shared>, lost: &Session) -> Result<Session, Error> {
    let generation = lost.generation + 1;
    if let Some(session) =
        existing_session(shared.handler.on_session_lost(lost.to_open_session()).await, generation)?
    {
        return Ok(session);
    }
    let session = initialize(&shared.peer, lost.revision, generation).await?;
    match shared.handler.on_session_renewed(lost.to_open_session(), session.to_open_session()).await {
        Ok(requests) => {
            for request in requests {
                replay(&shared.peer, &session, request).await;
            }
            Ok(session)
        }
        Err(instead) => {
            let shared = Arc::clone(shared);
            tokio::spawn(async move {
                if let Err(error) = delete(&shared.peer, &session).await {
                    tracing::debug!(%error, "could not delete a session that is not needed");
                }
            });
            // If the handler wants a new session after all, the next call opens it.
            existing_session(instead, generation)?.ok_or(Error::SessionLost)
        }
    }
}

/// The existing session that the handler chose. `None` if a new session is to be opened.
fn existing_session(
    lost_session_action: LostSessionAction,
    generation: u64,
) -> Result<Option<Session>, Error> {
    match lost_session_action {
        LostSessionAction::Renew => Ok(None),
        LostSessionAction::Adopt(open) => Ok(Some(Session { generation, ..resume_session(open)? })),
        LostSessionAction::Moved => Err(Error::SessionLost),
        LostSessionAction::End => Err(Error::Closed),
    }
}

/// Sends a request again in a new session. The session is usable without it, so a failure is only
/// logged.
async fn replay(peer: &Peer, session: &Session, request: ReplayRequest) {
    let ReplayRequest { method, params } = request;
    let id = peer.next_id();
    let text = message::request(&id, &method, params.as_deref());
    let error = match peer.request(&id, session.revision, session.headers(), text).await {
        Ok((_, Reply::Answer(Answer::Result(_)))) => return,
        Ok((_, Reply::Answer(Answer::Error(error)))) => {
            ErrorObject::parse(&error).map(|error| error.short_message()).unwrap_or_default()
        }
        Ok((_, Reply::Refusal { status, .. })) => format!("status {status}"),
        Err(error) => error.to_string(),
    };
    tracing::warn!(method, error, "could not replay a request in the new session");
}

/// Returns a session that a client has opened earlier.
pub(crate) fn resume_session(session: OpenSession) -> Result<Session, Error> {
    let OpenSession { id, revision, server } = session;
    let id = id.map(HeaderValue::try_from).transpose();
    let id = id.map_err(|_| Error::BadConfig("the session id is not a valid header value"))?;
    Ok(Session { id, revision, generation: 0, server, had_standalone_stream: AtomicBool::new(true) })
}

/// Opens a session: `initialize`, then `notifications/initialized`.
pub(crate) async fn initialize(peer: &Peer, requested: Revision, generation: u64) -> Result<Session, Error> {
    let id = peer.next_id();
    let params = format!(
        r#"{{"protocolVersion":{},"capabilities":{},"clientInfo":{}}}"#,
        json_string(requested.as_str()),
        peer.capabilities,
        peer.info
    );
    let text = message::request(&id, "initialize", Some(&params));
    let (headers, reply) = peer.request(&id, requested, HeaderMap::new(), text).await?;
    let server = match reply {
        Reply::Answer(Answer::Result(server)) => server,
        Reply::Answer(Answer::Error(error)) => {
            let Some(error) = ErrorObject::parse(&error) else {
                return Err(Error::BadAnswer("the error is malformed".to_owned()));
            };
            return Err(Error::Refused { status: 200, error: Some(Box::new(error)), challenge: None });
        }
        Reply::Refusal { status, body, challenge, .. } => {
            return Err(Error::refused(status, &body, challenge));
        }
    };
    let server_text = std::str::from_utf8(&server).unwrap_or_default();
    let version = raw_json::get_string(server_text, &["protocolVersion"]);
    let Some(version) = version else {
        return Err(Error::BadAnswer("the result of initialize has no protocolVersion".to_owned()));
    };
    let Some(revision) = Revision::parse(&version).filter(|revision| !revision.is_modern()) else {
        return Err(Error::NoCommonRevision { offered: vec![version] });
    };
    // Copied: slices of the connection's read buffer would keep that buffer in memory for the
    // lifetime of the session.
    let id = headers.get(headers::SESSION_ID).and_then(|id| HeaderValue::from_bytes(id.as_bytes()).ok());
    let (server, had_standalone_stream) = (Bytes::copy_from_slice(&server), AtomicBool::new(false));
    let session = Session { id, revision, generation, server, had_standalone_stream };
    let initialized = message::notification("notifications/initialized", None);
    let error = match peer.control(session.headers(), initialized).await {
        Ok((_, ServerResponse::Refusal { status, body, challenge })) => {
            Error::refused(status, &body, challenge)
        }
        Ok(_) => return Ok(session),
        Err(error) => error,
    };
    // The session exists at the server, and no client will use it.
    if let Err(error) = delete(peer, &session).await {
        tracing::debug!(%error, "could not delete a session after a failed initialization");
    }
    Err(error)
}

/// Sends a notification. Repeats it in a new session if the server has lost this one, because then
/// the server has not seen it.
pub(crate) async fn notify(
    shared: &Arc<Shared>,
    sessions: &Sessions,
    method: &str,
    params: Option<&RawObject>,
) -> Result<(), Error> {
    let text = message::notification(method, params.map(ToString::to_string).as_deref());
    let mut session = sessions.current();
    let first = session.generation;
    loop {
        match post(shared, &session, text.clone()).await? {
            ServerResponse::Refusal { status, body, challenge } => {
                if !Box::pin(sessions.is_session_lost(shared, &session, first, status)).await {
                    return Err(Error::refused(status, &body, challenge));
                }
                if session.generation != first {
                    return Err(Error::SessionLost);
                }
                session = sessions.renew(shared, &session).await?;
            }
            _ => return Ok(()),
        }
    }
}

/// Deletes the session at the server. Succeeds if the server has lost it already or does not
/// support DELETE.
pub(crate) async fn close(shared: &Shared, session: &Session) -> Result<(), Error> {
    delete(&shared.peer, session).await
}

async fn delete(peer: &Peer, session: &Session) -> Result<(), Error> {
    if session.id.is_none() {
        return Ok(());
    }
    let response = peer.delete(session.headers()).await?;
    match ServerResponse::read(response, &peer.limits).await? {
        ServerResponse::Refusal {
            status: StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED, ..
        } => Ok(()),
        ServerResponse::Refusal { status, body, challenge } => Err(Error::refused(status, &body, challenge)),
        ServerResponse::Complete(_) | ServerResponse::Stream(_) => Ok(()),
    }
}
