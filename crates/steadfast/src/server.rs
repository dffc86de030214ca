//! A running server.

use std::sync::Arc;
use std::time::Duration;

use rmcp::ServerHandler;
use steadfast_engine::{Change, Engine, Refusal, SessionId};
use steadfast_http::Endpoint;

use crate::builder::Builder;
use crate::session::Session;

/// A server: one MCP endpoint, to be mounted wherever a tower service can be. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Server {
    endpoint: Endpoint,
}

impl Server {
    /// Begins a server around handlers. The factory makes one handler for each session, and for each request without
    /// one; a type without fields is made once and shared.
    pub fn builder<H: ServerHandler>(factory: impl Fn() -> H + Send + Sync + 'static) -> Builder<H> {
        Builder::new(factory)
    }

    pub(crate) fn new(endpoint: Endpoint) -> Self {
        Self { endpoint }
    }

    /// The endpoint as a tower service.
    pub fn service(&self) -> Endpoint {
        self.endpoint.clone()
    }

    /// A router with the endpoint at `path`.
    #[cfg(feature = "axum")]
    pub fn router(&self, path: &str) -> axum::Router {
        axum::Router::new().route_service(path, self.service())
    }

    /// Makes this process ready to serve a session that another process opened in the same store, and gives
    /// access to it.
    ///
    /// Requests do that by themselves: a session that this process has never seen is rebuilt from the store on
    /// first use, and the client notices nothing. Calling it beforehand is for servers that want to warm up, or
    /// to act on a session without waiting for its client.
    ///
    /// The id is that of [`Session::id`], or of a client's `Mcp-Session-Id` by [`SessionToken::id`](crate::SessionToken::id).
    pub async fn restore(&self, session: SessionId) -> Result<Session, Refusal> {
        self.engine().restore(session).await.map(Session::new)
    }

    /// Tells clients of 2026-07-28 that subscribed to it (`subscriptions/listen`) that the list of tools has changed. Handlers can
    /// also say so through `context.peer`.
    pub fn tools_changed(&self) {
        self.engine().announce(&Change::ToolsList);
    }

    /// The same for the list of prompts.
    pub fn prompts_changed(&self) {
        self.engine().announce(&Change::PromptsList);
    }

    /// The same for the list of resources.
    pub fn resources_changed(&self) {
        self.engine().announce(&Change::ResourcesList);
    }

    /// Tells those that subscribed to a resource, or to one that contains it, that it has changed.
    pub fn resource_updated(&self, uri: impl Into<String>) {
        self.engine().announce(&Change::Resource { uri: uri.into() });
    }

    /// Does now what the passing of time demands. The server does this by itself, every second unless told otherwise; with a clock of
    /// your own, call it after moving the clock.
    pub async fn sweep(&self) -> Result<(), Refusal> {
        Ok(self.engine().sweep().await?)
    }

    /// Goes down in good order: takes no more requests, lets running calls finish for as long as `patience`,
    /// gives the rest an explicit error, and sends waiting connections away with the advice to come back.
    pub async fn drain(&self, patience: Duration) {
        self.engine().drain(patience).await;
    }

    fn engine(&self) -> &Arc<Engine> {
        self.endpoint.engine()
    }
}
