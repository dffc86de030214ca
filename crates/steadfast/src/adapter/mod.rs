//! [`HandlerBackend`]: the backend that answers calls with an rmcp handler in this process.
//!
//! The backend calls the handler directly. It uses rmcp's service loop for one purpose: the
//! handler's `context.peer` needs a loop that receives its messages. Each call gets its own loop,
//! so a message that the handler sends through `context.peer` belongs to that call. An idle session
//! has no loop, no task and no channel.

mod call_tool;
mod handlers;
mod idempotent;
mod incoming;
pub(crate) mod outgoing;
mod parse_client_responses;
mod peer;
mod stateless;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use rmcp::model::{
    ClientRequest, InitializeRequestParams, ProtocolVersion, RequestId as RmcpId, RequestMetaObject,
    ServerResult,
};
use rmcp::service::{Peer, RequestContext, RoleServer, RunningService, Service};
use rmcp::{ErrorData, ServerHandler};
use steadfast_engine::backend::BoxFuture;
use steadfast_engine::{
    Answer, Backend, CallHandle, ExchangeHandle, Facts, Fence, IncomingMessage, InitializeError,
    InitializeOk, Principal, Routing, SessionHandle, SessionId,
};
use steadfast_wire::rpc::{self, ErrorObject};
use steadfast_wire::{RequestId, Revision};

use crate::call::Call;
use crate::request_state::Seal;
use crate::session::Session;
pub(crate) use handlers::HandlerScope;
use handlers::Handlers;
pub(crate) use idempotent::RetryPolicy;
use peer::{NoRequests, PeerTarget, connect_peer};
use stateless::Stateless;
pub(crate) use stateless::notifier::change;

/// The engine's backend for rmcp handlers.
pub(crate) struct HandlerBackend<H> {
    handlers: Arc<Handlers<H>>,
    messages: HandlerMessages,
    retry: RetryPolicy,
    stateless: Arc<Stateless>,
}

/// Whether a handler may send messages other than its answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HandlerMessages {
    /// It may: each call gets its own peer.
    #[default]
    Allowed,
    /// It may not: the calls of a session share one peer, and sending through it fails.
    Refused,
}

/// What the engine caches for this backend while a session is in use.
struct CachedClient {
    /// The client's `initialize` parameters, parsed.
    client: Result<InitializeRequestParams, ErrorObject>,
    /// The service loop of the peer that refuses all messages.
    refusing: OnceLock<RunningService<RoleServer, NoRequests>>,
}

impl CachedClient {
    fn new(facts: &Facts) -> Self {
        Self { client: peer_info(facts), refusing: OnceLock::new() }
    }

    fn refusing_peer(&self) -> Result<Peer<RoleServer>, ErrorObject> {
        if let Some(service_loop) = self.refusing.get() {
            return Ok(service_loop.peer().clone());
        }
        let client = self.client.clone()?;
        Ok(self.refusing.get_or_init(|| connect_peer(PeerTarget::Refuse, client, NoRequests)).peer().clone())
    }
}

impl<H: ServerHandler> HandlerBackend<H> {
    pub(crate) fn new(
        factory: Box<dyn Fn() -> H + Send + Sync>,
        scope: HandlerScope,
        messages: HandlerMessages,
        retry: RetryPolicy,
        seal: Seal,
    ) -> Self {
        let stateless = Arc::new(Stateless { messages, seal });
        Self { handlers: Arc::new(Handlers::new(factory, scope)), messages, retry, stateless }
    }
}

/// Keeps the service loop of a call's peer alive until the call ends.
enum PeerGuard {
    Own { _service_loop: RunningService<RoleServer, NoRequests> },
    Shared { _cached: Arc<CachedClient> },
}

impl<H> HandlerBackend<H> {
    /// Returns the context for a call of the handler. The peer in it works until the guard is
    /// dropped.
    fn context(
        &self,
        call: &CallHandle,
        meta: RequestMetaObject,
    ) -> Result<(PeerGuard, RequestContext<RoleServer>), ErrorObject> {
        let cached = call.cached(CachedClient::new);
        let (guard, peer) = match self.messages {
            HandlerMessages::Allowed => {
                let target = PeerTarget::Call(call.clone());
                let service_loop = connect_peer(target, cached.client.clone()?, NoRequests);
                let peer = service_loop.peer().clone();
                (PeerGuard::Own { _service_loop: service_loop }, peer)
            }
            HandlerMessages::Refused => {
                let peer = cached.refusing_peer()?;
                (PeerGuard::Shared { _cached: cached }, peer)
            }
        };
        let mut context = RequestContext::new(rmcp_id(call.id()), peer);
        context.ct = call.cancelled().clone();
        context.meta = meta;
        Ok((guard, context))
    }
}

impl<H: ServerHandler> Backend for HandlerBackend<H> {
    fn initialize(
        &self,
        facts: Arc<Facts>,
        request: IncomingMessage,
    ) -> BoxFuture<Result<InitializeOk, InitializeError>> {
        let handlers = Arc::clone(&self.handlers);
        Box::pin(async move {
            let handler = handlers.get(facts.id);
            let answer = initialize(&*handler, &facts, request).await;
            if answer.is_err() {
                handlers.close(facts.id);
            }
            Ok(answer?)
        })
    }

    fn call(&self, call: CallHandle, request: IncomingMessage) -> BoxFuture<Result<Bytes, ErrorObject>> {
        let handler = self.handlers.get(call.facts().id);
        let (request, meta, parts) = match incoming::request(request) {
            Ok(parsed) => parsed,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        let (guard, mut context) = match self.context(&call, meta) {
            Ok(context) => context,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        context.extensions.insert(parts);
        context.extensions.insert(Session::new(call.session()));
        context.extensions.insert(Call::new(call));
        // The guard moves into the future, so that the peer stops working when the call ends.
        match request {
            ClientRequest::CallToolRequest(request) if context.meta.protocol_version().is_none() => {
                Box::pin(async move {
                    let _guard = guard;
                    call_tool::call(&*handler, request.params, context).await
                })
            }
            request => Box::pin(async move {
                let _guard = guard;
                answer(&*handler, request, context).await
            }),
        }
    }

    fn route(&self, session: &SessionHandle, request: &IncomingMessage) -> Routing {
        match self.retry {
            RetryPolicy::Never => Routing::LOCAL,
            RetryPolicy::IdempotentCalls => {
                idempotent::route(&*self.handlers.get(session.facts().id), request)
            }
        }
    }

    /// Every node can run every call, so no call is routed to a node that cannot run it.
    fn invalidate_route(&self, _facts: &Arc<Facts>, _fence: &Fence) {}

    fn readers_present(&self, _sessions: Vec<SessionHandle>) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }

    fn draining(&self) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }

    fn serve(&self, exchange: ExchangeHandle, request: IncomingMessage) -> BoxFuture<Answer> {
        let (handlers, stateless) = (Arc::clone(&self.handlers), Arc::clone(&self.stateless));
        Box::pin(async move {
            let handler = handlers.for_stateless_request();
            stateless.answer(&*handler, exchange, request).await
        })
    }

    fn notify(&self, session: SessionHandle, notification: IncomingMessage) -> BoxFuture<()> {
        let handler = self.handlers.get(session.facts().id);
        Box::pin(async move {
            let Ok(client) = peer_info(session.facts()) else { return };
            let Some(notification) = incoming::notification(notification, Session::new(session.clone()))
            else {
                return;
            };
            peer::deliver(handler, session, client, notification).await;
        })
    }

    fn opened(&self, _session: SessionHandle) -> BoxFuture<Result<(), ErrorObject>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Does nothing: the first call creates the handler.
    fn restored(&self, _session: SessionHandle) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }

    fn closed(&self, session: &SessionHandle) {
        self.handlers.close(session.facts().id);
    }

    /// Never: the principal of this endpoint is all that identifies a caller.
    fn admits(
        &self,
        _session: SessionHandle,
        _principal: &Principal,
        _http: &http::request::Parts,
    ) -> BoxFuture<bool> {
        Box::pin(async { false })
    }

    fn ended_elsewhere(&self, session: SessionId) {
        self.handlers.close(session);
    }
}

/// Runs `initialize`. The session does not exist yet, so the handler cannot send messages.
async fn initialize<H: ServerHandler>(
    handler: &H,
    facts: &Arc<Facts>,
    request: IncomingMessage,
) -> Result<InitializeOk, ErrorObject> {
    let mut client = peer_info(facts)?;
    client.protocol_version = protocol_version(facts.revision);
    let service_loop = connect_peer(PeerTarget::Refuse, client.clone(), NoRequests);
    let mut context = RequestContext::new(RmcpId::Number(0), service_loop.peer().clone());
    context.extensions.insert(incoming::parts(request.http));
    let request = ClientRequest::InitializeRequest(rmcp::model::InitializeRequest::new(client));
    let result = handler.handle_request(request, context).await.map_err(error_object)?;
    let ServerResult::InitializeResult(mut result) = result else {
        return Err(ErrorObject::new(
            rpc::INTERNAL_ERROR,
            "The handler did not answer `initialize` with an InitializeResult.",
        ));
    };
    // A handler may support fewer revisions than this crate, but it cannot choose one without
    // sessions.
    let revision = Revision::parse(result.protocol_version.as_str()).filter(|revision| !revision.is_modern());
    let revision = revision.unwrap_or(facts.revision);
    result.protocol_version = protocol_version(revision);
    Ok(InitializeOk { result: to_json(&result)?, revision })
}

/// Runs a request that is not a tool call.
async fn answer<H: ServerHandler>(
    handler: &H,
    request: ClientRequest,
    context: RequestContext<RoleServer>,
) -> Result<Bytes, ErrorObject> {
    match handler.handle_request(request, context).await {
        Ok(result) => to_json(&result),
        Err(error) => Err(error_object(error)),
    }
}

pub(crate) fn to_json(result: &impl serde::Serialize) -> Result<Bytes, ErrorObject> {
    serde_json::to_vec(result).map(Bytes::from).map_err(|error| {
        ErrorObject::new(
            rpc::INTERNAL_ERROR,
            format!("The handler's result does not serialise to JSON: {error}"),
        )
    })
}

/// Converts rmcp's error into the workspace's error type.
pub(crate) fn error_object(error: ErrorData) -> ErrorObject {
    let data = error.data.map(|data| data.to_string());
    ErrorObject { code: error.code.0, message: error.message.into_owned(), data }
}

/// Returns the client's `initialize` parameters, with the negotiated revision.
fn peer_info(facts: &Facts) -> Result<InitializeRequestParams, ErrorObject> {
    let mut info: InitializeRequestParams = serde_json::from_slice(&facts.initialize).map_err(|error| {
        ErrorObject::new(rpc::INVALID_PARAMS, format!("The parameters of `initialize` are invalid: {error}"))
    })?;
    info.protocol_version = protocol_version(facts.revision);
    Ok(info)
}

fn protocol_version(revision: Revision) -> ProtocolVersion {
    match revision {
        Revision::V2025_03_26 => ProtocolVersion::V_2025_03_26,
        Revision::V2025_06_18 => ProtocolVersion::V_2025_06_18,
        Revision::V2025_11_25 => ProtocolVersion::V_2025_11_25,
        Revision::V2026_07_28 => ProtocolVersion::V_2026_07_28,
    }
}

fn rmcp_id(id: &RequestId) -> RmcpId {
    match id {
        RequestId::Number(n) => RmcpId::Number(*n),
        RequestId::Text(text) => RmcpId::String(text.as_ref().into()),
    }
}
