//! Receives the notifications of a call from the server.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use steadfast_client::{BoxFuture, CallObserver, Notification, RequestId};
use steadfast_engine::{CallHandle, Class};

use crate::call::progress::CallProgress;
use crate::session::client_session::ClientSession;
use crate::session::server_messages;

/// Forwards the notifications of a call to the call's stream.
pub(super) struct CallListener {
    client_session: Arc<ClientSession>,
    call: CallHandle,
    /// The request id of the call at the server.
    id: OnceLock<RequestId>,
    /// The progress of the call, if the client asked for it.
    progress: Option<Arc<CallProgress>>,
}

impl CallListener {
    pub(super) fn new(
        client_session: &Arc<ClientSession>,
        call: &CallHandle,
        progress: Option<Arc<CallProgress>>,
    ) -> Arc<Self> {
        let (client_session, call) = (Arc::clone(client_session), call.clone());
        Arc::new(Self { client_session, call, id: OnceLock::new(), progress })
    }

    /// Sets the request id of the call at the server, before the call is sent.
    pub(super) fn set_id(&self, id: &RequestId) {
        let _ = self.id.set(id.clone());
    }

    fn message(&self, notification: Notification) -> Option<(Class, Bytes)> {
        self.client_session.inspect_notification(&notification);
        let progress = self.progress.as_deref();
        server_messages::for_call(notification, self.id.get()?, |params| progress?.convert(params))
    }
}

impl CallObserver for CallListener {
    fn on_notification(&self, notification: Notification) -> BoxFuture<'_, ()> {
        // The notification is queued before the future is polled, so that the order of
        // notifications does not depend on the caller.
        let sent = self.message(notification).map(|(class, payload)| self.call.notify(class, payload));
        Box::pin(async move {
            if let Some(sent) = sent
                && let Err(refusal) = sent.await
            {
                tracing::debug!(%refusal, "could not store a notification of a call");
            }
        })
    }

    fn on_progress_from_other_stream(&self, notification: Notification) {
        drop(self.on_notification(notification));
    }

    fn on_stream_opened(&self) {
        if self.client_session.shared.forwards_credentials() {
            self.call.accept_credentials();
        }
    }

    /// The server closes the connection of a long call and lets its client resume the stream. The
    /// gateway does that to its own client too.
    fn on_polling_requested(&self) {
        self.call.disconnect_reader();
    }
}
