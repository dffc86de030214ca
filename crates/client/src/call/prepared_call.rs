//! [`PreparedCall`]: a call that has an id and has not been sent. The application runs it in a task
//! of its choice.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use steadfast_wire::RequestId;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::spec::{CallSpec, Params};
use super::{CallObserver, CallOptions};
use crate::client::Inner;
use crate::error::{Error, Wait};
use crate::peer::{Answer, no_answer_in_response};
use crate::shared::{Mode, Shared};
use crate::{legacy, modern};

/// The only method without a default timeout: it ends when the application or the server ends it.
const LISTEN: &str = "subscriptions/listen";

/// A call that has an id and has not been sent. The client stays open while this value exists,
/// unless the application closes the client.
pub struct PreparedCall {
    inner: Arc<Inner>,
    spec: CallSpec,
    timeout: Option<Duration>,
    permit: OwnedSemaphorePermit,
}

impl PreparedCall {
    pub(crate) fn new(
        inner: &Arc<Inner>,
        method: &str,
        params: Option<&str>,
        options: CallOptions,
        observer: Arc<dyn CallObserver>,
    ) -> Result<Self, Error> {
        let shared = &inner.shared;
        if shared.closing.is_cancelled() {
            return Err(Error::Closed);
        }
        let params = params.map(Params::new).transpose()?;
        let limit = shared.peer.limits.calls;
        let permit =
            Arc::clone(&shared.calls).try_acquire_owned().map_err(|_| Error::TooManyCalls { limit })?;
        let timeout = match options.timeout {
            None if method != LISTEN => Some(shared.peer.timeouts.call),
            timeout => timeout,
        };
        let (id, progress) = (shared.peer.next_id(), options.progress);
        let spec = CallSpec { id, method: method.to_owned(), params, progress, observer };
        Ok(Self { inner: Arc::clone(inner), spec, timeout, permit })
    }

    /// The id of the call's first request. If the server requires input, a stateless call is sent
    /// again with a new id.
    pub fn id(&self) -> &RequestId {
        &self.spec.id
    }

    /// Runs the call and returns its outcome. The call ends with [`Error::Cancelled`] when
    /// `cancelled` is cancelled, and with [`Error::Timeout`] after its timeout. In both cases a
    /// server with sessions that was sent the request receives `notifications/cancelled`. Dropping
    /// the future ends the call without telling the server.
    pub async fn run(self, cancelled: &CancellationToken) -> Result<Answer, Error> {
        let Self { inner, spec, timeout, permit } = self;
        let shared = &inner.shared;
        // `legacy::call` stores the session here once it has sent the request.
        let mut sent_in_session = None;
        let outcome = {
            let observer = spec.progress.then(|| Arc::clone(&spec.observer));
            let mut registered = shared.in_flight.register(&spec.id, observer);
            let work = async {
                match &shared.mode {
                    Mode::Session(sessions) => {
                        legacy::call(shared, sessions, &spec, &mut sent_in_session).await
                    }
                    Mode::Stateless(annotations) => modern::call(shared, annotations, &spec).await,
                }
            };
            let mut work = pin!(work);
            let outcome = tokio::select! {
                biased;
                // The answer arrived in the response to another call, whose answer may be in this
                // call's response. So the client reads this call's response for a limited time.
                answer = registered.misrouted_answer() => {
                    // `legacy::call` notifies the waiting tasks of other answers.
                    shared.call_answered.notify_waiters();
                    let _ = tokio::time::timeout(shared.peer.timeouts.misrouted, &mut work).await;
                    Ok(answer)
                }
                outcome = &mut work => outcome,
                () = cancelled.cancelled() => Err(Error::Cancelled),
                () = shared.closing.cancelled() => Err(Error::Closed),
                () = sleep_or_forever(timeout) => Err(Error::Timeout(Wait::Call)),
            };
            let has_sessions = matches!(shared.mode, Mode::Session(_));
            match outcome {
                // Another call's response may hold the answer that is missing in this one.
                Err(error)
                    if has_sessions && error == no_answer_in_response() && shared.in_flight.has_others() =>
                {
                    let answer = registered.misrouted_answer();
                    tokio::time::timeout(shared.peer.timeouts.misrouted, answer).await.map_err(|_| error)
                }
                outcome => outcome,
            }
        };
        if let (Err(Error::Cancelled | Error::Timeout(_)), Some(session)) = (&outcome, sent_in_session) {
            cancel_in_background(shared, session, spec.id, permit);
        }
        outcome
    }
}

/// Sends `notifications/cancelled` in the background. Keeps the permit until then, so that
/// cancelled calls count toward [`Limits::calls`](crate::Limits::calls).
fn cancel_in_background(
    shared: &Arc<Shared>,
    session: Arc<legacy::Session>,
    id: RequestId,
    permit: OwnedSemaphorePermit,
) {
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        legacy::send_cancelled(&shared, &session, &id).await;
        drop(permit);
    });
}

impl fmt::Debug for PreparedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedCall").field("spec", &self.spec).finish_non_exhaustive()
    }
}

async fn sleep_or_forever(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
}
