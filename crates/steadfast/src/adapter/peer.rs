//! Connects a handler's rmcp `Peer` to a call, an exchange or a session.
//!
//! An rmcp `Peer` sends its messages to a service loop, which has a transport. [`PeerTransport`] is
//! that transport: it forwards notifications and server requests to a [`PeerTarget`], and returns
//! the client's answers to the loop.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, MutexGuard};

use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, InitializeRequestParams, JsonRpcMessage,
    JsonRpcNotification, RequestId as RmcpId, ServerConfig, ServerJsonRpcMessage, ServerNotification,
    ServerRequest, ServerResult,
};
use rmcp::service::{
    NotificationContext, RequestContext, RoleServer, RunningService, Service, serve_directly,
};
use rmcp::transport::Transport;
use rmcp::{ErrorData, ServerHandler};
use steadfast_engine::{CallHandle, Refusal, SessionHandle};
use steadfast_wire::Mutex;
use tokio::sync::{Notify, oneshot};

use super::outgoing;
use super::parse_client_responses::{self, ExpectedResult};
use super::stateless::notifier::{self, ExchangeNotifier};

/// Where the messages go that a handler sends through its peer.
#[derive(Clone)]
pub(super) enum PeerTarget {
    /// The stream of a call.
    Call(CallHandle),
    /// The response of a stateless request.
    Exchange(Arc<ExchangeNotifier>),
    /// A standalone stream of a session.
    Session(SessionHandle),
    /// Sending fails. During `initialize` there is no session yet, and a silent handler has
    /// declared that it sends nothing.
    Refuse,
}

/// Starts a service loop whose peer sends to `target`. Dropping the returned value ends the loop,
/// and withdraws the server requests that are open.
pub(super) fn connect_peer<S: Service<RoleServer>>(
    target: PeerTarget,
    client: InitializeRequestParams,
    service: S,
) -> RunningService<RoleServer, S> {
    serve_directly(service, PeerTransport::new(target, None), Some(client))
}

/// Passes a notification to the handler and waits until the handler has processed it.
///
/// rmcp has no constructor for a `NotificationContext`, so the notification goes through a service
/// loop.
pub(super) async fn deliver<H: ServerHandler>(
    handler: Arc<H>,
    session: SessionHandle,
    client: InitializeRequestParams,
    notification: ClientNotification,
) {
    let (done, finished) = oneshot::channel();
    let service = NotificationService { handler, done: Mutex::new(Some(done)) };
    let message = ClientJsonRpcMessage::notification(notification);
    let service_loop = serve_directly(
        service,
        PeerTransport::new(PeerTarget::Session(session), Some(message)),
        Some(client),
    );
    // An error means that the handler panicked; rmcp has logged that.
    let _ = finished.await;
    drop(service_loop);
}

/// The service of a loop that exists for its peer only: the handler is called directly, so no
/// request reaches the loop.
pub(super) struct NoRequests;

impl Service<RoleServer> for NoRequests {
    async fn handle_request(
        &self,
        _request: ClientRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        Err(ErrorData::internal_error("this service loop accepts no requests", None))
    }

    async fn handle_notification(
        &self,
        _notification: ClientNotification,
        _context: NotificationContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn get_info(&self) -> ServerConfig {
        ServerConfig::default()
    }
}

/// The service of a loop that passes one notification to the handler.
struct NotificationService<H> {
    handler: Arc<H>,
    done: Mutex<Option<oneshot::Sender<()>>>,
}

impl<H: ServerHandler> Service<RoleServer> for NotificationService<H> {
    async fn handle_request(
        &self,
        _request: ClientRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        Err(ErrorData::internal_error("this service loop accepts no requests", None))
    }

    async fn handle_notification(
        &self,
        notification: ClientNotification,
        context: NotificationContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        // Dropped when this function returns or unwinds, which wakes `deliver`.
        let _done = self.done.lock().take();
        self.handler.handle_notification(notification, context).await
    }

    fn get_info(&self) -> ServerConfig {
        ServerConfig::default()
    }
}

/// Error of sending a message through a peer.
#[derive(Debug, thiserror::Error)]
pub(super) enum PeerError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(
        "a handler cannot send messages during `initialize`, nor if it is declared with `silent_handler`"
    )]
    Refusing,
}

/// A transport for rmcp's service loop that forwards to a [`PeerTarget`].
struct PeerTransport {
    target: PeerTarget,
    inbox: Arc<Inbox>,
    pending: PendingRequests,
}

/// The server requests that wait for an answer, by rmcp's ids, which the client never sees.
/// Removing an entry withdraws the request. The engine bounds their number.
type PendingRequests = Arc<Mutex<HashMap<RmcpId, oneshot::Sender<()>>>>;

/// Completes when a message has been sent, and for a server request when its answer is in the
/// inbox.
type SendFuture = Pin<Box<dyn Future<Output = Result<(), Refusal>> + Send + 'static>>;

/// Messages for rmcp's service loop: at most one notification, and the answers to pending server
/// requests, whose number is bounded. A tokio channel would work too, but it allocates room for 32
/// messages, and most peers receive none.
#[derive(Default)]
struct Inbox {
    messages: Mutex<VecDeque<ClientJsonRpcMessage>>,
    arrived: Notify,
}

impl Inbox {
    fn put(&self, message: ClientJsonRpcMessage) {
        self.messages.lock().push_back(message);
        self.arrived.notify_one();
    }

    async fn take(&self) -> ClientJsonRpcMessage {
        loop {
            if let Some(message) = self.messages.lock().pop_front() {
                return message;
            }
            self.arrived.notified().await;
        }
    }
}

impl PeerTransport {
    /// The loop receives `first` before all other messages.
    fn new(target: PeerTarget, first: Option<ClientJsonRpcMessage>) -> Self {
        let inbox = Arc::new(Inbox { messages: Mutex::new(first.into_iter().collect()), ..Inbox::default() });
        Self { target, inbox, pending: PendingRequests::default() }
    }

    /// Sends a server request. The request has been submitted when this function returns. The
    /// returned future waits for the answer and puts it into the inbox. rmcp polls the future
    /// beside its loop and drops it with the loop, which withdraws the request.
    ///
    /// Returns `None` if the target has no server requests.
    fn send_request(&self, id: RmcpId, request: &ServerRequest) -> Option<SendFuture> {
        let (rest, expected) = (outgoing::request(request), ExpectedResult::of(request));
        let answer = match &self.target {
            PeerTarget::Call(call) => call.send_request(rest),
            PeerTarget::Session(session) => session.send_request(rest),
            // Stateless revisions have no server requests.
            PeerTarget::Exchange(_) | PeerTarget::Refuse => return None,
        };
        let (withdraw, withdrawn) = oneshot::channel();
        lock(&self.pending).insert(id.clone(), withdraw);
        let (pending, inbox) = (Arc::clone(&self.pending), Arc::clone(&self.inbox));
        Some(Box::pin(async move {
            let answer = tokio::select! {
                biased;
                answer = answer => answer,
                // The handler has cancelled the request, and rmcp has returned an error to it.
                _ = withdrawn => return Ok(()),
            };
            lock(&pending).remove(&id);
            inbox.put(parse_client_responses::message(id, expected, answer));
            Ok(())
        }))
    }

    /// Notifies subscribers of 2026-07-28 of a change that a handler announces to its session. All
    /// clients see the same lists, and an unnecessary notification is harmless.
    fn announce(&self, notification: &ServerNotification) {
        let Some(change) = notifier::change(notification) else { return };
        match &self.target {
            PeerTarget::Call(call) => call.session().engine().publish(&change),
            PeerTarget::Session(session) => session.engine().publish(&change),
            // `ExchangeNotifier::send` does it.
            PeerTarget::Exchange(_) | PeerTarget::Refuse => {}
        }
    }

    /// Withdraws a server request that the handler has cancelled. `id` is rmcp's id, which the
    /// client does not know: the engine sends `notifications/cancelled` with the id that the client
    /// knows.
    fn withdraw(&self, id: Option<&RmcpId>) {
        if let Some(id) = id {
            lock(&self.pending).remove(id);
        }
    }
}

fn lock(pending: &PendingRequests) -> MutexGuard<'_, HashMap<RmcpId, oneshot::Sender<()>>> {
    pending.lock()
}

impl Transport<RoleServer> for PeerTransport {
    type Error = PeerError;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), PeerError>> + Send + 'static {
        // Messages are submitted here and not in the future, so that they keep their order.
        let sending: Option<SendFuture> = match message {
            JsonRpcMessage::Notification(JsonRpcNotification {
                notification: ServerNotification::CancelledNotification(cancelled),
                ..
            }) => {
                self.withdraw(cancelled.params.request_id.as_ref());
                Some(Box::pin(std::future::ready(Ok(()))))
            }
            JsonRpcMessage::Notification(message) => {
                let notification = message.notification;
                self.announce(&notification);
                match &self.target {
                    PeerTarget::Call(call) => {
                        let (class, payload) = outgoing::notification(notification);
                        Some(Box::pin(call.notify(class, payload)))
                    }
                    PeerTarget::Session(session) => {
                        let (class, payload) = outgoing::notification(notification);
                        Some(Box::pin(session.notify(class, payload)))
                    }
                    PeerTarget::Exchange(exchange) => {
                        Some(Box::pin(std::future::ready(exchange.send(notification))))
                    }
                    PeerTarget::Refuse => None,
                }
            }
            JsonRpcMessage::Request(message) => self.send_request(message.id, &message.request),
            // The handler is called directly, so the loop never sends a response.
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {
                Some(Box::pin(std::future::ready(Ok(()))))
            }
        };
        async move {
            match sending {
                Some(sending) => Ok(sending.await?),
                None => Err(PeerError::Refusing),
            }
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        Some(self.inbox.take().await)
    }

    async fn close(&mut self) -> Result<(), PeerError> {
        Ok(())
    }
}
