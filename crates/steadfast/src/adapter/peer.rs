//! Lines: what a handler's `Peer` is connected to.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
use tokio::sync::{Notify, oneshot};

use super::answered::{self, Wanted};
use super::exchange_line::{self, ExchangeLine};
use super::outgoing;

/// Where a line leads.
#[derive(Clone)]
pub(super) enum Line {
    /// To the stream of a call.
    Call(CallHandle),
    /// To the response of a stateless request.
    Exchange(Arc<ExchangeLine>),
    /// To a standalone stream of a session.
    Session(SessionHandle),
    /// Nothing can be sent: `initialize` is answered before there is a session, and a silent handler has said that it
    /// does not want to.
    Nowhere,
}

/// Connects a peer to a line. The line is cut when what this returns is dropped.
pub(super) fn open_line<S: Service<RoleServer>>(
    line: Line,
    client: InitializeRequestParams,
    service: S,
) -> RunningService<RoleServer, S> {
    serve_directly(service, LineTransport::new(line, None), Some(client))
}

/// Hands a notification to the handler and waits until it is done with it.
///
/// rmcp offers no way to make a `NotificationContext`, so the notification travels through a loop.
pub(super) async fn deliver<H: ServerHandler>(
    handler: Arc<H>,
    session: SessionHandle,
    client: InitializeRequestParams,
    notification: ClientNotification,
) {
    let (done, finished) = oneshot::channel();
    let service = Once { handler, done: Mutex::new(Some(done)) };
    let message = ClientJsonRpcMessage::notification(notification);
    let line =
        serve_directly(service, LineTransport::new(Line::Session(session), Some(message)), Some(client));
    // An error means that the handler panicked; rmcp has reported that.
    let _ = finished.await;
    drop(line);
}

/// The service of a loop that only serves a peer.
pub(super) struct Mute;

impl Service<RoleServer> for Mute {
    async fn handle_request(
        &self,
        _request: ClientRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        Err(ErrorData::internal_error("requests do not come this way", None))
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

/// The service of a loop that hands over one notification.
struct Once<H> {
    handler: Arc<H>,
    done: Mutex<Option<oneshot::Sender<()>>>,
}

impl<H: ServerHandler> Service<RoleServer> for Once<H> {
    async fn handle_request(
        &self,
        _request: ClientRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        Err(ErrorData::internal_error("requests do not come this way", None))
    }

    async fn handle_notification(
        &self,
        notification: ClientNotification,
        context: NotificationContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        // Dropped when this returns or unwinds, which tells whoever waits.
        let _done = self.done.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.handler.handle_notification(notification, context).await
    }

    fn get_info(&self) -> ServerConfig {
        ServerConfig::default()
    }
}

/// What was sent could not be taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum LineError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("nothing can be sent before the session is open, nor by a handler that was declared silent")]
    LeadsNowhere,
}

struct LineTransport {
    line: Line,
    inbox: Arc<Inbox>,
    asks: Asks,
}

/// The asks that wait for an answer, by the ids that rmcp gave them and the client never sees. To drop an entry is to
/// withdraw the ask. Their number is bounded by the engine.
type Asks = Arc<Mutex<HashMap<RmcpId, oneshot::Sender<()>>>>;

/// Messages for rmcp's loop: at most one notification and the answers to the asks that are open, whose number is
/// bounded. A channel would do, but it allocates room for thirty-two messages, and most lines carry none.
#[derive(Default)]
struct Inbox {
    messages: Mutex<VecDeque<ClientJsonRpcMessage>>,
    arrived: Notify,
}

impl Inbox {
    fn put(&self, message: ClientJsonRpcMessage) {
        self.messages().push_back(message);
        self.arrived.notify_one();
    }

    async fn take(&self) -> ClientJsonRpcMessage {
        loop {
            if let Some(message) = self.messages().pop_front() {
                return message;
            }
            self.arrived.notified().await;
        }
    }

    fn messages(&self) -> MutexGuard<'_, VecDeque<ClientJsonRpcMessage>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LineTransport {
    /// The loop begins with `first`.
    fn new(line: Line, first: Option<ClientJsonRpcMessage>) -> Self {
        let inbox = Arc::new(Inbox { messages: Mutex::new(first.into_iter().collect()), ..Inbox::default() });
        Self { line, inbox, asks: Asks::default() }
    }

    /// Sends a request to the client, here and now. What this gives waits for the answer and puts it into the inbox; rmcp
    /// runs it beside its loop and drops it with the line, which withdraws the ask.
    fn ask(&self, id: RmcpId, request: &ServerRequest) -> Option<futures::Sent> {
        let (rest, wanted) = (outgoing::request(request), Wanted::by(request));
        let ask = match &self.line {
            Line::Call(call) => call.ask(rest),
            Line::Session(session) => session.ask(rest),
            // Stateless revisions have no requests to the client.
            Line::Exchange(_) | Line::Nowhere => return None,
        };
        let (withdraw, withdrawn) = oneshot::channel();
        known(&self.asks).insert(id.clone(), withdraw);
        let (asks, inbox) = (Arc::clone(&self.asks), Arc::clone(&self.inbox));
        Some(Box::pin(async move {
            let answer = tokio::select! {
                biased;
                answer = ask => answer,
                // The handler has given up, and rmcp has told it so.
                _ = withdrawn => return Ok(()),
            };
            known(&asks).remove(&id);
            inbox.put(answered::message(id, wanted, answer));
            Ok(())
        }))
    }

    /// What a handler tells its session has changed, has changed for subscribers of 2026-07-28 as well: lists are the same for
    /// all, and a hint too many harms nobody.
    fn announce(&self, notification: &ServerNotification) {
        let Some(change) = exchange_line::change(notification) else { return };
        match &self.line {
            Line::Call(call) => call.session().engine().announce(&change),
            Line::Session(session) => session.engine().announce(&change),
            // That one does so itself.
            Line::Exchange(_) | Line::Nowhere => {}
        }
    }

    /// The handler does not want an answer any more. It knows the ask by rmcp's id, which means nothing to the client: the
    /// engine tells the client, with the id that it knows.
    fn withdraw(&self, id: Option<&RmcpId>) {
        if let Some(id) = id {
            known(&self.asks).remove(id);
        }
    }
}

fn known(asks: &Asks) -> MutexGuard<'_, HashMap<RmcpId, oneshot::Sender<()>>> {
    asks.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Transport<RoleServer> for LineTransport {
    type Error = LineError;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), LineError>> + Send + 'static {
        // Submitted here and not in the future, so that messages keep their order.
        let sent: Option<futures::Sent> = match message {
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
                let written = outgoing::notification;
                match &self.line {
                    Line::Call(call) => {
                        let (class, payload) = written(notification);
                        Some(Box::pin(call.notify(class, payload)))
                    }
                    Line::Session(session) => {
                        let (class, payload) = written(notification);
                        Some(Box::pin(session.notify(class, payload)))
                    }
                    Line::Exchange(exchange) => {
                        Some(Box::pin(std::future::ready(exchange.send(notification))))
                    }
                    Line::Nowhere => None,
                }
            }
            JsonRpcMessage::Request(message) => self.ask(message.id, &message.request),
            // Answers do not come this way: the handler is called directly.
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {
                Some(Box::pin(std::future::ready(Ok(()))))
            }
        };
        async move {
            match sent {
                Some(sent) => Ok(sent.await?),
                None => Err(LineError::LeadsNowhere),
            }
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        Some(self.inbox.take().await)
    }

    async fn close(&mut self) -> Result<(), LineError> {
        Ok(())
    }
}

mod futures {
    pub(super) type Sent =
        std::pin::Pin<Box<dyn Future<Output = Result<(), steadfast_engine::Refusal>> + Send + 'static>>;
}
