//! A call as its backend sees it: its id, its cancellation, and ways to send messages on its
//! stream.

use std::sync::Arc;

use bytes::Bytes;
use steadfast_session::command::{Fence, Target};
use steadfast_session::{CallNo, Class};
use steadfast_wire::rpc::ErrorObject;
use steadfast_wire::{Reason, RequestId};
use tokio_util::sync::CancellationToken;

use crate::backend::Denial;
use crate::delivery::CredentialCheck;
use crate::engine::Engine;
use crate::refusal::Refusal;
use crate::server_requests::ServerRequestHandle;
use crate::sessions::{LiveSession, RunningCall, SessionHandle};

/// Whether another node may run a call again that this node has started, if this node dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The client gets an error.
    Never,
    /// The call is reassigned to another node. Only for idempotent calls.
    OnAnotherNode,
}

/// A call that runs on this node.
#[derive(Clone, Debug)]
pub struct CallHandle {
    pub(super) engine: Arc<Engine>,
    pub(super) session: Arc<LiveSession>,
    pub(super) no: CallNo,
    pub(super) running: RunningCall,
}

impl CallHandle {
    pub(crate) fn new(
        engine: Arc<Engine>,
        session: &Arc<LiveSession>,
        no: CallNo,
        running: RunningCall,
    ) -> Self {
        Self { engine, session: Arc::clone(session), no, running }
    }

    /// The request id that the client chose.
    pub fn id(&self) -> &RequestId {
        &self.running.id
    }

    /// Cancelled when the client cancels the call, its deadline passes, or the session ends.
    pub fn cancelled(&self) -> &CancellationToken {
        &self.running.cancel
    }

    pub fn facts(&self) -> &Arc<steadfast_session::Facts> {
        self.session.facts()
    }

    pub fn session(&self) -> SessionHandle {
        self.engine.session_handle(&self.session)
    }

    /// Returns a value that the backend derives from the session's facts; see
    /// [`SessionHandle::cached`].
    pub fn cached<T: Send + Sync + 'static>(
        &self,
        make: impl FnOnce(&steadfast_session::Facts) -> T,
    ) -> Arc<T> {
        self.session.cached(make)
    }

    /// Sends a notification on this call's stream.
    pub fn notify(
        &self,
        class: Class,
        payload: Bytes,
    ) -> impl Future<Output = Result<(), Refusal>> + Send + 'static + use<> {
        self.engine.append(&self.session, Target::Call(self.no), class, payload, None)
    }

    /// Sends a notification to the client that reads this call's stream at this node, without
    /// storing it. It has no event id. If other events arrive first, or the client waits for a JSON
    /// body, it is not sent. Returns false if no client reads the stream at this node.
    pub fn notify_reader(&self, payload: Bytes) -> bool {
        let tail = self.session.tail(self.running.stream);
        tail.iter().for_each(|tail| tail.set_unstored(payload.clone()));
        tail.is_some()
    }

    /// Records that the call starts. Call this before executing anything that must not happen
    /// twice.
    ///
    /// It matters only for a call that another node forwarded to this one. Until it has started,
    /// the store reassigns it if this node dies; after that it does so only with
    /// [`Retry::OnAnotherNode`]. `fence` names the lease that the call runs under.
    ///
    /// On error the backend must not execute the call and should return the error. If the lease has
    /// changed hands, the engine forwards the call to the new lease holder.
    pub async fn start(&self, fence: Option<Fence>, retry: Retry) -> Result<(), ErrorObject> {
        if !self.is_forwarded() || retry == Retry::OnAnotherNode && fence.is_none() {
            return Ok(());
        }
        self.engine.start_forwarded(&self.session, self.no, fence, retry).await
    }

    /// Returns true if another node received the call and forwarded it to this node.
    pub fn is_forwarded(&self) -> bool {
        self.running.is_forwarded
    }

    /// Returns true if the call was forwarded to this node and another node may still run it
    /// instead.
    pub fn is_reassignable(&self) -> bool {
        self.is_forwarded() && self.session.is_reassignable(self.no)
    }

    /// Gives up a reassignable call. When this node leaves the store, the call is reassigned. The
    /// backend must end the call with the returned error, which no client receives.
    pub fn release(&self) -> ErrorObject {
        self.session.release_call(self.no);
        Reason::NotStarted.error("The call is left to another node.")
    }

    /// Reports that the server accepted the client's credentials, so that the HTTP layer stops
    /// waiting for a denial and sends the head of the response.
    pub fn accept_credentials(&self) {
        self.set_credential_check(CredentialCheck::Accepted);
    }

    /// Reports that the server denied the client's credentials. If nothing was sent to the client
    /// yet, it gets the denial as the status of the response. The backend must end the call with
    /// the denial's error in any case.
    pub fn deny(&self, denial: Denial) {
        self.set_credential_check(CredentialCheck::Denied(Box::new(denial)));
    }

    fn set_credential_check(&self, credential_check: CredentialCheck) {
        if let Some(tail) = self.session.tail(self.running.stream) {
            tail.set_credential_check(credential_check);
        }
    }

    /// Ends the call with an error, regardless of its backend. Does nothing if the call has an
    /// answer.
    pub async fn fail(&self, error: &ErrorObject) {
        self.engine.fail(&self.session, self.no, &self.running, error).await;
    }

    pub(crate) async fn finish(&self, payload: Bytes) {
        self.engine.finish(&self.session, self.no, payload).await;
    }

    /// Sends a server request on this call's stream. The handle waits for the client's answer.
    /// `rest` is the request's JSON text from `"method"` on.
    ///
    /// If the session is below its limit, the request has been sent to the store when this function
    /// returns, so it keeps its position relative to the call's other messages.
    pub fn send_request(&self, rest: Bytes) -> ServerRequestHandle {
        self.engine.send_request(&self.session, Target::Call(self.no), rest, None)
    }

    /// Ends the connection that reads this call's stream; the client reconnects for the rest.
    /// Returns false if the client cannot resume: it has no event id, or waits for a JSON body.
    pub fn disconnect_reader(&self) -> bool {
        if self.running.resumable
            && let Some(tail) = self.session.tail(self.running.stream)
        {
            tail.request_reconnect();
        }
        self.running.resumable
    }
}
