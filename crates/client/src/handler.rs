//! What an application provides to its client: answers to server requests, and callbacks for
//! notifications, lost sessions and events.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use steadfast_wire::RequestId;
use steadfast_wire::rpc::{ErrorObject, METHOD_NOT_FOUND};
use tokio::task::JoinSet;

use crate::Error;
use crate::client::OpenSession;

/// A boxed future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Callbacks of a client. Each method has a default.
pub trait ClientHandler: Send + Sync + 'static {
    /// Answers a server request with the JSON text of its result. Several requests may run at a
    /// time ([`ServerRequestOrder`](crate::ServerRequestOrder)). The client drops the future when
    /// the server cancels the request, when the session is lost, or when the stateless call that
    /// requires the input ends.
    fn on_server_request(&self, server_request: ServerRequest) -> BoxFuture<'_, Result<Bytes, ErrorObject>> {
        let error =
            ErrorObject::new(METHOD_NOT_FOUND, format!("{} is not supported here", server_request.method));
        Box::pin(async move { Err(error) })
    }

    /// Receives a notification that belongs to no call. The client reads no further from that
    /// stream until the future completes.
    fn on_notification(&self, notification: Notification) -> BoxFuture<'_, ()> {
        drop(notification);
        Box::pin(async {})
    }

    /// Decides how to replace a session that the server has lost.
    fn on_session_lost(&self, session: OpenSession) -> BoxFuture<'_, LostSessionAction> {
        drop(session);
        Box::pin(async { LostSessionAction::Renew })
    }

    /// Called after the client has opened `session` in place of `lost`. Server requests of the old
    /// session have been dropped. Returns the requests that the client sends in the new session
    /// before anything else, to restore state that the server has lost.
    ///
    /// Returns an error if another process has replaced the session first. The error says what to
    /// use instead, and the client deletes the session that it opened.
    fn on_session_renewed(
        &self,
        lost: OpenSession,
        session: OpenSession,
    ) -> BoxFuture<'_, Result<Vec<ReplayRequest>, LostSessionAction>> {
        drop((lost, session));
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Receives news of the session and its standalone stream. Must not block.
    fn on_event(&self, event: Event) {
        drop(event);
    }
}

/// Passes a notification to the handler. A panic of the handler is logged and does not end the
/// stream.
pub(crate) async fn deliver_notification(handler: &Arc<dyn ClientHandler>, notification: Notification) {
    // A `JoinSet` aborts the task when this future is dropped. A `JoinHandle` would let it run.
    let mut work = JoinSet::new();
    let handler = Arc::clone(handler);
    work.spawn(async move { handler.on_notification(notification).await });
    if let Some(Err(error)) = work.join_next().await {
        tracing::error!(%error, "the client's handler panicked on a notification");
    }
}

/// A handler for applications that only make calls.
impl ClientHandler for () {}

/// A request from the server: sampling, elicitation, roots or an extension. The client answers
/// pings itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerRequest {
    pub method: String,
    /// The JSON text of its parameters.
    pub params: Option<Bytes>,
    /// The call on whose stream the request came, or the call that requires input. `None` if the
    /// request came on the standalone stream.
    pub call: Option<RequestId>,
}

/// How to replace a session that the server has lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LostSessionAction {
    /// Open a new session.
    Renew,
    /// Use this session, which another process has opened.
    Adopt(OpenSession),
    /// Do not replace it here: the application has moved to a session elsewhere. Calls end with
    /// [`Error::SessionLost`], and the application can repeat them there.
    Moved,
    /// Do not replace it: the session is no longer needed. Calls end with [`Error::Closed`].
    End,
}

/// A request that the client sends again in a new session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayRequest {
    pub method: String,
    /// The JSON text of its parameters.
    pub params: Option<String>,
}

/// A message from the server that expects no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    pub method: String,
    /// The JSON text of its parameters.
    pub params: Option<Bytes>,
}

/// News of a client's session and its standalone stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The server had lost the session, and the client uses another one. Subscriptions and the log
    /// level are lost, unless the handler has had them restored.
    SessionRenewed,
    /// The standalone stream is open, for the first time or again.
    StandaloneOpen,
    /// The client opened the standalone stream again and could not resume it, because it has no
    /// event id. Messages may be missing. Also sent for a session that another process has opened.
    Gap,
    /// The standalone stream cannot be opened. The client tries again when the session is replaced
    /// or the headers change. If the error is transient, the client also tries again when the
    /// server answers a call, and every
    /// [`Backoff::standalone_retry`](crate::Backoff::standalone_retry). The event is repeated for
    /// each failure. After an event over the size limit the client does not try again.
    StandaloneLost(Error),
    /// The server offers no standalone stream in this session.
    StandaloneAbsent,
    /// The server seems to mix up answers to concurrent calls of its session. The event is repeated
    /// for each symptom.
    MisroutingSuspected(Misrouting),
    /// The answer to a server request did not reach the server, which may still wait for it. `call`
    /// is the call on whose stream the request came.
    AnswerLost { server_request: RequestId, call: Option<RequestId>, error: Error },
}

/// A symptom of a server that mixes up the answers to concurrent calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misrouting {
    /// The answer to a call came in the response to another request.
    AnswerInOtherResponse,
    /// The response to a call was empty or held no answer to it.
    ResponseWithoutAnswer,
}

impl fmt::Display for Misrouting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AnswerInOtherResponse => "the answer to a call came in the response to another request",
            Self::ResponseWithoutAnswer => "the response to a call was empty or held no answer to it",
        })
    }
}
