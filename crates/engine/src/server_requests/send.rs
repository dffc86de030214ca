//! Sends queued server requests to the store, and withdraws them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use steadfast_session::command::{Fence, OpenServerRequest, ServerRequestOpened, Target, Withdraw};
use steadfast_session::{Limit, Outcome, ServerRequestNo, Step, Time};
use steadfast_store::{StoreError, StoreExt};

use super::queue::{Bounds, LocalNo, QueuedServerRequest};
use crate::engine::Engine;
use crate::options::ServerRequestOrder;
use crate::refusal::Refusal;
use crate::server_requests::ServerRequestHandle;
use crate::sessions::LiveSession;

/// Delay before sending again to a store that was full because of requests of other nodes.
const STORE_FULL_RETRY: Duration = Duration::from_millis(50);

impl Engine {
    /// Enqueues a server request. If the bounds allow, it has been sent to the store when this
    /// function returns, so it keeps its position among the messages of its call.
    pub(crate) fn send_request(
        &self,
        session: &Arc<LiveSession>,
        target: Target,
        rest: Bytes,
        fence: Option<Fence>,
    ) -> ServerRequestHandle {
        let deadline = self.now().plus(self.options().server_request_deadline);
        let enqueued = session.server_requests().enqueue(
            QueuedServerRequest { target, rest, fence },
            deadline,
            self.server_request_bounds(),
        );
        if enqueued.is_ok() {
            self.send_server_requests(session);
        }
        ServerRequestHandle::new(self.arc(), session, enqueued)
    }

    fn server_request_bounds(&self) -> Bounds {
        let in_flight = match self.options().server_request_order {
            ServerRequestOrder::Concurrent => self.store().rules().limits.server_requests,
            ServerRequestOrder::Strict => self.store().rules().limits.server_requests.min(1),
        };
        Bounds { in_flight, queued: self.options().queued_server_requests }
    }

    /// Sends as many queued requests to the store as the bounds allow.
    pub(crate) fn send_server_requests(&self, session: &Arc<LiveSession>) {
        // The lock covers taking a request from the queue and sending it, which keeps the order.
        let _sending = session.sending_server_requests();
        loop {
            let next = session.server_requests().start_next(self.server_request_bounds());
            let Some((local, QueuedServerRequest { target, rest, fence })) = next else { return };
            let open = OpenServerRequest { target, owner: self.node(), rest, fence };
            let mut reply = self.store().apply(session.id(), open.into_command(), self.now());
            // A store in memory is ready at once and needs no task.
            match Pin::new(&mut reply).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(outcome) => self.request_sent(session, local, outcome),
                Poll::Pending => {
                    let (engine, session) = (self.arc(), Arc::clone(session));
                    self.spawn(async move {
                        engine.request_sent(&session, local, reply.await);
                        engine.send_server_requests(&session);
                    });
                }
            }
        }
    }

    fn request_sent(&self, session: &Arc<LiveSession>, local: LocalNo, outcome: Result<Outcome, StoreError>) {
        let corrupt = || StoreError::Corrupt("the outcome belongs to another command".into());
        let outcome = outcome.and_then(|outcome| OpenServerRequest::outcome(outcome).ok_or_else(corrupt));
        let why = match outcome {
            Ok(ServerRequestOpened::Opened { server_request, .. }) => {
                let abandoned = session.server_requests().opened(local, server_request);
                return abandoned
                    .into_iter()
                    .for_each(|server_request| self.withdraw_later(session, local, server_request));
            }
            Ok(ServerRequestOpened::OverLimit(Limit::ServerRequests)) => {
                if session.server_requests().store_full(local) {
                    self.resume_sending_later(session);
                }
                return;
            }
            Ok(ServerRequestOpened::OverLimit(limit)) => Refusal::OverLimit(limit),
            Ok(ServerRequestOpened::CallGone) => Refusal::ServerRequestWithdrawn,
            Ok(ServerRequestOpened::Fenced) => Refusal::Fenced,
            Ok(ServerRequestOpened::NoSession) => {
                // In a task, because the backend may run destructors of user code here and the
                // caller may hold a lock.
                let (engine, session) = (self.arc(), Arc::clone(session));
                self.spawn(async move { drop(engine.session_gone(&session)) });
                Refusal::ServerRequestWithdrawn
            }
            Err(error) => {
                if let StoreError::Unknown(_) = error {
                    // The request may be open in the store under a number that this node does not
                    // know.
                    session.mark_needs_reconcile();
                }
                error.into()
            }
        };
        session.server_requests().open_failed(local, why);
    }

    fn resume_sending_later(&self, session: &Arc<LiveSession>) {
        let (engine, session) = (self.arc(), Arc::clone(session));
        self.spawn(async move {
            tokio::time::sleep(STORE_FULL_RETRY).await;
            session.server_requests().resume_sending();
            engine.send_server_requests(&session);
        });
    }

    /// Withdraws a request whose waiter was dropped.
    pub(crate) fn abandon_server_request(&self, session: &Arc<LiveSession>, local: LocalNo) {
        let open = session.server_requests().abandon(local);
        if let Some(server_request) = open {
            self.withdraw_later(session, local, server_request);
        }
    }

    /// Withdraws a request from the client. It counts as in flight until the store has withdrawn
    /// it.
    fn withdraw_later(&self, session: &Arc<LiveSession>, local: LocalNo, server_request: ServerRequestNo) {
        let (engine, session) = (self.arc(), Arc::clone(session));
        self.spawn(async move {
            let withdraw = || engine.store().run(session.id(), Withdraw { server_request }, engine.now());
            if let Err(error) = engine.with_retry(withdraw).await {
                tracing::warn!(session = %session.id().short(), %server_request, %error, "could not withdraw a server request; the session is marked for reconciliation");
                session.mark_needs_reconcile();
            }
            session.server_requests().withdrawal_done(local);
            engine.send_server_requests(&session);
        });
    }

    /// Ends the wait of every waiter whose deadline has passed.
    pub(crate) fn expire_server_requests(&self, session: &Arc<LiveSession>, now: Time) {
        let open = session.server_requests().expire(now);
        for (local, server_request) in open {
            self.withdraw_later(session, local, server_request);
        }
    }
}
