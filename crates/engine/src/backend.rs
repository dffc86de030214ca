//! The interface to what answers calls: an in-process handler, an HTTP upstream or a child process.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use steadfast_session::command::Fence;
use steadfast_session::{Facts, NodeId, Principal, SessionId};
use steadfast_wire::rpc::ErrorObject;
use steadfast_wire::{RequestId, Revision};

use crate::calls::CallHandle;
use crate::sessions::SessionHandle;
use crate::stateless::{Answer, ExchangeHandle};

/// A boxed future.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A request or notification from the client, as the backend receives it.
#[derive(Clone, Debug)]
pub struct IncomingMessage {
    pub method: String,
    /// The JSON text of `params`.
    pub params: Option<Bytes>,
    /// The HTTP request that carried the message, without its body. Empty if another node received
    /// the message: headers are not stored, because they may contain secrets.
    pub http: Arc<http::request::Parts>,
}

/// Which node runs a call, and under which conditions. By default the receiving node runs it,
/// without a fence, and no node repeats it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// The node that must run the call. `None` means the node that received it.
    pub node: Option<NodeId>,
    /// The call is safe to execute twice. If the node that runs it dies, another node runs it
    /// again, without the HTTP request that carried it.
    pub idempotent: bool,
    /// The lease that this route depends on. The store refuses to begin the call if the lease has
    /// changed; then the engine calls [`Backend::invalidate_route`] and asks for a new route.
    pub fence: Option<Fence>,
}

/// A [`Route`] that is known at once or that has to be looked up.
pub enum Routing {
    Ready(Route),
    Pending(BoxFuture<Route>),
}

impl std::fmt::Debug for Routing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ready(route) => f.debug_tuple("Ready").field(route).finish(),
            Self::Pending(_) => f.write_str("Pending"),
        }
    }
}

impl Routing {
    /// The receiving node runs the call, and no other node repeats it.
    pub const LOCAL: Self = Self::Ready(Route { node: None, idempotent: false, fence: None });
}

/// A backend's successful answer to `initialize`.
#[derive(Clone, Debug)]
pub struct InitializeOk {
    /// The JSON text of the result.
    pub result: Bytes,
    /// The protocol revision of the session.
    pub revision: Revision,
}

/// Why a backend did not open a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitializeError {
    /// The engine answers `initialize` with this error.
    Error(ErrorObject),
    /// The client must present other credentials. The HTTP layer answers with 401 or 403.
    Denied(Denial),
}

impl From<ErrorObject> for InitializeError {
    fn from(error: ErrorObject) -> Self {
        Self::Error(error)
    }
}

/// A server rejected the credentials that the client presented.
///
/// The HTTP layer turns a denial into the status and the `WWW-Authenticate` header of the response,
/// so that the client can authenticate and retry. That works only until the first byte of the
/// response was sent. After that the client gets `error` as the answer to its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Decides the HTTP status.
    pub reason: Denied,
    /// The value of `WWW-Authenticate`, if the server sent one.
    pub challenge: Option<String>,
    /// The answer to the request, for a client whose response has begun.
    pub error: ErrorObject,
}

/// What is wrong with the credentials of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// Missing or invalid credentials: 401.
    Unauthenticated,
    /// Valid credentials with insufficient rights: 403.
    Forbidden,
}

/// Answers calls and stateless requests of clients, and processes their notifications.
///
/// # What the engine guarantees
/// - It calls no method while it holds a lock.
/// - Each call gets exactly one answer, even if the backend panics or hangs, unless the client
///   cancels the call.
/// - For each session it calls [`initialize`](Self::initialize) first, then
///   [`opened`](Self::opened), then any number of the others, and [`closed`](Self::closed) when the
///   session has ended. A node that did not open the session calls [`restored`](Self::restored) in
///   place of the first two.
/// - Notifications of one session arrive one at a time, in the order in which the client sent them.
///   Calls run concurrently.
///
/// # What the engine expects
/// - Methods that return a future do their work in the future. The others return at once: they run
///   on the path of a request.
/// - A future may be dropped after it was cancelled and [`Options::wind_down`](crate::Options) has
///   passed.
///
/// To write a backend, implement `initialize` and `call`; let `route` return [`Routing::LOCAL`],
/// and let the other methods do nothing. `route`, `invalidate_route` and `readers_present` matter
/// only to a backend that must run the calls of a session on one particular node. No method has a
/// default implementation, so that a backend that wraps another one cannot forget to forward a
/// method.
pub trait Backend: Send + Sync + 'static {
    /// Answers `initialize` for the session that `facts` describe.
    ///
    /// The session is opened only if this method succeeds. `facts.revision` is the negotiated
    /// revision; the backend may return another one. If the session cannot be opened after that,
    /// the engine calls [`closed`](Self::closed).
    fn initialize(
        &self,
        facts: Arc<Facts>,
        request: IncomingMessage,
    ) -> BoxFuture<Result<InitializeOk, InitializeError>>;

    /// The store has opened the session, and its client does not know the session id yet. On error
    /// the engine closes the session and answers `initialize` with the error.
    fn opened(&self, session: SessionHandle) -> BoxFuture<Result<(), ErrorObject>>;

    /// This node serves a session for the first time that another node opened. The request that
    /// names the session waits until the future completes.
    fn restored(&self, session: SessionHandle) -> BoxFuture<()>;

    /// Decides which node runs a call.
    ///
    /// The engine asks only if several nodes share the store. It asks again for a call that another
    /// node forwarded to this one: if the route names a third node, the call is forwarded there.
    fn route(&self, session: &SessionHandle, request: &IncomingMessage) -> Routing;

    /// The store refused a route of this backend because the lease that `fence` names has changed.
    /// The backend must drop its cached copy of the lease; the engine calls [`route`](Self::route)
    /// again.
    fn invalidate_route(&self, facts: &Arc<Facts>, fence: &Fence);

    /// Lists the sessions that have connections on this node. The sweeper calls this periodically
    /// if several nodes share the store, one call at a time.
    fn readers_present(&self, sessions: Vec<SessionHandle>) -> BoxFuture<()>;

    /// This node has started to drain. It accepts no more requests, except calls that other nodes
    /// forward to it, and finishes the calls that it runs.
    fn draining(&self) -> BoxFuture<()>;

    /// Answers a call with the JSON text of its result.
    ///
    /// Other nodes forward calls to this node only if [`route`](Self::route) told them to. Such a
    /// backend must call [`CallHandle::start`] before it executes anything that must not happen
    /// twice, and must not execute the call if that fails.
    fn call(&self, call: CallHandle, request: IncomingMessage) -> BoxFuture<Result<Bytes, ErrorObject>>;

    /// Answers a request of the stateless revision. When it is cancelled, it should end soon; a
    /// cancelled subscription ends with its result.
    fn serve(&self, exchange: ExchangeHandle, request: IncomingMessage) -> BoxFuture<Answer>;

    /// Decides whether a request may use a session although its principal is not that of the
    /// session: the client may have got another token since it opened the session.
    ///
    /// The engine asks before it gives the request anything of the session. A backend must return
    /// true only if it has verified that the credentials in `http` belong to the subject that
    /// opened the session.
    fn admits(
        &self,
        session: SessionHandle,
        principal: &Principal,
        http: &http::request::Parts,
    ) -> BoxFuture<bool>;

    /// Processes a notification of the client.
    fn notify(&self, session: SessionHandle, notification: IncomingMessage) -> BoxFuture<()>;

    /// A session has ended, and its calls were cancelled. Its state can be read for a while
    /// ([`SessionHandle::get_after_close`]). The engine may call this more than once for a session,
    /// and for sessions that this node never served.
    fn closed(&self, session: &SessionHandle);

    /// A session ended at another node some time ago. That node has released what the session used;
    /// this node must drop what it caches for it.
    fn ended_elsewhere(&self, session: SessionId);
}

/// Returns the JSON-RPC message with the answer to the request `id`.
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
