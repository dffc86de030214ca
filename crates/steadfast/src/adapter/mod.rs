//! An rmcp handler as a backend.
//!
//! rmcp's own service loop is used for one thing only: it is what a `Peer` talks to. Each call gets a loop of its
//! own, so whatever the handler sends through `context.peer` belongs to that call and to no other, and the
//! handler itself is called directly. An idle session has no loop, no task and no channel.

mod answered;
mod exchange_line;
mod incoming;
mod listen;
pub(crate) mod outgoing;
mod peer;
mod repeats;
mod results;
mod stateless;
mod tools;
mod values;

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
    Answer, Backend, CallHandle, ExchangeHandle, Facts, Fence, Incoming, Routing, SessionHandle, SessionId,
    Unwelcome, Welcome,
};
use steadfast_wire::rpc::{self, ErrorObject};
use steadfast_wire::{RequestId, Revision};

use crate::call::Call;
use crate::seal::Seal;
use crate::session::Session;
pub(crate) use exchange_line::change;
use peer::{Line, Mute, open_line};
pub(crate) use repeats::Repeats;
use stateless::Stateless;
pub(crate) use values::{HandlerPer, Values};

/// Answers calls with rmcp handlers.
pub(crate) struct HandlerBackend<H> {
    values: Arc<Values<H>>,
    speech: Speech,
    repeats: Repeats,
    stateless: Arc<Stateless>,
}

/// Whether handlers send anything but their answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Speech {
    /// They may: each call gets a line of its own.
    #[default]
    Free,
    /// They do not: the calls of a session share a line that leads nowhere.
    Silent,
}

/// What is kept of a session while it is busy.
struct Busy {
    client: Result<InitializeRequestParams, ErrorObject>,
    mute: OnceLock<RunningService<RoleServer, Mute>>,
}

impl Busy {
    fn new(facts: &Facts) -> Self {
        Self { client: peer_info(facts), mute: OnceLock::new() }
    }

    /// A peer that leads nowhere.
    fn mute_peer(&self) -> Result<Peer<RoleServer>, ErrorObject> {
        if let Some(line) = self.mute.get() {
            return Ok(line.peer().clone());
        }
        let client = self.client.clone()?;
        Ok(self.mute.get_or_init(|| open_line(Line::Nowhere, client, Mute)).peer().clone())
    }
}

impl<H: ServerHandler> HandlerBackend<H> {
    pub(crate) fn new(
        factory: Box<dyn Fn() -> H + Send + Sync>,
        per: HandlerPer,
        speech: Speech,
        repeats: Repeats,
        seal: Seal,
    ) -> Self {
        let stateless = Arc::new(Stateless { speech, seal });
        Self { values: Arc::new(Values::new(factory, per)), speech, repeats, stateless }
    }
}

/// What a call's peer is connected to: a line of its own, or the one that all calls of a silent handler share.
enum CallLine {
    Own { _line: RunningService<RoleServer, Mute> },
    Shared { _busy: Arc<Busy> },
}

impl<H> HandlerBackend<H> {
    fn open(
        &self,
        call: &CallHandle,
        meta: RequestMetaObject,
    ) -> Result<(CallLine, RequestContext<RoleServer>), ErrorObject> {
        let busy = call.keepsake(Busy::new);
        let (line, peer) = match self.speech {
            Speech::Free => {
                let line = open_line(Line::Call(call.clone()), busy.client.clone()?, Mute);
                let peer = line.peer().clone();
                (CallLine::Own { _line: line }, peer)
            }
            Speech::Silent => {
                let peer = busy.mute_peer()?;
                (CallLine::Shared { _busy: busy }, peer)
            }
        };
        let mut context = RequestContext::new(rmcp_id(call.id()), peer);
        context.ct = call.cancelled().clone();
        context.meta = meta;
        Ok((line, context))
    }
}

impl<H: ServerHandler> Backend for HandlerBackend<H> {
    fn initialize(&self, facts: Arc<Facts>, request: Incoming) -> BoxFuture<Result<Welcome, Unwelcome>> {
        let values = Arc::clone(&self.values);
        Box::pin(async move {
            let handler = values.get(facts.id);
            let answer = initialize(&*handler, &facts, request).await;
            if answer.is_err() {
                values.close(facts.id);
            }
            Ok(answer?)
        })
    }

    fn call(&self, call: CallHandle, request: Incoming) -> BoxFuture<Result<Bytes, ErrorObject>> {
        let handler = self.values.get(call.facts().id);
        let (request, meta, parts) = match incoming::request(request) {
            Ok(read) => read,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        let (line, mut context) = match self.open(&call, meta) {
            Ok(opened) => opened,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        context.extensions.insert(parts);
        context.extensions.insert(Session::new(call.session()));
        context.extensions.insert(Call::new(call));
        // The line is cut when the call is done.
        match request {
            ClientRequest::CallToolRequest(request) if context.meta.protocol_version().is_none() => {
                Box::pin(async move {
                    let _line = line;
                    tools::call(&*handler, request.params, context).await
                })
            }
            request => Box::pin(async move {
                let _line = line;
                answer(&*handler, request, context).await
            }),
        }
    }

    fn route(&self, session: &SessionHandle, request: &Incoming) -> Routing {
        match self.repeats {
            Repeats::Nothing => Routing::HERE,
            Repeats::WhatIsSafe => repeats::route(&*self.values.get(session.facts().id), request),
        }
    }

    /// Any node runs any call.
    fn misrouted(&self, _facts: &Arc<Facts>, _fence: &Fence) {}

    fn attended(&self, _sessions: Vec<SessionHandle>) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }

    fn leaving(&self) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }

    fn serve(&self, exchange: ExchangeHandle, request: Incoming) -> BoxFuture<Answer> {
        let (values, stateless) = (Arc::clone(&self.values), Arc::clone(&self.stateless));
        Box::pin(async move {
            let handler = values.for_one_request();
            stateless.answer(&*handler, exchange, request).await
        })
    }

    fn notify(&self, session: SessionHandle, notification: Incoming) -> BoxFuture<()> {
        let handler = self.values.get(session.facts().id);
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

    /// A handler is made when it is needed.
    fn restored(&self, _session: SessionHandle) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }

    fn closed(&self, session: &SessionHandle) {
        self.values.close(session.facts().id);
    }

    fn forgotten(&self, session: SessionId) {
        self.values.close(session);
    }
}

async fn initialize<H: ServerHandler>(
    handler: &H,
    facts: &Arc<Facts>,
    request: Incoming,
) -> Result<Welcome, ErrorObject> {
    let mut client = peer_info(facts)?;
    client.protocol_version = protocol_version(facts.revision);
    let line = open_line(Line::Nowhere, client.clone(), Mute);
    let mut context = RequestContext::new(RmcpId::Number(0), line.peer().clone());
    context.extensions.insert(incoming::parts(request.http));
    let request = ClientRequest::InitializeRequest(rmcp::model::InitializeRequest::new(client));
    let result = handler.handle_request(request, context).await.map_err(error_object)?;
    let ServerResult::InitializeResult(mut result) = result else {
        return Err(ErrorObject::new(
            rpc::INTERNAL_ERROR,
            "The handler answered initialize with something else.",
        ));
    };
    // A handler may know fewer revisions than we do, but it cannot choose one that has no sessions.
    let revision = Revision::parse(result.protocol_version.as_str()).filter(|revision| !revision.is_modern());
    let revision = revision.unwrap_or(facts.revision);
    result.protocol_version = protocol_version(revision);
    Ok(Welcome { result: to_json(&result)?, revision })
}

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
        ErrorObject::new(rpc::INTERNAL_ERROR, format!("The handler's result is not JSON: {error}"))
    })
}

pub(crate) fn error_object(error: ErrorData) -> ErrorObject {
    let data = error.data.map(|data| data.to_string());
    ErrorObject { code: error.code.0, message: error.message.into_owned(), data }
}

/// What the client said of itself, with the revision that was agreed.
fn peer_info(facts: &Facts) -> Result<InitializeRequestParams, ErrorObject> {
    let mut info: InitializeRequestParams = serde_json::from_slice(&facts.initialize).map_err(|error| {
        ErrorObject::new(
            rpc::INVALID_PARAMS,
            format!("The parameters of `initialize` are not right: {error}"),
        )
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
