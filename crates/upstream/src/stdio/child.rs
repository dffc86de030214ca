//! A program as an HTTP server.

mod stateless;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use steadfast_client::Boxed;
use steadfast_client::transport::{Body, SendError, Transport};
use steadfast_wire::rpc::ErrorObject;
use steadfast_wire::{Message, MessageKind, RequestId, headers};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use super::body::Source;
use super::mail::End;
use super::process::{Flight, Process, WriteError};
use super::programs::Yard;
use super::reply::{empty, events, json, not_found, refuse};
use super::restarts::Restarts;
use super::router::Sender;
use super::session_id::SessionId;
use super::splice;
use super::unavailable::Unavailable;
use crate::config::Sharing;

/// How long an answer is waited for before the head of a stream goes out. One that comes in time is plain JSON.
const HEAD_PATIENCE: Duration = Duration::from_secs(1);

const INITIALIZE: &str = "initialize";

/// The way to a program: starts it when a session is opened, and again after it has ended. Dropped, it ends it.
#[derive(Debug)]
pub struct Child {
    me: Weak<Self>,
    yard: Arc<Yard>,
    name: String,
    current: Mutex<Current>,
    /// Held while a process is started or a session opened.
    starts: AsyncMutex<Starts>,
}

#[derive(Clone, Debug, Default)]
struct Current {
    process: Option<Arc<Process>>,
    /// Which of all processes of the program it is.
    generation: u64,
}

#[derive(Debug, Default)]
struct Starts {
    restarts: Restarts,
    /// Kept for whoever comes next if its sender loses its patience: a process is initialised once, and may be slow.
    opening: Option<Opening>,
}

/// An `initialize` in flight.
#[derive(Debug)]
struct Opening {
    generation: u64,
    seat: u64,
    flight: Flight,
    /// Until when it may take.
    end: Instant,
}

/// Why no session was opened.
enum Unopened {
    /// The process has ended by itself.
    Ended(Unavailable),
    /// The process was ended for want of use before anything was sent to it.
    Unsent(Unavailable),
    Otherwise(Unavailable),
}

impl Child {
    pub(super) fn new(yard: Arc<Yard>, name: &str) -> Arc<Self> {
        let (name, current, starts) = (name.to_owned(), Mutex::default(), AsyncMutex::default());
        Arc::new_cyclic(|me| Self { me: Weak::clone(me), yard, name, current, starts })
    }

    async fn serve(&self, request: Request<Bytes>) -> Response<Body> {
        let session = request.headers().get(headers::SESSION_ID);
        let session = session.map(|value| SessionId::parse(value.to_str().ok()?));
        let method = request.method().clone();
        match (method, session) {
            (Method::POST, session) => self.post(session, request.body()).await,
            (Method::GET, Some(session)) => self.get(session),
            (Method::DELETE, Some(session)) => self.delete(session),
            _ => empty(StatusCode::METHOD_NOT_ALLOWED),
        }
    }

    async fn post(&self, session: Option<Option<SessionId>>, body: &Bytes) -> Response<Body> {
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
                let Some((process, seat)) = self.find(session) else { return not_found() };
                match kind {
                    MessageKind::Request(id) => call(&process, Sender::Session(seat), &message, id).await,
                    MessageKind::Notification => accepted(process.notify(Some(seat), &message)),
                    MessageKind::Response(Some(id)) => accepted(process.answer(seat, &message, id)),
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

    /// The stream of what belongs to no request.
    fn get(&self, session: Option<SessionId>) -> Response<Body> {
        let found = self.find(session).and_then(|(process, seat)| process.mail_of(seat));
        found.map_or_else(not_found, |mail| events(Source::Session(mail.reader())))
    }

    fn delete(&self, session: Option<SessionId>) -> Response<Body> {
        let Some((process, seat)) = self.find(session) else { return not_found() };
        match self.yard.stdio.sharing {
            Sharing::PerSession => process.end("its session was closed"),
            Sharing::Shared => process.leave(seat),
        }
        empty(StatusCode::OK)
    }

    /// Opens a session: in a new process, or in the one that is shared. A program that ends meanwhile may have had bad luck; if it
    /// does so again, whoever waits is told, and those who come next have to wait.
    async fn open(&self, message: &Message<'_>, id: &RequestId) -> Response<Body> {
        let mut starts = self.starts.lock().await;
        let mut opened = self.open_once(&mut starts, message, id).await;
        let is_worth_another = match &opened {
            Err(Unopened::Ended(_)) => self.yard.openings().failures() == 1,
            Err(Unopened::Unsent(_)) => true,
            Ok(_) | Err(Unopened::Otherwise(_)) => false,
        };
        if is_worth_another {
            opened = self.open_once(&mut starts, message, id).await;
        }
        let (Unopened::Ended(why) | Unopened::Unsent(why) | Unopened::Otherwise(why)) = match opened {
            Ok(response) => return response,
            Err(unopened) => unopened,
        };
        why.response(id)
    }

    async fn open_once(
        &self,
        starts: &mut Starts,
        message: &Message<'_>,
        id: &RequestId,
    ) -> Result<Response<Body>, Unopened> {
        if let (Sharing::PerSession, Some(process)) = (self.yard.stdio.sharing, self.process())
            && process.welcome().is_some()
        {
            process.end("another session takes its place");
        }
        let (process, generation) = self.running(&mut starts.restarts).await.map_err(Unopened::Otherwise)?;
        let boot = self.yard.boot;
        let gone = || Unopened::Unsent(Unavailable::now(WriteError::Gone.to_string()));
        if let Some(result) = process.welcome() {
            let text =
                [format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#).as_bytes(), &result, b"}"].concat();
            let seat = process.seat().ok_or_else(gone)?;
            return Ok(SessionId { boot, generation, seat }.welcome(text.into()));
        }
        if starts.opening.as_ref().is_none_or(|opening| opening.generation != generation) {
            let seat = process.seat().ok_or_else(gone)?;
            match process.begin(Sender::Opening(seat), message, id) {
                Ok(flight) => {
                    let end = Instant::now() + self.yard.pace().opening;
                    starts.opening = Some(Opening { generation, seat, flight, end });
                }
                Err(error) => return Ok(unwritten(&error, id)),
            }
        }
        // It stays where it is while it is waited for: whoever waits may go.
        let Some(opening) = &mut starts.opening else { return Ok(not_found()) };
        let (seat, end) = (opening.seat, opening.outcome(&process, self.yard.pace().opening).await);
        starts.opening = None;
        match end {
            Some(End::Answer(text)) => {
                let text = with_id(text, id);
                let Some(result) = result_in(&text) else {
                    process.leave(seat);
                    return Ok(json(StatusCode::OK, text));
                };
                process.set_welcome(result);
                *self.yard.openings() = Restarts::default();
                Ok(SessionId { boot, generation, seat }.welcome(text))
            }
            Some(End::Broken(why)) => {
                process.ended().await;
                if process.take_lived().is_some() {
                    self.yard.openings().failed(&why, Instant::now());
                }
                let was_ended = process.was_ended();
                let unavailable = Unavailable::broken(why);
                Err(if was_ended { Unopened::Otherwise(unavailable) } else { Unopened::Ended(unavailable) })
            }
            // Nothing else comes to a request whose sender hears nothing but the answer.
            Some(End::Over) | None => Ok(not_found()),
        }
    }

    /// The process, if it is of use.
    fn process(&self) -> Option<Arc<Process>> {
        self.current().process.clone().filter(|process| !process.is_gone())
    }

    /// The process and the place in it that a session id names.
    fn find(&self, session: Option<SessionId>) -> Option<(Arc<Process>, u64)> {
        let SessionId { boot, generation, seat } = session?;
        let Current { process, generation: current } = self.current().clone();
        let process = process.filter(|process| !process.is_gone())?;
        let is_ours = boot == self.yard.boot && generation == current;
        (is_ours && process.mail_of(seat).is_some()).then_some((process, seat))
    }

    /// The process, started if it is not running, and its generation.
    async fn running(&self, starts: &mut Restarts) -> Result<(Arc<Process>, u64), Unavailable> {
        let Current { process: old, generation } = self.current().clone();
        if let Some(old) = old {
            if !old.is_gone() {
                return Ok((old, generation));
            }
            // Two of them at a time might be in each other's way.
            old.ended().await;
            note_end(starts, &old);
        }
        let process = match self.yard.take_spare() {
            Some(process) => {
                process.rename(&self.name);
                process
            }
            None => {
                let wait = self.yard.wait(starts)?;
                tokio::time::sleep(wait).await;
                self.start()?
            }
        };
        let generation = self.yard.generations.fetch_add(1, Ordering::Relaxed) + 1;
        let before = std::mem::replace(
            &mut *self.current(),
            Current { process: Some(Arc::clone(&process)), generation },
        );
        let mut children = self.yard.children();
        children.remove(&before.generation);
        children.insert(generation, Weak::clone(&self.me));
        drop(children);
        Ok((process, generation))
    }

    fn start(&self) -> Result<Arc<Process>, Unavailable> {
        let yard = &self.yard;
        if yard.ending.is_cancelled() {
            return Err(Unavailable::now("programs are being ended".to_owned()));
        }
        let permit = Arc::clone(&yard.places).try_acquire_owned();
        let permit =
            permit.map_err(|_| Unavailable::now(format!("{} programs run already", yard.stdio.processes)))?;
        let started = Process::start(&yard.stdio, &self.name, &yard.watch, permit, yard.ending.child_token());
        started.map_err(|error| {
            let command = &yard.stdio.program.command;
            tracing::warn!(session = self.name, command, %error, "a program could not be started");
            let why = format!("the program {command:?} could not be started: {error}");
            yard.openings().failed(&why, Instant::now());
            Unavailable::broken(why)
        })
    }

    fn current(&self) -> std::sync::MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transport for Child {
    fn send(&self, request: Request<Bytes>) -> Boxed<'_, Result<Response<Body>, SendError>> {
        Box::pin(async move { Ok(self.serve(request).await) })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let generation = self.current().generation;
        self.yard.children().remove(&generation);
        if let Some(process) = self.process() {
            process.end("its session is over");
        }
    }
}

impl Opening {
    /// Waits for the answer. A process that has not given it in time never will, and those who come after need another.
    async fn outcome(&mut self, process: &Process, patience: Duration) -> Option<End> {
        let answer = self.flight.reader.first();
        if let Ok(end) = tokio::time::timeout_at(self.end, answer).await {
            return end;
        }
        process.expel(format!("it did not answer initialize within {patience:?}"));
        self.flight.reader.first().await
    }
}

/// Sends a request and answers with what comes back.
async fn call(
    process: &Arc<Process>,
    sender: Sender,
    message: &Message<'_>,
    id: &RequestId,
) -> Response<Body> {
    match process.begin(sender, message, id) {
        Ok(flight) => answered(flight).await,
        // It ended a moment ago, and what comes next finds that out.
        Err(WriteError::Gone) => not_found(),
        Err(error) => unwritten(&error, id),
    }
}

/// What comes back to a request.
async fn answered(mut flight: Flight) -> Response<Body> {
    match tokio::time::timeout(HEAD_PATIENCE, flight.reader.first()).await {
        Ok(Some(End::Answer(text))) => json(StatusCode::OK, text),
        _ => events(Source::Flight(flight)),
    }
}

/// Counts the end of a process, once.
fn note_end(starts: &mut Restarts, process: &Process) {
    if let Some(lived) = process.take_lived() {
        starts.ended(lived, Instant::now());
    }
}

/// The same answer to another request.
fn with_id(text: Bytes, id: &RequestId) -> Bytes {
    let Ok(json) = std::str::from_utf8(&text) else { return text };
    match splice::find(json, &["id"]) {
        Some(part) => splice::replace(json, &[(part, &id.to_string())]),
        None => text,
    }
}

/// The JSON text of the result, if the answer has one.
fn result_in(text: &Bytes) -> Option<Bytes> {
    let part = splice::find(std::str::from_utf8(text).ok()?, &["result"])?;
    Some(text.slice(part))
}

fn unwritten(error: &WriteError, id: &RequestId) -> Response<Body> {
    Unavailable::now(error.to_string()).response(id)
}

fn accepted(written: Result<(), WriteError>) -> Response<Body> {
    match written {
        Ok(()) => empty(StatusCode::ACCEPTED),
        Err(WriteError::Gone) => not_found(),
        Err(WriteError::Full | WriteError::TooManyCalls(_)) => empty(StatusCode::SERVICE_UNAVAILABLE),
    }
}
