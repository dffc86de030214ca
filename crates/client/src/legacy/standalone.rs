//! The standalone stream of a session: held open for as long as the client lives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::StatusCode;
use steadfast_wire::headers;
use steadfast_wire::sse::Kind;
use tokio::time::Instant;

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

/// Opens the stream, resumes it, opens it again, until the client ends or the server has none. If it fails too often in a row,
/// that waits until the server answers a call.
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
    let mut changes = sessions.watch();
    let mut position = Position::default();
    let mut generation = None;
    loop {
        let session = Arc::clone(&changes.borrow_and_update());
        if generation.replace(session.generation) != Some(session.generation) {
            position.forget();
        }
        // Apart from this future, which is there for as long as the stream is, and for every session.
        let error = match Box::pin(open(shared, &session, &position)).await {
            Ok(stream) => {
                position.connected();
                shared.owner.event(Event::StandaloneOpen);
                let (begun, has_spoken) = (Instant::now(), AtomicBool::new(false));
                tokio::select! {
                    end = listen(shared, &session, stream, &mut position, &has_spoken) => match end {
                        End::Over(_) => {}
                        // It would come again and again.
                        End::TooMuch(error) => return Some(Error::BadAnswer(error.to_string())),
                    },
                    // Its session is over, whether or not the server has noticed.
                    _ = changes.changed() => {}
                    () = reopening(shared, &has_spoken) => {
                        tokio::time::sleep(REOPENING).await;
                        continue;
                    }
                }
                position.ended(begun.elapsed());
                if position.is_hung_up_on() && position.last_event_id().is_some() {
                    // It may not know the event any more, and not say so either: rmcp's streams are empty then.
                    position.forget();
                    shared.owner.event(Event::Gap);
                }
                position.lasted(begun.elapsed(), &shared.link.backoff);
                tokio::time::sleep(position.wait(&shared.link.backoff)).await;
                continue;
            }
            Err(Refusal::Absent) => return None,
            Err(Refusal::Unknown) => {
                position.forget();
                shared.owner.event(Event::Gap);
                continue;
            }
            Err(Refusal::Lost) => match Box::pin(sessions.renew(shared, &session)).await {
                Ok(_) => continue,
                Err(error) => error,
            },
            Err(Refusal::Failed(error)) => error,
        };
        position.failed();
        if position.is_given_up(&shared.link.backoff) {
            if !may_pass(&error) {
                return Some(error);
            }
            // Who was away may come back.
            shared.owner.event(Event::StandaloneLost(error));
            tokio::select! {
                () = shared.answered.notified() => {}
                _ = changes.changed() => {}
            }
            position.give_another_chance();
            continue;
        }
        tokio::time::sleep(position.wait(&shared.link.backoff)).await;
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
    /// The server has forgotten the session.
    Lost,
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
        Incoming::Refusal { status, .. } if session.is_lost(status) => Err(Refusal::Lost),
        Incoming::Refusal { status, .. } if last.is_some() && status == StatusCode::BAD_REQUEST => {
            Err(Refusal::Unknown)
        }
        Incoming::Refusal { status, body, challenge } => {
            Err(Refusal::Failed(Error::Refused { status: status.as_u16(), body, challenge }))
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
