//! [`Server`]: a running MCP server, which a program mounts as a tower service.

use std::sync::Arc;
use std::time::Duration;

use rmcp::ServerHandler;
use steadfast_engine::{Change, Engine, Refusal, SessionId};
use steadfast_http::Endpoint;

use crate::builder::Builder;
use crate::session::Session;

/// A running MCP server with one endpoint. [`Server::service`] returns the endpoint as a tower
/// service.
///
/// Clones share the server and are cheap.
#[derive(Clone, Debug)]
pub struct Server {
    endpoint: Endpoint,
}

impl Server {
    /// Returns a builder for a server that answers with handlers of the type `H`.
    ///
    /// The server calls `factory` once for each session that this process serves, and once for each
    /// stateless request (2026-07-28). Handlers of a type without fields are created once and
    /// shared; [`Builder::shared_handler`] does that for other types.
    pub fn builder<H: ServerHandler>(factory: impl Fn() -> H + Send + Sync + 'static) -> Builder<H> {
        Builder::new(factory)
    }

    pub(crate) fn new(endpoint: Endpoint) -> Self {
        Self { endpoint }
    }

    /// Returns the endpoint as a tower service.
    pub fn service(&self) -> Endpoint {
        self.endpoint.clone()
    }

    /// Returns an axum router that serves the endpoint at `path`.
    #[cfg(feature = "axum")]
    pub fn router(&self, path: &str) -> axum::Router {
        axum::Router::new().route_service(path, self.service())
    }

    /// Loads a session that another process opened in the same store, and returns a handle to it.
    ///
    /// Requests do this automatically: on the first request of a session that is not in memory, the
    /// server loads the session from the store, and the client notices nothing. Call this function
    /// to warm up, or to act on a session before its client sends a request.
    ///
    /// `session` is a [`Session::id`]. For a client's `Mcp-Session-Id`,
    /// [`SessionToken::id`](crate::SessionToken::id) returns it.
    ///
    /// Fails with [`Refusal::NoSession`] if the store has no open session with this id.
    pub async fn restore(&self, session: SessionId) -> Result<Session, Refusal> {
        self.engine().restore(session).await.map(Session::new)
    }

    /// Notifies the clients of 2026-07-28 that subscribed to the list of tools
    /// (`subscriptions/listen`) that the list has changed.
    ///
    /// A handler can also send the notification through `context.peer`.
    pub fn tools_changed(&self) {
        self.engine().publish(&Change::ToolsList);
    }

    /// Notifies the clients of 2026-07-28 that subscribed to the list of prompts that the list has
    /// changed.
    pub fn prompts_changed(&self) {
        self.engine().publish(&Change::PromptsList);
    }

    /// Notifies the clients of 2026-07-28 that subscribed to the list of resources that the list
    /// has changed.
    pub fn resources_changed(&self) {
        self.engine().publish(&Change::ResourcesList);
    }

    /// Notifies the clients of 2026-07-28 that subscribed to the resource `uri`, or to a resource
    /// that contains it, that the resource has changed.
    pub fn resource_updated(&self, uri: impl Into<String>) {
        self.engine().publish(&Change::Resource { uri: uri.into() });
    }

    /// Applies everything that is due now: deadlines, expiry of sessions, reaping of dead nodes.
    ///
    /// The server does this every [`Builder::sweep_interval`]. With a clock of your own
    /// ([`Builder::clock`]), call this function after you advance the clock.
    pub async fn sweep(&self) -> Result<(), Refusal> {
        Ok(self.engine().sweep().await?)
    }

    /// Shuts the server down: stops accepting requests, waits up to `timeout` for running calls,
    /// answers the remaining calls with an error, and closes waiting streams with a `retry:` hint,
    /// so that clients resume at another node.
    pub async fn drain(&self, timeout: Duration) {
        self.engine().drain(timeout).await;
    }

    fn engine(&self) -> &Arc<Engine> {
        self.endpoint.engine()
    }
}
