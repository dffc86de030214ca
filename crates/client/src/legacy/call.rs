//! A call in a session: posted, followed over as many connections as it takes, cancelled if its owner wants.

use std::sync::Arc;

use http::StatusCode;
use steadfast_wire::rpc::METHOD_NOT_FOUND;
use steadfast_wire::sse::Kind;
use steadfast_wire::{RequestId, headers};
use tokio::time::Instant;

use super::receive::{post, receive};
use super::{Session, Sessions};
use crate::errand::Job;
use crate::error::Error;
use crate::incoming::{End, Incoming, Over, Stream};
use crate::link::unanswered;
use crate::message::{self, Answer};
use crate::owner::{Event, RaceSign};
use crate::resume::Position;
use crate::shared::Shared;

/// Runs a call to its answer. `posted` is the session that the server may know it from.
pub(crate) async fn call(
    shared: &Arc<Shared>,
    sessions: &Sessions,
    job: &Job,
    posted: &mut Option<Arc<Session>>,
) -> Result<Answer, Error> {
    let text = message::request(&job.id, &job.method, job.params_text().as_deref());
    let mut session = sessions.current();
    let first = session.generation;
    loop {
        *posted = Some(Arc::clone(&session));
        let response = shared.link.call(session.headers(), text.clone()).await?;
        let run = Run { shared, session: &session, job };
        match Incoming::read(response, &shared.link.limits).await? {
            Incoming::Whole(body) => return run.told(run.whole(&body).await),
            Incoming::Stream(stream) => {
                job.listener.taken();
                return run.told(run.follow(stream).await);
            }
            Incoming::Refusal { status, body, challenge } => {
                let list = shared.link.messages(&body, session.revision).unwrap_or_default();
                let answer = list.iter().find_map(|message| message.answer_to(&job.id));
                let unknown_method =
                    answer.as_ref().and_then(Answer::code) == Some(i64::from(METHOD_NOT_FOUND));
                // Whatever else it says, this is about what it was shown, and no answer to the call.
                let is_about_credentials = status == StatusCode::UNAUTHORIZED
                    || status == StatusCode::FORBIDDEN && challenge.is_some();
                match answer.filter(|_| !is_about_credentials) {
                    _ if session.is_lost(status) && !unknown_method => {}
                    Some(answer) => return Ok(answer),
                    None if Box::pin(sessions.has_lost(shared, &session, first, status)).await => {}
                    None => return Err(Error::refused(status, &body, challenge)),
                }
            }
        }
        // The server has forgotten the session, so it has not touched the call.
        *posted = None;
        if session.generation != first {
            return Err(Error::SessionLost);
        }
        session = Box::pin(sessions.renew(shared, &session)).await?;
    }
}

/// Tells the server that nobody waits for this call any more. It is told once; if that fails, it finds out in the end.
pub(crate) async fn tell_cancelled(shared: &Shared, session: &Session, id: &RequestId) {
    let params = format!(r#"{{"requestId":{id}}}"#);
    let text = message::notification("notifications/cancelled", Some(&params));
    if let Err(error) = post(shared, session, text).await {
        tracing::debug!(%error, "a cancellation did not reach the server");
    }
}

/// A call that the server has begun to answer.
struct Run<'a> {
    shared: &'a Arc<Shared>,
    session: &'a Arc<Session>,
    job: &'a Job,
}

impl Run<'_> {
    /// An answer is a sign of life.
    fn told(&self, outcome: Result<Answer, Error>) -> Result<Answer, Error> {
        if outcome.is_ok() {
            self.shared.answered.notify_waiters();
        }
        outcome
    }

    /// A body without the answer, or none at all, as with status 202: the server has probably executed the call.
    async fn whole(&self, body: &bytes::Bytes) -> Result<Answer, Error> {
        let answer = if body.trim_ascii().is_empty() { None } else { self.messages(body).await? };
        answer.ok_or_else(|| {
            self.shared.owner.event(Event::RaceSuspected(RaceSign::NoAnswer));
            unanswered()
        })
    }

    async fn follow(&self, mut stream: Stream) -> Result<Answer, Error> {
        let mut position = Position::default();
        loop {
            position.connected();
            let begun = Instant::now();
            let why = loop {
                let event = match stream.next().await {
                    Ok(event) => event,
                    Err(End::Over(why)) => break why,
                    Err(End::TooMuch(error)) => return Err(Error::BadAnswer(error.to_string())),
                };
                let is_new = position.note(&event);
                if !is_new || event.kind != Kind::Message || event.data.is_empty() {
                    continue;
                }
                if let Some(answer) = self.messages(&event.data).await? {
                    stream.let_go();
                    return Ok(answer);
                }
            };
            let was_there = position.ended(begun.elapsed());
            if position.is_hung_up_on() {
                let why = format!("{why}, and each time it is resumed it ends without a word");
                return Err(Error::OutcomeUnknown { why });
            }
            if was_there && why == Over::Ended && position.wants_to_be_polled() {
                self.job.listener.sent_away();
            }
            stream = Box::pin(self.resume(&mut position, why.to_string())).await?;
        }
    }

    /// Takes the messages of a body or an event, and gives our answer if it is among them.
    async fn messages(&self, bytes: &bytes::Bytes) -> Result<Option<Answer>, Error> {
        let mut answer = None;
        for message in self.shared.link.messages(bytes, self.session.revision)? {
            match message.answer_to(&self.job.id) {
                Some(found) => answer = Some(found),
                None => Box::pin(receive(self.shared, self.session, message, Some(self.job))).await,
            }
        }
        Ok(answer)
    }

    /// The rest of the stream on another connection. `why` tells how the last one ended.
    async fn resume(&self, position: &mut Position, mut why: String) -> Result<Stream, Error> {
        let link = &self.shared.link;
        loop {
            let Some(last) = position.last_event_id() else {
                return Err(Error::OutcomeUnknown { why: format!("{why}, and it cannot be resumed") });
            };
            if position.is_given_up(&link.backoff) {
                return Err(Error::OutcomeUnknown { why: format!("{why}, too often in a row") });
            }
            tokio::time::sleep(position.wait(&link.backoff)).await;
            let mut headers = self.session.headers();
            headers.insert(headers::LAST_EVENT_ID, last);
            why = match link.get(headers).await {
                Ok(response) => match Incoming::read(response, &link.limits).await {
                    Ok(Incoming::Stream(stream)) => return Ok(stream),
                    Ok(Incoming::Refusal { status, .. }) if may_pass(status) => {
                        format!("resuming was refused with status {status}")
                    }
                    Ok(Incoming::Refusal { status, .. }) => {
                        let why = format!("the stream broke, and resuming was refused with status {status}");
                        return Err(Error::OutcomeUnknown { why });
                    }
                    Ok(Incoming::Whole(_)) => {
                        let why = "the stream broke, and resuming gave no stream".to_owned();
                        return Err(Error::OutcomeUnknown { why });
                    }
                    Err(error) => error.to_string(),
                },
                Err(error) => error.to_string(),
            };
            position.failed();
        }
    }
}

/// Whether a refusal may be over soon.
fn may_pass(status: StatusCode) -> bool {
    // A conflict: it has not noticed yet that the connection before was cut.
    let passing = [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT, StatusCode::CONFLICT];
    status.is_server_error() || passing.contains(&status)
}
