//! What a client wants of its owner.

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

/// A future that knows nothing of its type.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Whoever has a client: answers the server's asks, and hears what belongs to no call.
pub trait Owner: Send + Sync + 'static {
    /// Answers an ask with the JSON text of its result. Several run at a time ([`Order`](crate::Order)). The future is
    /// dropped when the server cancels the ask, when its session is lost, and when a stateless call that wanted it ends.
    fn answer(&self, ask: Ask) -> Boxed<'_, Result<Bytes, ErrorObject>> {
        let error = ErrorObject::new(METHOD_NOT_FOUND, format!("{} is not supported here", ask.method));
        Box::pin(async move { Err(error) })
    }

    /// Hears a notification that belongs to no call. Its stream is not read on before this returns.
    fn notification(&self, notification: Notification) -> Boxed<'_, ()> {
        drop(notification);
        Box::pin(async {})
    }

    /// Decides what comes after a session that the server has forgotten.
    fn lost(&self, session: OpenSession) -> Boxed<'_, Succession> {
        drop(session);
        Box::pin(async { Succession::Renew })
    }

    /// Hears that the server had forgotten the session `lost` and that there is this new one. What it gives is called in it
    /// before anything else: what the server was told before and has to know again. Asks of the old session have been dropped.
    ///
    /// If somebody else was first, it says what comes instead. Then the server is told to forget the new one.
    fn renewed(&self, lost: OpenSession, session: OpenSession) -> Boxed<'_, Result<Vec<Repeat>, Succession>> {
        drop((lost, session));
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Hears what became of the client itself. Must not block.
    fn event(&self, event: Event) {
        drop(event);
    }
}

/// Has the owner hear a notification. If it panics, that is its own affair and no stream's.
pub(crate) async fn tell(owner: &Arc<dyn Owner>, notification: Notification) {
    // The set aborts its task when it is dropped, unlike the handle of a task.
    let mut work = JoinSet::new();
    let owner = Arc::clone(owner);
    work.spawn(async move { owner.notification(notification).await });
    if let Some(Err(error)) = work.join_next().await {
        tracing::error!(%error, "the owner of a client failed to hear a notification");
    }
}

/// An owner that only calls.
impl Owner for () {}

/// A request of the server: sampling, elicitation, roots, or what it pleases. Pings are answered for the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    pub method: String,
    /// The JSON text of its parameters.
    pub params: Option<Bytes>,
    /// The call on whose stream it came, or that asked for input.
    pub call: Option<RequestId>,
}

/// What comes after a session that the server has forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Succession {
    /// A new one.
    Renew,
    /// One that somebody else has opened in its place.
    Adopt(OpenSession),
    /// None here: the owner has a session elsewhere by now. Calls end with [`Error::SessionLost`], and can be made there.
    Moved,
    /// None: whoever wanted it has gone. Calls end with [`Error::Closed`].
    End,
}

/// A request that is made again in a new session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeat {
    pub method: String,
    /// The JSON text of its parameters.
    pub params: Option<String>,
}

/// A message of the server that wants no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    pub method: String,
    /// The JSON text of its parameters.
    pub params: Option<Bytes>,
}

/// What became of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The server had forgotten the session, and there is a new one. Subscriptions and the log level are gone.
    SessionRenewed,
    /// The standalone stream is open, for the first time or again.
    StandaloneOpen,
    /// The standalone stream was opened afresh, although it was open before, here or at whoever had the session: messages may be
    /// missing.
    Gap,
    /// The standalone stream cannot be had. It is tried again when there is another session, or other headers are sent; if the
    /// reason may pass by itself also when the server answers a call, and now and then ([`Backoff::seldom`](crate::Backoff::seldom)).
    /// Each time that it fails, it is told again.
    StandaloneLost(Error),
    /// The server offers no standalone stream in this session.
    StandaloneAbsent,
    /// The server seems to mix up the answers to calls that run in parallel in its session. Told each time that it shows.
    RaceSuspected(RaceSign),
    /// The answer to an ask did not reach the server, which may wait for it. `call`: on whose stream it was asked.
    AnswerLost { ask: RequestId, call: Option<RequestId>, error: Error },
}

/// What shows that a server mixes up the answers to parallel calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RaceSign {
    /// The answer to a call came in the response to another request.
    AnswerToAnotherCall,
    /// The response to a call was empty or held no answer to it.
    NoAnswer,
}

impl fmt::Display for RaceSign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AnswerToAnotherCall => "the answer to a call came in the response to another request",
            Self::NoAnswer => "the response to a call was empty or held no answer to it",
        })
    }
}
