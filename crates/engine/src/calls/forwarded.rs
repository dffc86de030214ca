//! Runs calls that another node received.
//!
//! A call is *forwarded* when this node holds the lease it must run under, and *reassigned* when
//! its owner has died or drained. Either way the store holds the request. This node finds it when a
//! hint arrives or when it polls the store, then runs it like a local call. The answer is appended
//! to the call's stream, where the receiving node's cursor reads it.

use std::sync::Arc;

use steadfast_session::command::{Fence, Forward, Forwarded, Start, Started};
use steadfast_session::{CallNo, ForwardedCall, NodeId};
use steadfast_store::StoreExt;
use steadfast_wire::Reason;
use steadfast_wire::rpc::ErrorObject;
use tokio_util::sync::CancellationToken;

use crate::backend::IncomingMessage;
use crate::calls::begin::MAX_ROUTE_ATTEMPTS;
use crate::calls::stored_request::parse_stored;
use crate::calls::{BegunCall, CallHandle, Retry};
use crate::engine::Engine;
use crate::panics::catch_panic;
use crate::sessions::{LiveSession, RunningCall};

impl Engine {
    /// Runs the forwarded calls that the store holds for this node, except those that run already.
    pub(crate) fn run_forwarded(&self, session: &Arc<LiveSession>, forwarded: Vec<ForwardedCall>) {
        let deadline = self.now().plus(self.options().call_deadline);
        let primes = session.facts().revision.primes_streams();
        let new = session.add_forwarded(forwarded, |forwarded_call| RunningCall {
            id: forwarded_call.id.clone(),
            stream: forwarded_call.stream,
            deadline,
            resumable: primes && !forwarded_call.response_only,
            is_forwarded: true,
            is_reassignable: forwarded_call.reassignable,
            is_route_outdated: false,
            is_released: false,
            cancel: CancellationToken::new(),
        });
        for (forwarded_call, running) in new {
            let call = BegunCall::new(CallHandle::new(self.arc(), session, forwarded_call.call, running));
            tracing::info!(session = %session.id().short(), call = %forwarded_call.call, "running a forwarded call");
            let engine = self.arc();
            self.spawn(async move {
                match parse_stored(&forwarded_call.request) {
                    Some(request) => engine.route_and_run(call, request).await,
                    None => engine.refuse_forwarded(call).await,
                }
            });
        }
    }

    /// Asks for the route of a forwarded call, then runs it here or forwards it again. The route
    /// may have changed since the call was forwarded.
    async fn route_and_run(&self, mut call: BegunCall, request: IncomingMessage) {
        for _ in 0..MAX_ROUTE_ATTEMPTS {
            let Some((session, no)) = call.session_and_number() else { return };
            let handle = self.session_handle(&session);
            // Asking for the route lets the backend acquire the lease. A panic is logged; the call
            // will report the problem.
            let route = catch_panic(self.route(&handle, &request)).await.unwrap_or_default();
            match route.node.filter(|node| *node != self.node()) {
                None => match self.run_forwarded_call(call, request.clone()).await {
                    Some(outdated) => call = outdated,
                    None => return,
                },
                Some(to) => {
                    if self.forward_again(&session, no, to, route.fence).await {
                        // The other node answers it.
                        drop(call.into_parts());
                        return;
                    }
                }
            }
        }
        self.refuse_forwarded(call).await;
    }

    /// Forwards a call to a third node. Returns false if the store refuses that or cannot be
    /// reached.
    async fn forward_again(
        &self,
        session: &Arc<LiveSession>,
        call: CallNo,
        to: NodeId,
        fence: Option<Fence>,
    ) -> bool {
        let forward = Forward { call, node: self.node(), to, fence };
        match self.with_retry(|| self.store().run(session.id(), forward.clone(), self.now())).await {
            Ok(Forwarded::Forwarded | Forwarded::Gone | Forwarded::NoSession) => {
                tracing::info!(session = %session.id().short(), %call, "forwarded a call to another node");
                session.release_call(call);
                session.mark_awaits_remote_start();
                true
            }
            Ok(Forwarded::Fenced) => {
                forward
                    .fence
                    .iter()
                    .for_each(|fence| self.backend().invalidate_route(session.facts(), fence));
                false
            }
            Err(error) => {
                tracing::warn!(session = %session.id().short(), %error, "could not forward a call to another node");
                false
            }
        }
    }

    /// Records in the store that a forwarded call starts on this node. Fails if the call was ended
    /// or reassigned, or if the lease has changed hands.
    pub(crate) async fn start_forwarded(
        &self,
        session: &Arc<LiveSession>,
        no: CallNo,
        fence: Option<Fence>,
        retry: Retry,
    ) -> Result<(), ErrorObject> {
        let idempotent = retry == Retry::OnAnotherNode;
        let start = Start { call: no, node: self.node(), idempotent, fence };
        match self.with_retry(|| self.store().run(session.id(), start.clone(), self.now())).await {
            Ok(Started::Started) => {
                if !idempotent {
                    session.mark_started(no);
                }
                Ok(())
            }
            Ok(Started::Fenced) => {
                start.fence.iter().for_each(|fence| self.backend().invalidate_route(session.facts(), fence));
                session.mark_route_outdated(no);
                Err(Reason::NotStarted.error("The call is another node's to run."))
            }
            Ok(Started::Gone | Started::NoSession) => {
                // The task or node that ended the call has answered the client.
                session.stop_calls(&[no]);
                Err(Reason::Cancelled.error_retryable(true, "The call is not this node's any more."))
            }
            Err(error) => {
                tracing::warn!(session = %session.id().short(), %error, "could not record the start of a forwarded call");
                Err(not_forwarded())
            }
        }
    }

    /// Answers a forwarded call with an error: its stored request cannot be read, because another
    /// version of this program wrote it, or it was not possible to find its node.
    async fn refuse_forwarded(&self, call: BegunCall) {
        let Some((call, in_flight)) = call.into_parts() else { return };
        call.finish(not_forwarded().to_message(Some(call.id())).into()).await;
        drop(in_flight);
    }
}

fn not_forwarded() -> ErrorObject {
    Reason::NotStarted.error("The call could not be handed over.")
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use steadfast_session::{Facts, SessionId, StreamNo, Time};
    use steadfast_wire::RequestId;

    use super::*;

    /// A poll of the store and the end of a call happen concurrently.
    #[test]
    fn a_forwarded_call_that_ends_during_a_poll_does_not_run_again() {
        let facts = Facts {
            id: SessionId::from_random([1; SessionId::BYTES]),
            principal: steadfast_session::Principal::anonymous(),
            revision: steadfast_wire::Revision::LATEST_LEGACY,
            initialize: Bytes::new(),
            opened_at: Time(0),
        };
        let session = LiveSession::new(Arc::new(facts));
        let (call, id, stream) = (CallNo(3), RequestId::Number(1), StreamNo(1));
        let held = || {
            vec![ForwardedCall {
                call,
                id: id.clone(),
                stream,
                response_only: false,
                request: Bytes::new(),
                reassignable: true,
            }]
        };
        let take = |held| {
            let running = |forwarded_call: &ForwardedCall| RunningCall {
                id: forwarded_call.id.clone(),
                stream: forwarded_call.stream,
                deadline: Time(9),
                resumable: true,
                is_forwarded: true,
                is_reassignable: forwarded_call.reassignable,
                is_route_outdated: false,
                is_released: false,
                cancel: CancellationToken::new(),
            };
            session.add_forwarded(held, running).len()
        };
        assert_eq!((take(held()), take(held())), (1, 0));
        session.remove_call(call);
        assert_eq!(take(held()), 0, "the store was read before the call ended");
        assert_eq!(
            (take(Vec::new()), take(held())),
            (0, 1),
            "a call is forgotten when the store does not list it any more"
        );
        assert!(session.is_reassignable(call));
        session.release_call(call);
        assert_eq!(
            (take(held()), session.is_running(call)),
            (0, false),
            "a released call is not added again"
        );
    }
}
