//! Begins calls: the calls of one POST begin together or not at all, on this node or on the node
//! that the backend's route names.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use steadfast_session::command::{Begin, BeginMode, Begun, Duplicates, Fence, Position};
use steadfast_session::{CallNo, NodeId, Request, StreamNo};
use steadfast_store::{StoreError, StoreExt};
use steadfast_wire::RequestId;
use tokio_util::sync::CancellationToken;

use crate::backend::{IncomingMessage, Route, Routing};
use crate::calls::stored_request::stored_text;
use crate::calls::{BegunCall, CallHandle, not_started};
use crate::delivery::{Cursor, Tail};
use crate::engine::Engine;
use crate::panics::catch_panic;
use crate::refusal::Refusal;
use crate::sessions::{LiveSession, RunningCall, SessionHandle};
use crate::shutdown::InFlightGuard;

/// How often a begin command with an unknown outcome is sent before the client gets an error.
const MAX_BEGIN_ATTEMPTS: usize = 3;

/// How often the backend is asked for a route whose fence turns out to be outdated.
pub(crate) const MAX_ROUTE_ATTEMPTS: usize = 3;

/// How the client of a POST receives the answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFormat {
    /// As an SSE stream, which the client can resume if its revision allows that.
    EventStream,
    /// As one JSON body. The client cannot resume, so it gets the answers of its connection or
    /// none.
    Json,
}

/// Which node runs the calls of a POST, under which lease, and which requests are stored for a
/// retry.
#[derive(Clone, Debug, Default)]
struct Plan {
    /// The node that runs the calls. `None` means this node.
    owner: Option<NodeId>,
    requests: Vec<Option<Request>>,
    fence: Option<Fence>,
    /// What happens to an id that is in flight already.
    duplicates: Duplicates,
}

/// The calls of one POST, which the store has begun.
#[derive(Debug)]
pub struct BegunCalls {
    /// Reads the answers.
    pub cursor: Cursor,
    /// One for each id, in order; run them with [`Engine::run`]. Empty if another node runs the
    /// calls.
    pub calls: Vec<BegunCall>,
}

impl Engine {
    /// Begins the calls of one POST, all or none. `requests` are their messages, as far as this
    /// node may have to route them. `duplicates` says what happens to an id that is in flight.
    pub async fn begin(
        &self,
        session: &Arc<LiveSession>,
        ids: Vec<RequestId>,
        requests: &[IncomingMessage],
        format: ResponseFormat,
        duplicates: Duplicates,
    ) -> Result<BegunCalls, Refusal> {
        let admitted = self.admission.admit()?;
        self.begin_admitted(session, ids, requests, format, duplicates, admitted).await
    }

    /// Begins calls of a request that was admitted already.
    pub(crate) async fn begin_admitted(
        &self,
        session: &Arc<LiveSession>,
        ids: Vec<RequestId>,
        requests: &[IncomingMessage],
        format: ResponseFormat,
        duplicates: Duplicates,
        admitted: InFlightGuard,
    ) -> Result<BegunCalls, Refusal> {
        if !self.shares_store() {
            let plan = Plan { duplicates, ..Plan::default() };
            return self.begin_detached(session, ids, plan, format, admitted).await;
        }
        let admitted = Arc::new(admitted);
        for _ in 0..MAX_ROUTE_ATTEMPTS {
            let plan = Plan { duplicates, ..self.plan(session, requests).await };
            let fence = plan.fence.clone();
            let begun = self.begin_detached(session, ids.clone(), plan, format, Arc::clone(&admitted)).await;
            match (begun, fence) {
                (Err(Refusal::Fenced), Some(fence)) => {
                    self.backend().invalidate_route(session.facts(), &fence)
                }
                (begun, _) => return begun,
            }
        }
        Err(Refusal::Fenced)
    }

    async fn begin_detached(
        &self,
        session: &Arc<LiveSession>,
        ids: Vec<RequestId>,
        plan: Plan,
        format: ResponseFormat,
        admitted: impl Send + 'static,
    ) -> Result<BegunCalls, Refusal> {
        let (engine, session) = (self.arc(), Arc::clone(session));
        self.run_detached(async move {
            let begun = engine.begin_planned(&session, ids, plan, format).await;
            // Calls that have begun are counted separately.
            drop(admitted);
            begun
        })
        .await
    }

    async fn plan(&self, session: &Arc<LiveSession>, requests: &[IncomingMessage]) -> Plan {
        let handle = self.session_handle(session);
        let mut routes = Vec::with_capacity(requests.len());
        for request in requests {
            // A panic is logged. The call will report the problem to the client.
            let route = catch_panic(self.route(&handle, request)).await;
            routes.push(route.unwrap_or_default());
        }
        // If the calls of a session are bound to a node, they are all bound to one and the same
        // node.
        let owner = routes.iter().find_map(|route| route.node).filter(|node| *node != self.node());
        let fence = routes.iter().find_map(|route| route.fence.clone());
        let request_to_store = |(route, request): (Route, &IncomingMessage)| {
            // Until the node that receives a forwarded call has started it, any node may run it. So
            // its request is stored even if it is not idempotent.
            let is_reassignable = route.idempotent || owner.is_some();
            is_reassignable.then(|| Request { text: stored_text(request), reassignable: true })
        };
        let requests = routes.into_iter().zip(requests).map(request_to_store).collect();
        Plan { owner, fence, requests, ..Plan::default() }
    }

    /// Asks the backend which node runs a request.
    pub(crate) async fn route(&self, session: &SessionHandle, request: &IncomingMessage) -> Route {
        match self.backend().route(session, request) {
            Routing::Ready(route) => route,
            Routing::Pending(route) => route.await,
        }
    }

    async fn begin_planned(
        &self,
        session: &Arc<LiveSession>,
        ids: Vec<RequestId>,
        plan: Plan,
        format: ResponseFormat,
    ) -> Result<BegunCalls, Refusal> {
        let delivered = session.begin_started();
        let runs_here = plan.owner.is_none();
        let reassignable: Vec<bool> =
            plan.requests.iter().map(|kept| kept.as_ref().is_some_and(|kept| kept.reassignable)).collect();
        let resumable = format == ResponseFormat::EventStream && session.facts().revision.primes_streams();
        let begun = self.begin_in_store(session, ids.clone(), plan, format, delivered.clone()).await;
        if !runs_here {
            session.mark_awaits_remote_start();
        }
        let (stream, first, connection) = match begun {
            Ok(Begun::Begun { stream, first, connection }) => (stream, first, connection),
            Ok(Begun::AlreadyBegun { stream }) => {
                // Other nodes took this node for dead, or it was cut off from the store, before it
                // heard that the begin had succeeded. The calls run elsewhere; this connection
                // reads their stream.
                session.begin_failed(Vec::new());
                let unresumable_calls = if resumable { &[][..] } else { &ids };
                let at = Position::After { stream, seq: 0 };
                let cursor = self.attach_admitted(session, at, unresumable_calls).await?;
                return Ok(BegunCalls { cursor, calls: Vec::new() });
            }
            other => {
                // Otherwise the next begin command reports the delivered streams again.
                let is_recorded = !matches!(other, Err(_) | Ok(Begun::Fenced));
                session.begin_failed(if is_recorded { Vec::new() } else { delivered });
                return Err(match other {
                    Ok(Begun::Duplicate(id)) => Refusal::Duplicate(id),
                    Ok(Begun::OverLimit(limit)) => Refusal::OverLimit(limit),
                    Ok(Begun::Fenced) => Refusal::Fenced,
                    Ok(_) => self.session_gone(session),
                    // Another node may run the call, so the client must not retry because of this
                    // error.
                    Err(StoreError::Unknown(_)) if !runs_here => Refusal::InDoubt,
                    Err(error) => error.into(),
                });
            }
        };
        let tail = Arc::new(Tail::of_new_stream(connection, self.options().tail_bytes));
        let deadline = self.now().plus(self.options().call_deadline);
        if !runs_here && !resumable {
            tail.set_unresumable_calls(ids.clone());
        }
        let running = |(i, id): (usize, RequestId)| {
            let is_reassignable = resumable && reassignable.get(i).copied().unwrap_or_default();
            let running = RunningCall {
                id,
                stream,
                deadline,
                resumable,
                is_forwarded: false,
                is_reassignable,
                is_route_outdated: false,
                is_released: false,
                cancel: CancellationToken::new(),
            };
            (CallNo(first.0 + i as u64), running)
        };
        // The node that owns the calls tracks them.
        let calls: Vec<_> = ids.into_iter().enumerate().filter(|_| runs_here).map(running).collect();
        session.begin_succeeded(stream, connection, &tail, &calls);
        let calls = calls
            .into_iter()
            .map(|(no, running)| BegunCall::new(CallHandle::new(self.arc(), session, no, running)))
            .collect();
        let cursor = self.cursor(session, tail, stream, connection, 0);
        Ok(BegunCalls { cursor, calls })
    }

    /// Sends the begin command and repeats it while its outcome is unknown. Repeating is safe,
    /// because the command carries its name (node and attempt).
    async fn begin_in_store(
        &self,
        session: &Arc<LiveSession>,
        ids: Vec<RequestId>,
        plan: Plan,
        format: ResponseFormat,
        delivered: Vec<StreamNo>,
    ) -> Result<Begun, StoreError> {
        let (node, attempt) = (self.node(), self.attempts.fetch_add(1, Ordering::Relaxed));
        let mut begin = Begin {
            ids,
            node,
            owner: plan.owner.unwrap_or(node),
            requests: plan.requests,
            attempt,
            mode: BeginMode::First,
            duplicates: plan.duplicates,
            response_only: format == ResponseFormat::Json,
            delivered,
            fence: plan.fence,
        };
        let over_limit = |begun: &Begun| match begun {
            Begun::OverLimit(limit) => Some(*limit),
            _ => None,
        };
        for _ in 0..MAX_BEGIN_ATTEMPTS {
            let run = || self.store().run(session.id(), begin.clone(), self.now());
            match self.with_eviction(session.facts(), run, over_limit).await {
                Err(StoreError::Unknown(_)) => begin.mode = BeginMode::Retry,
                // An earlier attempt may have taken effect.
                Err(_) if begin.mode == BeginMode::Retry => {}
                outcome => return outcome,
            }
        }
        let (engine, session) = (self.arc(), Arc::clone(session));
        self.spawn(async move { engine.end_unknown_calls(&session, begin).await });
        Err(StoreError::Unknown("the outcome of the begin command is unknown after retries".into()))
    }

    /// Ends calls whose begin command has an unknown outcome, after the client was told so. The
    /// repeated command recalls the begin: it reports the calls that have begun, and prevents the
    /// begin if it has not happened yet, because another node could run the calls.
    pub(crate) async fn end_unknown_calls(&self, session: &Arc<LiveSession>, begin: Begin) {
        let begin = Begin { mode: BeginMode::Recall, ..begin };
        let begun = self.with_retry(|| self.store().run(session.id(), begin.clone(), self.now())).await;
        if begun.is_err() {
            session.mark_needs_reconcile();
        }
        let Ok(Begun::Begun { first, .. }) = begun else { return };
        for (no, id) in (first.0..).map(CallNo).zip(&begin.ids) {
            let end = || self.store().run(session.id(), not_started(no, id), self.now());
            if self.with_retry(end).await.is_err() {
                session.mark_needs_reconcile();
            }
        }
    }
}
