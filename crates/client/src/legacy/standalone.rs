//! The standalone stream of a session: held open for as long as the client lives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::StatusCode;
use steadfast_wire::headers;
use steadfast_wire::sse::Kind;
use tokio::sync::watch;
use tokio::time::Instant;

use super::forgotten::is_forgotten;
use super::receive::receive;
use super::{Session, Sessions};
use crate::error::{Error, Wait};
use crate::incoming::{End, Incoming, Stream};
use crate::owner::Event;
use crate::resume::Position;
use crate::shared::{Mode, Shared};

/// How long a server has to notice that we have let go of a stream, before we open it again: if it comes to know of both, it may
/// take the new one for one too many.
const REOPENING: Duration = Duration::from_millis(500);

/// Sessions in a row that may be lost before their stream is open, and are opened anew. A server that loses more of them has no
/// stream for us.
const MAX_UNHEARD: u32 = 1;

/// Opens the stream, resumes it, opens it again, until the client ends or the server has none. If it fails too often in a row,
/// that waits until there is a reason to try again.
pub(crate) async fn hold_standalone(shared: Arc<Shared>) {
    let Mode::Session(sessions) = &shared.mode else { return };
    let end = tokio::select! {
        biased;
        () = shared.closing.cancelled() => return,
        () = shared.deaf.cancelled() => return,
        end = hold(&shared, sessions) => end,
    };
    shared.owner.event(match end {
        Some(error) => Event::StandaloneLost(error),
        None => Event::StandaloneAbsent,
    });
}

/// Runs until it gives up; `None` if the server has no such stream.
async fn hold(shared: &Arc<Shared>, sessions: &Sessions) -> Option<Error> {
    let backoff = &shared.link.backoff;
    let mut hold = Hold::new(shared, sessions);
    loop {
        let session = hold.session();
        // Apart from this future, which is there for as long as the stream is, and for every session.
        let error = match Box::pin(open(shared, &session, &hold.position)).await {
            Ok(stream) => match hold.hear(&session, stream).await {
                Ok(()) => continue,
                Err(error) => return Some(error),
            },
            Err(Refusal::Absent) => return None,
            Err(Refusal::Unknown) => {
                hold.position.forget();
                continue;
            }
            Err(Refusal::NotFound) => match Box::pin(hold.succeed(sessions, &session)).await {
                Ok(()) => continue,
                Err(error) => error,
            },
            Err(Refusal::Doubtful(error)) => {
                match Box::pin(hold.succeed_if_forgotten(sessions, &session, error)).await {
                    Ok(()) => continue,
                    Err(error) => error,
                }
            }
            Err(Refusal::Failed(error)) => error,
        };
        hold.position.failed();
        if !hold.position.is_given_up(backoff) {
            tokio::time::sleep(hold.position.wait(backoff)).await;
            continue;
        }
        let passes = may_pass(&error);
        shared.owner.event(Event::StandaloneLost(error));
        hold.wait_for_the_server(passes).await;
    }
}

/// What is known of the stream between its connections.
struct Hold<'a> {
    shared: &'a Arc<Shared>,
    changes: watch::Receiver<Arc<Session>>,
    position: Position,
    generation: Option<u64>,
    /// Whether it was open in this session.
    was_open: bool,
    /// Sessions in a row that were lost before it was open in them.
    unheard: u32,
}

impl<'a> Hold<'a> {
    fn new(shared: &'a Arc<Shared>, sessions: &Sessions) -> Self {
        let (changes, position) = (sessions.watch(), Position::default());
        Self { shared, changes, position, generation: None, was_open: false, unheard: 0 }
    }

    /// The session of the next connection. Another has another stream.
    fn session(&mut self) -> Arc<Session> {
        let session = Arc::clone(&self.changes.borrow_and_update());
        if self.generation.replace(session.generation) != Some(session.generation) {
            self.position.forget();
            self.was_open = false;
        }
        session
    }

    /// Hears one connection to its end, and waits for as long as is due before the next.
    async fn hear(&mut self, session: &Arc<Session>, stream: Box<Stream>) -> Result<(), Error> {
        let (shared, position) = (self.shared, &mut self.position);
        (self.was_open, self.unheard) = (true, 0);
        position.connected();
        shared.owner.event(Event::StandaloneOpen);
        if session.note_listener() && position.last_event_id().is_none() {
            shared.owner.event(Event::Gap);
        }
        let (begun, has_spoken) = (Instant::now(), AtomicBool::new(false));
        tokio::select! {
            end = listen(shared, session, stream, position, &has_spoken) => match end {
                End::Over(_) => {}
                // It would come again and again.
                End::TooMuch(error) => return Err(Error::BadAnswer(error.to_string())),
            },
            // Its session is over, whether or not the server has noticed.
            _ = self.changes.changed() => {}
            () = reopening(shared, &has_spoken) => {
                tokio::time::sleep(REOPENING).await;
                return Ok(());
            }
        }
        position.ended(begun.elapsed());
        if position.is_hung_up_on() {
            // It may not know the event any more, and not say so either: rmcp's streams are empty then.
            position.forget();
        }
        position.lasted(begun.elapsed(), &shared.link.backoff);
        tokio::time::sleep(position.wait(&shared.link.backoff)).await;
        Ok(())
    }

    /// The server does not find the stream: there is another session if it has lost this one. If it has not, or loses one after the
    /// other, it has none for us in this session, and only those who call can tell when that is over.
    async fn succeed(&mut self, sessions: &Sessions, lost: &Arc<Session>) -> Result<(), Error> {
        let is_lost = self.was_open || is_forgotten(self.shared, lost).await?;
        if is_lost && self.unheard < MAX_UNHEARD {
            return self.renew(sessions, lost).await;
        }
        self.shared.owner.event(Event::StandaloneAbsent);
        // Whoever could change it lives as long as this does.
        let _ = self.changes.changed().await;
        Ok(())
    }

    /// The server refuses the stream in a way that may mean that it has lost the session: there is another if it has.
    async fn succeed_if_forgotten(
        &mut self,
        sessions: &Sessions,
        lost: &Arc<Session>,
        refused: Error,
    ) -> Result<(), Error> {
        if self.unheard == MAX_UNHEARD || !is_forgotten(self.shared, lost).await.unwrap_or(false) {
            return Err(refused);
        }
        self.renew(sessions, lost).await
    }

    async fn renew(&mut self, sessions: &Sessions, lost: &Arc<Session>) -> Result<(), Error> {
        sessions.renew(self.shared, lost).await?;
        self.unheard += u32::from(!self.was_open);
        Ok(())
    }

    /// Who was away may come back: another attempt when it has answered somebody, or else after a while. Who has refused us may see
    /// it otherwise in another session, or when we show something else.
    async fn wait_for_the_server(&mut self, passes: bool) {
        tokio::select! {
            () = self.shared.shown.notified() => {}
            _ = self.changes.changed() => {}
            () = self.shared.answered.notified(), if passes => {}
            // If it fails again, that is that for another while.
            () = tokio::time::sleep(self.shared.link.backoff.seldom), if passes => return,
        }
        self.position.give_another_chance();
    }
}

/// Waits until the stream is to be opened again. One on which the server speaks is as it should be.
async fn reopening(shared: &Shared, has_spoken: &AtomicBool) {
    loop {
        shared.reopening.notified().await;
        if !has_spoken.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// Whether the reason may be gone by the time that the server answers something else.
fn may_pass(error: &Error) -> bool {
    match error {
        Error::Connect(_) | Error::Broken(_) | Error::Timeout(_) | Error::OutcomeUnknown { .. } => true,
        // Certificates are renewed.
        Error::Untrusted(_) => true,
        // Somebody else has it, or the server is on its way up.
        Error::Refused { status, .. } => matches!(status, 408 | 409 | 429 | 500..=599),
        _ => false,
    }
}

/// Why there is no stream.
enum Refusal {
    /// The server has none.
    Absent,
    /// The server does not know the event from which on we want it.
    Unknown,
    /// The server has forgotten the session, or does not know what a GET is.
    NotFound,
    /// The same, or it does not like something about the request.
    Doubtful(Error),
    Failed(Error),
}

async fn open(shared: &Shared, session: &Session, position: &Position) -> Result<Box<Stream>, Refusal> {
    let link = &shared.link;
    let mut headers = session.headers();
    let last = position.last_event_id();
    if let Some(last) = &last {
        headers.insert(headers::LAST_EVENT_ID, last.clone());
    }
    let response = link.get(headers).await.map_err(Refusal::Failed)?;
    let read = tokio::time::timeout(link.timeouts.control, Incoming::read(response, &link.limits));
    match read.await.unwrap_or(Err(Error::Timeout(Wait::Head))).map_err(Refusal::Failed)? {
        Incoming::Stream(stream) => Ok(Box::new(stream)),
        Incoming::Refusal { status: StatusCode::METHOD_NOT_ALLOWED, .. } => Err(Refusal::Absent),
        Incoming::Refusal { status, .. } if session.is_lost(status) => Err(Refusal::NotFound),
        Incoming::Refusal { status, .. } if last.is_some() && status == StatusCode::BAD_REQUEST => {
            Err(Refusal::Unknown)
        }
        Incoming::Refusal { status, body, challenge } => {
            let error = Error::refused(status, &body, challenge);
            Err(if session.may_be_lost(status) { Refusal::Doubtful(error) } else { Refusal::Failed(error) })
        }
        Incoming::Whole(_) => Err(Refusal::Failed(Error::BadAnswer("it is no stream".to_owned()))),
    }
}

/// Reads one connection to its end.
async fn listen(
    shared: &Arc<Shared>,
    session: &Arc<Session>,
    mut stream: Box<Stream>,
    position: &mut Position,
    has_spoken: &AtomicBool,
) -> End {
    loop {
        let event = match stream.next().await {
            Ok(event) => event,
            Err(end) => return end,
        };
        if !event.data.is_empty() {
            has_spoken.store(true, Ordering::Relaxed);
        }
        let is_new = position.note(&event);
        if !is_new || event.kind != Kind::Message || event.data.is_empty() {
            continue;
        }
        match shared.link.messages(&event.data, session.revision) {
            Ok(list) => {
                for message in list {
                    Box::pin(receive(shared, session, message, None)).await;
                }
            }
            Err(error) => tracing::warn!(%error, "a message on the standalone stream is ignored"),
        }
    }
}
