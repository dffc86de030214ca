//! What answers calls: an in-process handler, an HTTP upstream, a child process.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use steadfast_session::command::Fence;
use steadfast_session::{Facts, NodeId, SessionId};
use steadfast_wire::rpc::ErrorObject;
use steadfast_wire::{RequestId, Revision};

use crate::calls::CallHandle;
use crate::exchange::Answer;
use crate::handle::SessionHandle;
use crate::stateless::ExchangeHandle;

pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A message of the client on its way to the backend.
#[derive(Clone, Debug)]
pub struct Incoming {
    pub method: String,
    /// The JSON text of `params`.
    pub params: Option<Bytes>,
    /// The HTTP request that carried it, without its body.
    pub http: Arc<http::request::Parts>,
}

/// Where a call is run, and under what conditions. Most are run where they come to, and nothing more is to be said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// Another node has to run it.
    pub at: Option<NodeId>,
    /// Done twice it does no more than done once. If the node that runs it dies, another one does it again, without the HTTP
    /// request that carried it.
    pub again: bool,
    /// Nothing is begun if this lease is somebody else's by then.
    pub fence: Option<Fence>,
}

/// A [`Route`], now or later.
pub enum Routing {
    Now(Route),
    Later(BoxFuture<Route>),
}

impl std::fmt::Debug for Routing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Now(route) => f.debug_tuple("Now").field(route).finish(),
            Self::Later(_) => f.write_str("Later"),
        }
    }
}

impl Routing {
    /// Here, and once.
    pub const HERE: Self = Self::Now(Route { at: None, again: false, fence: None });
}

/// A backend's answer to `initialize`.
#[derive(Clone, Debug)]
pub struct Welcome {
    /// The JSON text of the result.
    pub result: Bytes,
    pub revision: Revision,
}

/// Why a backend opens no session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unwelcome {
    /// `initialize` is answered with this.
    Error(ErrorObject),
    /// The client has to show other credentials first.
    Denied(Denial),
}

impl From<ErrorObject> for Unwelcome {
    fn from(error: ErrorObject) -> Self {
        Self::Error(error)
    }
}

/// A server that protects itself has not let the client in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    pub reason: Denied,
    /// What it wants to be shown, if it said so: the value of `WWW-Authenticate`.
    pub challenge: Option<String>,
    pub error: ErrorObject,
}

/// What is wrong with the credentials of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// They are missing, or not good: 401.
    Unauthenticated,
    /// They are not enough: 403.
    Forbidden,
}

/// What answers calls.
///
/// The engine calls it without holding any lock, gives each call exactly one answer whatever the backend does
/// (including panic), and tells it of each session's end. Nothing here has a default: a backend that wraps another must not
/// forget to pass something on.
pub trait Backend: Send + Sync + 'static {
    /// Answers `initialize` for the session that `facts` describe. The session exists only if this succeeds;
    /// `facts.revision` is what was negotiated, and the backend may settle for another.
    fn initialize(&self, facts: Arc<Facts>, request: Incoming) -> BoxFuture<Result<Welcome, Unwelcome>>;

    /// A session that this backend welcomed is in the store, and its client does not know of it yet. An error takes it back.
    fn opened(&self, session: SessionHandle) -> BoxFuture<Result<(), ErrorObject>>;

    /// This process serves a session that another one opened, and has never seen it before. The request that names it waits.
    fn restored(&self, session: SessionHandle) -> BoxFuture<()>;

    /// Says where a call is to be run. Asked only if processes share the store. One that another node has given to this one goes on
    /// to where it is to be run by then.
    fn route(&self, session: &SessionHandle, request: &Incoming) -> Routing;

    /// The route that it gave for a call of this session is not right any more: its fence is not. It is asked again.
    fn misrouted(&self, facts: &Arc<Facts>, fence: &Fence);

    /// Connections to these sessions are held here. Said from time to time, if processes share the store.
    fn attended(&self, sessions: Vec<SessionHandle>) -> BoxFuture<()>;

    /// This node is going: it takes no more requests, but for calls that others have given to it, and finishes what it has.
    fn leaving(&self) -> BoxFuture<()>;

    /// Answers a call with the JSON text of its result. If another node may have given it to this one, that is because of a
    /// [`Route`] of this backend's: then it says when it begins ([`CallHandle::start`]).
    fn call(&self, call: CallHandle, request: Incoming) -> BoxFuture<Result<Bytes, ErrorObject>>;

    /// Answers a request of a stateless revision. Cancelled, it should end soon; a subscription then ends with its result.
    fn serve(&self, exchange: ExchangeHandle, request: Incoming) -> BoxFuture<Answer>;

    /// Takes a notification.
    fn notify(&self, session: SessionHandle, notification: Incoming) -> BoxFuture<()>;

    /// A session has ended. Its calls have been cancelled, and what is left of it can be read for a while. It may be told more
    /// than once, and of sessions that this process had nothing to do with.
    fn closed(&self, session: &SessionHandle);

    /// A session has ended at another node, a while ago, and whoever ended it has done what there was to be done: nothing of it
    /// needs to be kept here.
    fn forgotten(&self, session: SessionId);
}

/// The JSON text of a response.
pub fn response(id: &RequestId, result: &Result<Bytes, ErrorObject>) -> Bytes {
    match result {
        Ok(result) => {
            let mut message = Vec::with_capacity(result.len() + 48);
            message.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
            message.extend_from_slice(id.to_string().as_bytes());
            message.extend_from_slice(br#","result":"#);
            message.extend_from_slice(result);
            message.push(b'}');
            message.into()
        }
        Err(error) => error.to_message(Some(id)).into(),
    }
}
