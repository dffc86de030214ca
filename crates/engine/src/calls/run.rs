//! Runs calls on this node: drives the backend's future and stores its one answer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use steadfast_session::CallNo;
use steadfast_session::command::Finish;
use steadfast_wire::Reason;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::backend::{IncomingMessage, response};
use crate::calls::forwarded_notifications::is_forwarded_notification;
use crate::calls::{CallHandle, KeyedRequest, Retry, not_started};
use crate::engine::Engine;
use crate::panics::catch_panic;
use crate::run_futures::unless_cancelled;
use crate::sessions::LiveSession;
use crate::shutdown::{InFlightCount, InFlightGuard};

/// A call that the store has begun and that does not run yet. If it is dropped, the call is
/// answered with an error: its client disconnected, or another part of the POST was refused.
#[derive(Debug)]
pub struct BegunCall(Option<(CallHandle, InFlightGuard)>);

impl BegunCall {
    pub(crate) fn new(call: CallHandle) -> Self {
        let in_flight = InFlightCount::increment(&call.engine.admission.calls);
        Self(Some((call, in_flight)))
    }

    pub(crate) fn cancelled(&self) -> CancellationToken {
        self.0.as_ref().map(|(call, _)| call.running.cancel.clone()).unwrap_or_default()
    }

    pub(crate) fn session_and_number(&self) -> Option<(Arc<LiveSession>, CallNo)> {
        self.0.as_ref().map(|(call, _)| (Arc::clone(&call.session), call.no))
    }

    /// Takes the call out. The caller must answer it, and hold the guard until then.
    pub(crate) fn into_parts(mut self) -> Option<(CallHandle, InFlightGuard)> {
        self.0.take()
    }
}

impl Drop for BegunCall {
    fn drop(&mut self) {
        let Some((CallHandle { engine, session, no, running }, in_flight)) = self.0.take() else { return };
        engine.clone().spawn(async move {
            let Finish { payload, .. } = not_started(no, &running.id);
            engine.finish(&session, no, payload).await;
            drop(in_flight);
        });
    }
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Drives a call that has started. If it is dropped, the call continues in its own task.
#[must_use = "dropping the driver moves the call to its own task"]
pub struct CallDriver(Option<(Arc<Engine>, Work)>);

impl CallDriver {
    /// Polls the call. The caller need not wait for the end: the answer arrives on the call's
    /// stream.
    pub fn poll(&mut self, context: &mut Context<'_>) {
        if let Some((_, work)) = &mut self.0
            && work.as_mut().poll(context).is_ready()
        {
            self.0 = None;
        }
    }
}

impl Drop for CallDriver {
    fn drop(&mut self) {
        let Some((engine, work)) = self.0.take() else { return };
        // The call's timers and sockets belong to the runtime that has polled it so far.
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(work)),
            Err(_) => engine.spawn(work),
        }
    }
}

impl std::fmt::Debug for CallDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallDriver").field("is_finished", &self.0.is_none()).finish()
    }
}

impl Engine {
    /// Runs a call. It continues when its connection breaks. A backend that is ready at the first
    /// poll has answered when this function returns, without a task; otherwise the caller may poll
    /// the returned driver while it waits for the answer.
    pub async fn run(&self, call: BegunCall, request: IncomingMessage) -> CallDriver {
        let Some((call, in_flight)) = call.into_parts() else { return CallDriver(None) };
        if call.running.cancel.is_cancelled() {
            // The call was answered, cancelled or lost before it ran, and its client has been told.
            return CallDriver(None);
        }
        let engine = self.arc();
        let work: Work = Box::pin(async move {
            // Only a forwarded call can come back as another node's, and this call is local.
            drop(engine.run_call(call, request, in_flight).await);
        });
        let mut rest = CallDriver(Some((self.arc(), work)));
        std::future::poll_fn(|context| {
            rest.poll(context);
            Poll::Ready(())
        })
        .await;
        rest
    }

    /// Runs a forwarded call in the caller's task. Returns the call if another node must run it.
    pub(crate) async fn run_forwarded_call(
        &self,
        call: BegunCall,
        request: IncomingMessage,
    ) -> Option<BegunCall> {
        let (call, in_flight) = call.into_parts()?;
        if call.running.cancel.is_cancelled() {
            return None;
        }
        if is_forwarded_notification(&call.running.id, &request.method) {
            let started = call.start(None, Retry::Never).await;
            if started.is_ok() {
                let session = call.session();
                // A notification has no answer that could carry the error. A panic was logged.
                let _ = catch_panic(async { self.backend().notify(session, request).await }).await;
            }
            let payload = response(&call.running.id, &started.map(|()| Bytes::from_static(b"{}")));
            self.finish(&call.session, call.no, payload).await;
            drop(in_flight);
            None
        } else {
            self.arc().run_call(call, request, in_flight).await
        }
    }

    /// Runs a call. Returns it if it has not started and another node must run it.
    async fn run_call(
        self: Arc<Self>,
        call: CallHandle,
        request: IncomingMessage,
        in_flight: InFlightGuard,
    ) -> Option<BegunCall> {
        // `call` is invoked inside the guard, because a backend may run user code before it returns
        // a future.
        let keyed = KeyedRequest::of(&request, &call.facts().principal, &self);
        let work = async { self.backend().call(call.clone(), request).await };
        let work = catch_panic(self.execute_once(keyed, &call.running.cancel, work));
        let answer = match unless_cancelled(work, &call.running.cancel, self.options().wind_down).await {
            Some(answer) => answer.and_then(|answer| answer),
            None => Err(Reason::Cancelled.error_retryable(true, "The call was cancelled.")),
        };
        if call.running.is_forwarded && !call.session.is_running(call.no) {
            // The call was released to another node, or another task has ended it.
            return None;
        }
        if self.is_draining() && call.session.was_released(call.no) {
            // Another node runs the call again and answers it.
            return None;
        }
        if call.running.is_forwarded && call.session.take_route_outdated(call.no) {
            return Some(BegunCall(Some((call, in_flight))));
        }
        let payload = response(&call.running.id, &answer);
        self.finish(&call.session, call.no, payload).await;
        drop(in_flight);
        None
    }
}
