//! Taking calls: the calls of one POST begin together or not at all.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use steadfast_session::command::{Begin, Begun, Fence, Position};
use steadfast_session::{CallNo, NodeId, Request, StreamNo};
use steadfast_store::{StoreError, StoreExt};
use steadfast_wire::RequestId;
use tokio_util::sync::CancellationToken;

use crate::admission::Counted;
use crate::backend::{Incoming, Route, Routing};
use crate::calls::{BegunCall, CallHandle, catch_panic};
use crate::engine::{Engine, Posted};
use crate::errands;
use crate::handle::SessionHandle;
use crate::live::{LiveSession, Running};
use crate::reconcile::not_started;
use crate::refusal::Refusal;
use crate::tail::Tail;

/// How often a command whose outcome is unknown is sent again before the client is told to.
const BEGIN_ATTEMPTS: usize = 3;

/// How often the backend is asked where to run calls, if it turns out to have been wrong.
pub(crate) const ROUTES: usize = 3;

/// Who runs the calls of a POST, and what is kept of them.
#[derive(Clone, Debug, Default)]
struct Plan {
    owner: Option<NodeId>,
    requests: Vec<Option<Request>>,
    fence: Option<Fence>,
}

impl Engine {
    /// Takes the calls of one POST: all or none. `requests` are what they ask for, as far as that is known here.
    pub async fn begin(
        &self,
        session: &Arc<LiveSession>,
        ids: Vec<RequestId>,
        requests: &[Incoming],
        answer_only: bool,
    ) -> Result<Posted, Refusal> {
        let entered = self.admission.enter()?;
        self.begin_entered(session, ids, requests, answer_only, entered).await
    }

    /// The same for whoever has been let in.
    pub(crate) async fn begin_entered(
        &self,
        session: &Arc<LiveSession>,
        ids: Vec<RequestId>,
        requests: &[Incoming],
        answer_only: bool,
        entered: Counted,
    ) -> Result<Posted, Refusal> {
        if !self.shares_its_store() {
            return self.begin_as(session, ids, Plan::default(), answer_only, entered).await;
        }
        let entered = Arc::new(entered);
        for _ in 0..ROUTES {
            let plan = self.plan(session, requests).await;
            let fence = plan.fence.clone();
            let begun = self.begin_as(session, ids.clone(), plan, answer_only, Arc::clone(&entered)).await;
            match (begun, fence) {
                (Err(Refusal::Fenced), Some(fence)) => self.backend().misrouted(session.facts(), &fence),
                (begun, _) => return begun,
            }
        }
        Err(Refusal::Fenced)
    }

    async fn begin_as(
        &self,
        session: &Arc<LiveSession>,
        ids: Vec<RequestId>,
        plan: Plan,
        answer_only: bool,
        entered: impl Send + 'static,
    ) -> Result<Posted, Refusal> {
        let (engine, session) = (self.arc(), Arc::clone(session));
        self.to_the_end(async move {
            let posted = engine.begin_now(&session, ids, plan, answer_only).await;
            // What has begun counts for itself.
            drop(entered);
            posted
        })
        .await
    }

    async fn plan(&self, session: &Arc<LiveSession>, requests: &[Incoming]) -> Plan {
        let handle = self.handle(session);
        let mut routes = Vec::with_capacity(requests.len());
        for request in requests {
            // If the backend panics, its call will show what is the matter.
            let route = catch_panic(self.route(&handle, request)).await;
            routes.push(route.unwrap_or_default());
        }
        // All calls of a session that have to be run by one node have to be run by the same.
        let owner = routes.iter().find_map(|route| route.at).filter(|node| *node != self.node());
        let fence = routes.iter().find_map(|route| route.fence.clone());
        let keep = |(route, request): (Route, &Incoming)| {
            // Until the node that it is given to has begun, another one may do it, whatever it is.
            let again = route.again || owner.is_some();
            again.then(|| Request { text: errands::text_of(request), again })
        };
        Plan { owner, fence, requests: routes.into_iter().zip(requests).map(keep).collect() }
    }

    /// Where the backend wants a request to go.
    pub(crate) async fn route(&self, session: &SessionHandle, request: &Incoming) -> Route {
        match self.backend().route(session, request) {
            Routing::Now(route) => route,
            Routing::Later(route) => route.await,
        }
    }

    async fn begin_now(
        &self,
        session: &Arc<LiveSession>,
        ids: Vec<RequestId>,
        plan: Plan,
        answer_only: bool,
    ) -> Result<Posted, Refusal> {
        let delivered = session.beginning();
        let is_ours = plan.owner.is_none();
        let again: Vec<bool> =
            plan.requests.iter().map(|kept| kept.as_ref().is_some_and(|kept| kept.again)).collect();
        let resumable = !answer_only && session.facts().revision.primes_streams();
        let begun = self.begin_in_store(session, ids.clone(), plan, answer_only, delivered.clone()).await;
        if !is_ours {
            session.await_others();
        }
        let (stream, first, connection) = match begun {
            Ok(Begun::Begun { stream, first, connection }) => (stream, first, connection),
            Ok(Begun::Taken { stream }) => {
                // This node was taken for dead, or cut off, before it knew of them.
                session.not_begun(Vec::new());
                let only_chance_of = if resumable { &[][..] } else { &ids };
                let at = Position::After { stream, seq: 0 };
                let cursor = self.attach_now(session, at, only_chance_of).await?;
                return Ok(Posted { cursor, calls: Vec::new() });
            }
            other => {
                let heard = !matches!(other, Err(_) | Ok(Begun::Fenced));
                session.not_begun(if heard { Vec::new() } else { delivered });
                return Err(match other {
                    Ok(Begun::Duplicate(id)) => Refusal::Duplicate(id),
                    Ok(Begun::OverLimit(limit)) => Refusal::OverLimit(limit),
                    Ok(Begun::Fenced) => Refusal::Fenced,
                    Ok(_) => self.lost(session),
                    // Another node may run it: nobody should try again because of this.
                    Err(StoreError::Unknown(_)) if !is_ours => Refusal::InDoubt,
                    Err(error) => error.into(),
                });
            }
        };
        let tail = Arc::new(Tail::of_new_stream(connection, self.options().tail_bytes));
        let deadline = self.now().plus(self.options().call_deadline);
        if !is_ours && !resumable {
            tail.is_only_chance_of(ids.clone());
        }
        let running = |(i, id): (usize, RequestId)| {
            let again = resumable && again.get(i).copied().unwrap_or_default();
            let running = Running {
                id,
                stream,
                deadline,
                resumable,
                given: false,
                again,
                is_misrouted: false,
                is_released: false,
                cancel: CancellationToken::new(),
            };
            (CallNo(first.0 + i as u64), running)
        };
        // Those of another node are its own affair.
        let calls: Vec<_> = ids.into_iter().enumerate().filter(|_| is_ours).map(running).collect();
        session.begun(stream, connection, &tail, &calls);
        let calls = calls
            .into_iter()
            .map(|(no, running)| BegunCall::new(CallHandle::new(self.arc(), session, no, running)))
            .collect();
        let cursor = self.cursor(session, tail, stream, connection, 0);
        Ok(Posted { cursor, calls })
    }

    /// An unknown outcome is resolved by asking again, which is safe because the command has a name.
    async fn begin_in_store(
        &self,
        session: &Arc<LiveSession>,
        ids: Vec<RequestId>,
        plan: Plan,
        answer_only: bool,
        delivered: Vec<StreamNo>,
    ) -> Result<Begun, StoreError> {
        let (node, attempt) = (self.node(), self.attempts.fetch_add(1, Ordering::Relaxed));
        let mut begin = Begin {
            ids,
            node,
            owner: plan.owner.unwrap_or(node),
            requests: plan.requests,
            attempt,
            again: false,
            recall: false,
            duplicates: self.options().duplicates,
            answer_only,
            delivered,
            fence: plan.fence,
        };
        for _ in 0..BEGIN_ATTEMPTS {
            match self.store().run(session.id(), begin.clone(), self.now()).await {
                Err(StoreError::Unknown(_)) => begin.again = true,
                // The one before may have happened.
                Err(_) if begin.again => {}
                outcome => return outcome,
            }
        }
        let (engine, session) = (self.arc(), Arc::clone(session));
        self.spawn(async move { engine.end_unknown_calls(&session, begin).await });
        Err(StoreError::Unknown("it did not say so when asked again, either".into()))
    }

    /// A begin whose outcome stayed unknown. Its client was told so, and whatever has begun is ended as soon as the store says
    /// what that is. What has not begun must not begin any more: another node might run it.
    pub(crate) async fn end_unknown_calls(&self, session: &Arc<LiveSession>, begin: Begin) {
        let begin = Begin { recall: true, ..begin };
        let begun = self.patiently(|| self.store().run(session.id(), begin.clone(), self.now())).await;
        if begun.is_err() {
            session.suspect();
        }
        let Ok(Begun::Begun { first, .. }) = begun else { return };
        for (no, id) in (first.0..).map(CallNo).zip(&begin.ids) {
            let end = || self.store().run(session.id(), not_started(no, id), self.now());
            if self.patiently(end).await.is_err() {
                session.suspect();
            }
        }
    }
}
