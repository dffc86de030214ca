//! A call that whoever has it runs: in its own task, with a listener of its own.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use steadfast_wire::RequestId;
use steadfast_wire::members::Members;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use crate::call::CallOptions;
use crate::client::Life;
use crate::error::{Error, Wait};
use crate::link::unanswered;
use crate::message::Answer;
use crate::owner::{Boxed, Notification};
use crate::shared::{Mode, Shared};
use crate::{legacy, modern};

/// The call that has no bound in time: it ends when its owner or the server ends it.
const LISTEN: &str = "subscriptions/listen";

/// Hears what a server says of a call before it answers.
pub trait Listener: Send + Sync + 'static {
    /// Takes a notification that came on the call's own stream, which is not read on before the future is done.
    fn hear(&self, notification: Notification) -> Boxed<'_, ()>;

    /// Takes progress of the call that came on another stream, which does not wait.
    fn overhear(&self, notification: Notification);

    /// The server has begun to answer the call on a stream: it has not refused it.
    fn taken(&self) {}

    /// The server has ended the call's connection and wants to be asked again for the rest, which the client does.
    fn sent_away(&self) {}
}

/// A call that has its id and has not been sent. It keeps its client alive.
pub struct Errand {
    life: Arc<Life>,
    job: Job,
    timeout: Option<Duration>,
    permit: OwnedSemaphorePermit,
}

impl Errand {
    pub(crate) fn new(
        life: &Arc<Life>,
        method: &str,
        params: Option<&str>,
        options: CallOptions,
        listener: Arc<dyn Listener>,
    ) -> Result<Self, Error> {
        let shared = &life.shared;
        if shared.closing.is_cancelled() {
            return Err(Error::Closed);
        }
        let params = params.map(Params::new).transpose()?;
        let limit = shared.link.limits.calls;
        let permit =
            Arc::clone(&shared.calls).try_acquire_owned().map_err(|_| Error::TooManyCalls { limit })?;
        let timeout = match options.timeout {
            None if method == LISTEN => None,
            None => Some(shared.link.timeouts.call),
            some => some,
        };
        let (id, progress) = (shared.link.next_id(), options.progress);
        let job = Job { id, method: method.to_owned(), params, progress, listener };
        Ok(Self { life: Arc::clone(life), job, timeout, permit })
    }

    /// The id that the call has on the wire, at first: a stateless call that asks for input gets another for each round.
    pub fn id(&self) -> &RequestId {
        &self.job.id
    }

    /// Sees the call through to its one outcome. Cancelled by the token, it ends with [`Error::Cancelled`] and a server with
    /// sessions is told; dropped, it ends at once and nobody is.
    pub async fn run(self, cancelled: &CancellationToken) -> Result<Answer, Error> {
        let Self { life, job, timeout, permit } = self;
        let shared = &life.shared;
        let mut posted = None;
        let outcome = {
            let listener = job.progress.then(|| Arc::clone(&job.listener));
            let mut registered = shared.in_flight.enter(&job.id, listener);
            let work = async {
                match &shared.mode {
                    Mode::Session(sessions) => legacy::call(shared, sessions, &job, &mut posted).await,
                    Mode::Stateless(tools) => modern::call(shared, tools, &job).await,
                }
            };
            let mut work = pin!(work);
            let outcome = tokio::select! {
                biased;
                // It came in the response to another request. The response to this call may hold
                // the answer to that one, so it is read to its end, for a while.
                answer = registered.answer() => {
                    shared.answered.notify_waiters();
                    let _ = tokio::time::timeout(shared.link.timeouts.misrouted, &mut work).await;
                    Ok(answer)
                }
                outcome = &mut work => outcome,
                () = cancelled.cancelled() => Err(Error::Cancelled),
                () = shared.closing.cancelled() => Err(Error::Closed),
                () = elapsed(timeout) => Err(Error::Timeout(Wait::Call)),
            };
            let has_sessions = matches!(shared.mode, Mode::Session(_));
            match outcome {
                Err(error) if has_sessions && error == unanswered() && shared.in_flight.has_others() => {
                    let answer = registered.answer();
                    tokio::time::timeout(shared.link.timeouts.misrouted, answer).await.map_err(|_| error)
                }
                outcome => outcome,
            }
        };
        if let (Err(Error::Cancelled | Error::Timeout(_)), Some(session)) = (&outcome, posted) {
            forsake(shared, session, job.id, permit);
        }
        outcome
    }
}

/// Tells the server that nobody waits any more. The call keeps its place among those in flight until then.
fn forsake(shared: &Arc<Shared>, session: Arc<legacy::Session>, id: RequestId, permit: OwnedSemaphorePermit) {
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        legacy::tell_cancelled(&shared, &session, &id).await;
        drop(permit);
    });
}

impl fmt::Debug for Errand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Errand").field("job", &self.job).finish_non_exhaustive()
    }
}

/// What is to be called.
pub(crate) struct Job {
    pub(crate) id: RequestId,
    pub(crate) method: String,
    pub(crate) params: Option<Params>,
    pub(crate) progress: bool,
    pub(crate) listener: Arc<dyn Listener>,
}

impl Job {
    /// The parameters with our progress token, if progress is wanted. The token is the call's first id.
    pub(crate) fn params_with_token(&self) -> Option<Members> {
        let params = self.params.as_ref().map(Params::members);
        if !self.progress {
            return params;
        }
        let mut params = params.unwrap_or_default();
        let mut meta = params.get("_meta").and_then(|meta| Members::parse(meta).ok()).unwrap_or_default();
        meta.set("progressToken", &self.id.to_string());
        params.set("_meta", &meta.to_string());
        Some(params)
    }

    /// The same as text, which is the owner's own if nothing is to be added.
    pub(crate) fn params_text(&self) -> Option<std::borrow::Cow<'_, str>> {
        match &self.params {
            Some(params) if !self.progress => Some(params.0.as_str().into()),
            _ => self.params_with_token().map(|params| params.to_string().into()),
        }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("id", &self.id).field("method", &self.method).finish_non_exhaustive()
    }
}

/// The JSON text of an object.
#[derive(Clone, Debug)]
pub(crate) struct Params(String);

impl Params {
    fn new(text: &str) -> Result<Self, Error> {
        let is_json = serde_json::from_str::<&RawValue>(text).is_ok();
        if !is_json || !text.trim_ascii_start().starts_with('{') {
            return Err(Error::BadParams);
        }
        Ok(Self(text.to_owned()))
    }

    fn members(&self) -> Members {
        // It was looked at before.
        Members::parse(&self.0).unwrap_or_default()
    }
}

async fn elapsed(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
}
