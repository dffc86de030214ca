//! Sessions: opened, renewed when the server forgets them, and closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use steadfast_wire::rpc::{ErrorObject, json_string};
use steadfast_wire::{Revision, headers};
use tokio::sync::{Mutex, watch};

use super::forgotten::is_forgotten;
use super::receive::post;
use crate::client::OpenSession;
use crate::error::Error;
use crate::incoming::Incoming;
use crate::link::{Link, Reply};
use crate::message::{self, Answer};
use crate::owner::{Event, Repeat, Succession};
use crate::shared::{Mode, Shared};
use steadfast_wire::members::Members;

/// One session at the server.
#[derive(Debug)]
pub(crate) struct Session {
    /// A server may do without.
    id: Option<HeaderValue>,
    pub(crate) revision: Revision,
    /// Which session of this client it is.
    pub(crate) generation: u64,
    /// The JSON text of the result of `initialize`.
    pub(crate) server: Bytes,
    /// Whether its standalone stream was open, here or at whoever had the session before.
    had_listener: AtomicBool,
}

impl Session {
    /// What every request of the session carries.
    pub(crate) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(id) = &self.id {
            headers.insert(headers::SESSION_ID, id.clone());
        }
        let version = HeaderValue::from_static(self.revision.as_str());
        headers.insert(headers::PROTOCOL_VERSION, version);
        headers
    }

    /// Whether this status means that the server has forgotten the session.
    pub(crate) fn is_lost(&self, status: StatusCode) -> bool {
        status == StatusCode::NOT_FOUND && self.id.is_some()
    }

    /// Whether this status may mean the same: many servers say 400 of a session that they do not know, and of much else.
    pub(crate) fn may_be_lost(&self, status: StatusCode) -> bool {
        status == StatusCode::BAD_REQUEST && self.id.is_some()
    }

    /// Its standalone stream is open. Gives whether it may have been before: then something may have come in between.
    pub(crate) fn note_listener(&self) -> bool {
        self.had_listener.swap(true, Ordering::Relaxed)
    }

    /// The session for whoever goes on with it later.
    pub(crate) fn open(&self) -> OpenSession {
        OpenSession { id: self.id_text(), revision: self.revision, server: self.server.clone() }
    }

    pub(crate) fn id_text(&self) -> Option<String> {
        self.id.as_ref().map(|id| String::from_utf8_lossy(id.as_bytes()).into_owned())
    }
}

/// The session in use, and how the next one comes to be.
#[derive(Debug)]
pub(crate) struct Sessions {
    current: watch::Sender<Arc<Session>>,
    /// Held while a session is opened.
    renewal: Mutex<Renewal>,
    /// The server refuses pings in sessions that it has just opened: they tell nothing of a session.
    refuses_pings: AtomicBool,
}

/// How opening a session went before.
#[derive(Debug, Default)]
struct Renewal {
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

    /// Tells of the sessions that come after.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<Session>> {
        self.current.subscribe()
    }

    /// Whether the server has forgotten a session in which it has refused something with this status, and said no more. `first`:
    /// the session in which it was sent first. One that was opened for it since is not forgotten.
    pub(crate) async fn has_lost(
        &self,
        shared: &Shared,
        session: &Session,
        first: u64,
        status: StatusCode,
    ) -> bool {
        if session.is_lost(status) {
            return true;
        }
        if !session.may_be_lost(status) || self.refuses_pings.load(Ordering::Relaxed) {
            return false;
        }
        if self.current().generation != session.generation {
            return true;
        }
        let is_forgotten = is_forgotten(shared, session).await.unwrap_or(false);
        if is_forgotten && session.generation != first {
            self.refuses_pings.store(true, Ordering::Relaxed);
            return false;
        }
        is_forgotten
    }

    /// The session after one that the server has forgotten. However many ask for it, it is opened once, and if that fails
    /// all who waited hear why.
    pub(crate) async fn renew(
        &self,
        shared: &Arc<Shared>,
        lost: &Arc<Session>,
    ) -> Result<Arc<Session>, Error> {
        // In a task of its own: whoever waits here may be cancelled, and the server has opened a session by then.
        let task = tokio::spawn(renew(Arc::clone(shared), Arc::clone(lost)));
        task.await.unwrap_or(Err(Error::Closed))
    }
}

async fn renew(shared: Arc<Shared>, lost: Arc<Session>) -> Result<Arc<Session>, Error> {
    let Mode::Session(sessions) = &shared.mode else { return Err(Error::Closed) };
    let mut renewal = match sessions.renewal.try_lock() {
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
    shared.asks.cancel_all(&lost);
    match succeed(&shared, &lost).await {
        Ok(session) => {
            let session = Arc::new(session);
            sessions.current.send_replace(Arc::clone(&session));
            shared.owner.event(Event::SessionRenewed);
            Ok(session)
        }
        Err(error) => {
            renewal.failed = Some(error.clone());
            Err(error)
        }
    }
}

/// The session after one that is lost, as its owner wants it.
async fn succeed(shared: &Arc<Shared>, lost: &Session) -> Result<Session, Error> {
    let generation = lost.generation + 1;
    if let Some(session) = adopted(shared.owner.lost(lost.open()).await, generation)? {
        return Ok(session);
    }
    let session = initialize(&shared.link, lost.revision, generation).await?;
    match shared.owner.renewed(lost.open(), session.open()).await {
        Ok(repeats) => {
            for repeat in repeats {
                again(&shared.link, &session, repeat).await;
            }
            Ok(session)
        }
        Err(instead) => {
            let shared = Arc::clone(shared);
            tokio::spawn(async move {
                if let Err(error) = end(&shared.link, &session).await {
                    tracing::debug!(%error, "a session that was not needed was not ended");
                }
            });
            // One that is not there yet is for whoever calls next.
            adopted(instead, generation)?.ok_or(Error::SessionLost)
        }
    }
}

/// The session that is there already, if it is to be that; `None` if there is to be a new one.
fn adopted(succession: Succession, generation: u64) -> Result<Option<Session>, Error> {
    match succession {
        Succession::Renew => Ok(None),
        Succession::Adopt(open) => Ok(Some(Session { generation, ..reopen(open)? })),
        Succession::Moved => Err(Error::SessionLost),
        Succession::End => Err(Error::Closed),
    }
}

/// Makes a request again in a new session. The session is of use without it, so a failure is logged and no more.
async fn again(link: &Link, session: &Session, repeat: Repeat) {
    let Repeat { method, params } = repeat;
    let id = link.next_id();
    let text = message::request(&id, &method, params.as_deref());
    let error = match link.request(&id, session.revision, session.headers(), text).await {
        Ok((_, Reply::Answer(Answer::Result(_)))) => return,
        Ok((_, Reply::Answer(Answer::Error(error)))) => {
            ErrorObject::parse(&error).map(|error| error.short_message()).unwrap_or_default()
        }
        Ok((_, Reply::Refusal { status, .. })) => format!("status {status}"),
        Err(error) => error.to_string(),
    };
    tracing::warn!(method, error, "a request could not be repeated in a new session");
}

/// A session that was opened before.
pub(crate) fn reopen(session: OpenSession) -> Result<Session, Error> {
    let OpenSession { id, revision, server } = session;
    let id = id.map(HeaderValue::try_from).transpose();
    let id = id.map_err(|_| Error::BadConfig("the session id is no header"))?;
    Ok(Session { id, revision, generation: 0, server, had_listener: AtomicBool::new(true) })
}

/// Opens a session: `initialize`, then `notifications/initialized`.
pub(crate) async fn initialize(link: &Link, offer: Revision, generation: u64) -> Result<Session, Error> {
    let id = link.next_id();
    let params = format!(
        r#"{{"protocolVersion":{},"capabilities":{},"clientInfo":{}}}"#,
        json_string(offer.as_str()),
        link.capabilities,
        link.info
    );
    let text = message::request(&id, "initialize", Some(&params));
    let (headers, reply) = link.request(&id, offer, HeaderMap::new(), text).await?;
    let server = match reply {
        Reply::Answer(Answer::Result(server)) => server,
        Reply::Answer(Answer::Error(error)) => {
            let Some(error) = ErrorObject::parse(&error) else {
                return Err(Error::BadAnswer("its error cannot be read".to_owned()));
            };
            return Err(Error::Refused { status: 200, error: Some(Box::new(error)), challenge: None });
        }
        Reply::Refusal { status, body, challenge, .. } => {
            return Err(Error::refused(status, &body, challenge));
        }
    };
    let version = std::str::from_utf8(&server).ok().and_then(|text| Members::parse(text).ok());
    let version = version.and_then(|members| members.text("protocolVersion"));
    let Some(version) = version else {
        return Err(Error::BadAnswer("the result of initialize has no protocolVersion".to_owned()));
    };
    let Some(revision) = Revision::parse(&version).filter(|revision| !revision.is_modern()) else {
        return Err(Error::NoCommonRevision { offered: vec![version] });
    };
    // Copied: as parts of what the connection has read they would keep all of that in memory, for as long as the session lasts.
    let id = headers.get(headers::SESSION_ID).and_then(|id| HeaderValue::from_bytes(id.as_bytes()).ok());
    let (server, had_listener) = (Bytes::copy_from_slice(&server), AtomicBool::new(false));
    let session = Session { id, revision, generation, server, had_listener };
    let initialized = message::notification("notifications/initialized", None);
    let error = match link.control(session.headers(), initialized).await {
        Ok((_, Incoming::Refusal { status, body, challenge })) => Error::refused(status, &body, challenge),
        Ok(_) => return Ok(session),
        Err(error) => error,
    };
    // The server has it, and nobody will use it.
    if let Err(error) = end(link, &session).await {
        tracing::debug!(%error, "a session that came to nothing was not ended");
    }
    Err(error)
}

/// Sends a notification; again in a new session if the server has forgotten this one, which means that it has not
/// seen it.
pub(crate) async fn notify(
    shared: &Arc<Shared>,
    sessions: &Sessions,
    method: &str,
    params: Option<&Members>,
) -> Result<(), Error> {
    let text = message::notification(method, params.map(ToString::to_string).as_deref());
    let mut session = sessions.current();
    let first = session.generation;
    loop {
        match post(shared, &session, text.clone()).await? {
            Incoming::Refusal { status, body, challenge } => {
                if !Box::pin(sessions.has_lost(shared, &session, first, status)).await {
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

/// Tells the server to forget the session. It may have done so, or not know how to.
pub(crate) async fn close(shared: &Shared, session: &Session) -> Result<(), Error> {
    end(&shared.link, session).await
}

async fn end(link: &Link, session: &Session) -> Result<(), Error> {
    if session.id.is_none() {
        return Ok(());
    }
    let response = link.delete(session.headers()).await?;
    match Incoming::read(response, &link.limits).await? {
        Incoming::Refusal { status: StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED, .. } => Ok(()),
        Incoming::Refusal { status, body, challenge } => Err(Error::refused(status, &body, challenge)),
        Incoming::Whole(_) | Incoming::Stream(_) => Ok(()),
    }
}
