//! Runs a call in a session: posts it, follows its stream over as many connections as necessary,
//! and renews a lost session.

use std::sync::Arc;

use http::StatusCode;
use steadfast_wire::rpc::METHOD_NOT_FOUND;
use steadfast_wire::sse::Kind;
use steadfast_wire::{RequestId, headers};
use tokio::time::Instant;

use super::dispatch::{dispatch, post};
use super::{Session, Sessions};
use crate::call::CallSpec;
use crate::error::Error;
use crate::handler::{Event, Misrouting};
use crate::peer::{
    Answer, CloseCause, EventStream, ServerResponse, StreamEnd, StreamPosition, message,
    no_answer_in_response,
};
use crate::shared::Shared;

/// Runs a call and returns its answer. Sets `sent_in_session` to the session in which the server
/// may know the call.
pub(crate) async fn call(
    shared: &Arc<Shared>,
    sessions: &Sessions,
    spec: &CallSpec,
    sent_in_session: &mut Option<Arc<Session>>,
) -> Result<Answer, Error> {
    let text = message::request(&spec.id, &spec.method, spec.params_text().as_deref());
    let mut session = sessions.current();
    let first_generation = session.generation;
    loop {
        *sent_in_session = Some(Arc::clone(&session));
        let response = shared.peer.call(session.headers(), text.clone()).await?;
        let running = RunningCall { shared, session: &session, spec };
        match ServerResponse::read(response, &shared.peer.limits).await? {
            ServerResponse::Complete(body) => return running.report_answered(running.read_body(&body).await),
            ServerResponse::Stream(stream) => {
                spec.observer.on_stream_opened();
                return running.report_answered(running.follow_stream(stream).await);
            }
            ServerResponse::Refusal { status, body, challenge } => {
                let list = shared.peer.messages(&body, session.revision).unwrap_or_default();
                let answer = list.iter().find_map(|message| message.answer_to(&spec.id));
                let unknown_method =
                    answer.as_ref().and_then(Answer::code) == Some(i64::from(METHOD_NOT_FOUND));
                // Such a status is about the credentials, whatever the body says, and is not an
                // answer to the call.
                let is_about_credentials = status == StatusCode::UNAUTHORIZED
                    || status == StatusCode::FORBIDDEN && challenge.is_some();
                match answer.filter(|_| !is_about_credentials) {
                    _ if session.status_means_lost(status) && !unknown_method => {}
                    Some(answer) => return Ok(answer),
                    None if Box::pin(sessions.is_session_lost(
                        shared,
                        &session,
                        first_generation,
                        status,
                    ))
                    .await => {}
                    None => return Err(Error::refused(status, &body, challenge)),
                }
            }
        }
        // The server has lost the session, so it has not executed the call.
        *sent_in_session = None;
        if session.generation != first_generation {
            return Err(Error::SessionLost);
        }
        session = Box::pin(sessions.renew(shared, &session)).await?;
    }
}

/// Tells the server that the call was cancelled. Does not retry: if the notification is lost, the
/// server runs the call for nothing.
pub(crate) async fn send_cancelled(shared: &Shared, session: &Session, id: &RequestId) {
    let params = format!(r#"{{"requestId":{id}}}"#);
    let text = message::notification("notifications/cancelled", Some(&params));
    if let Err(error) = post(shared, session, text).await {
        tracing::debug!(%error, "could not tell the server that a call was cancelled");
    }
}

/// A call that the server has begun to answer.
struct RunningCall<'a> {
    shared: &'a Arc<Shared>,
    session: &'a Arc<Session>,
    spec: &'a CallSpec,
}

impl RunningCall<'_> {
    /// Notifies waiting tasks that the server is reachable.
    fn report_answered(&self, outcome: Result<Answer, Error>) -> Result<Answer, Error> {
        if outcome.is_ok() {
            self.shared.call_answered.notify_waiters();
        }
        outcome
    }

    /// Reads the answer from a body. If the body holds no answer or is empty, as with status 202,
    /// the server has probably executed the call.
    async fn read_body(&self, body: &bytes::Bytes) -> Result<Answer, Error> {
        let answer = if body.trim_ascii().is_empty() { None } else { self.messages(body).await? };
        answer.ok_or_else(|| {
            self.shared.handler.on_event(Event::MisroutingSuspected(Misrouting::ResponseWithoutAnswer));
            no_answer_in_response()
        })
    }

    async fn follow_stream(&self, mut stream: EventStream) -> Result<Answer, Error> {
        let mut position = StreamPosition::default();
        loop {
            position.connected();
            let begun = Instant::now();
            let why = loop {
                let event = match stream.next().await {
                    Ok(event) => event,
                    Err(StreamEnd::Closed(why)) => break why,
                    Err(StreamEnd::OverLimit(error)) => return Err(Error::BadAnswer(error.to_string())),
                };
                let is_new = position.record(&event);
                if !is_new || event.kind != Kind::Message || event.data.is_empty() {
                    continue;
                }
                if let Some(answer) = self.messages(&event.data).await? {
                    stream.drain_in_background();
                    return Ok(answer);
                }
            };
            let was_held = position.ended(begun.elapsed());
            if position.is_closed_repeatedly() {
                let why = format!("{why}, and each resumption ended without an event");
                return Err(Error::OutcomeUnknown { why });
            }
            if was_held && why == CloseCause::Ended && position.expects_polling() {
                self.spec.observer.on_polling_requested();
            }
            stream = Box::pin(self.resume(&mut position, why.to_string())).await?;
        }
    }

    /// Dispatches the messages of a body or an event. Returns the answer to this call if it is
    /// among them.
    async fn messages(&self, bytes: &bytes::Bytes) -> Result<Option<Answer>, Error> {
        let mut answer = None;
        for message in self.shared.peer.messages(bytes, self.session.revision)? {
            match message.answer_to(&self.spec.id) {
                Some(found) => answer = Some(found),
                None => Box::pin(dispatch(self.shared, self.session, message, Some(self.spec))).await,
            }
        }
        Ok(answer)
    }

    /// Resumes the stream on a new connection. `why` says how the previous one ended.
    async fn resume(&self, position: &mut StreamPosition, mut why: String) -> Result<EventStream, Error> {
        let peer = &self.shared.peer;
        loop {
            let Some(last) = position.last_event_id() else {
                return Err(Error::OutcomeUnknown { why: format!("{why}, and it cannot be resumed") });
            };
            if position.should_give_up(&peer.backoff) {
                return Err(Error::OutcomeUnknown { why: format!("{why}, too many times in a row") });
            }
            tokio::time::sleep(position.wait(&peer.backoff)).await;
            let mut headers = self.session.headers();
            headers.insert(headers::LAST_EVENT_ID, last);
            why = match peer.get(headers).await {
                Ok(response) => match ServerResponse::read(response, &peer.limits).await {
                    Ok(ServerResponse::Stream(stream)) => return Ok(stream),
                    Ok(ServerResponse::Refusal { status, .. }) if is_transient(status) => {
                        format!("resuming was refused with status {status}")
                    }
                    Ok(ServerResponse::Refusal { status, .. }) => {
                        let why = format!("the stream broke, and resuming was refused with status {status}");
                        return Err(Error::OutcomeUnknown { why });
                    }
                    Ok(ServerResponse::Complete(_)) => {
                        let why =
                            "the stream broke, and the response to the resumption is not a stream".to_owned();
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

/// Returns true if a retry may succeed.
fn is_transient(status: StatusCode) -> bool {
    // 409: the server has not noticed yet that the previous connection was cut.
    let transient = [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT, StatusCode::CONFLICT];
    status.is_server_error() || transient.contains(&status)
}
