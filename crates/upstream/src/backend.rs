//! Implements the engine's `Backend` for [`Upstream`]: initialisation, routing, calls,
//! notifications and the end of a session.

use std::sync::Arc;

use bytes::Bytes;
use steadfast_client::Error;
use steadfast_engine::backend::BoxFuture;
use steadfast_engine::{
    Answer, Backend, CallHandle, ExchangeHandle, Facts, Fence, IncomingMessage, InitializeError,
    InitializeOk, Principal, Route, Routing, SessionHandle, SessionId,
};
use steadfast_wire::Reason;
use steadfast_wire::rpc::ErrorObject;

use crate::call::parallel_calls::Verdict;
use crate::call::run;
use crate::errors::of_opening;
use crate::placement::lease::{self, Holder};
use crate::placement::stored_placement::Placement;
use crate::placement::sync::LaneFilter;
use crate::placement::{close_unserved, takeover};
use crate::session::client_session::ClientSession;
use crate::session::rebinding::{self, Token};
use crate::session::registry::Removed;
use crate::stateless;
use crate::upstream::Upstream;

impl Backend for Upstream {
    fn initialize(
        &self,
        facts: Arc<Facts>,
        request: IncomingMessage,
    ) -> BoxFuture<Result<InitializeOk, InitializeError>> {
        let client_session = ClientSession::new(&self.shared, &self.registry, Arc::clone(&facts));
        client_session.set_credential(&request);
        let registry = Arc::clone(&self.registry);
        Box::pin(async move {
            let upstream_session = client_session.open_anywhere(0, client_session.reconnect_deadline()).await;
            let forwarded = client_session.shared.forwards_credentials();
            let upstream_session = client_session
                .set_upstream_session(0, upstream_session.map_err(|error| of_opening(&error, forwarded))?);
            let (result, revision) = (upstream_session.client.server(), upstream_session.client.revision());
            registry.add(facts.id, client_session);
            Ok(InitializeOk { result, revision })
        })
    }

    fn opened(&self, session: SessionHandle) -> BoxFuture<Result<(), ErrorObject>> {
        let client_session = self.registry.find(&session.facts().id);
        Box::pin(async move {
            let gone = || Reason::UpstreamUnavailable.error("The upstream session is gone.");
            let client_session = client_session.ok_or_else(gone)?;
            let upstream_session = client_session.lanes[0].upstream_session().ok_or_else(gone)?;
            let open = upstream_session.client.session().ok_or_else(gone)?;
            let placement_now = Placement::from_open_session(&upstream_session.instance.name, &open);
            let stored = Placement::update(&session, |placement, _| {
                placement.clone_from(&placement_now);
                true
            });
            let subject = rebinding::record(&session, client_session.token());
            let (stored, holder, ()) = tokio::join!(stored, client_session.claim(&session), subject);
            let not_stored = |why: String| {
                let message = format!("The session cannot be stored: {why}.");
                Reason::StoreUnavailable.error(message)
            };
            let version = stored.map_err(|error| not_stored(error.to_string()))?;
            if let Some(version) = version {
                drop(client_session.known_placement.advance(version));
            }
            if !matches!(holder, Holder::ThisNode(_)) {
                return Err(not_stored("this node could not get the lease".to_owned()));
            }
            client_session.open(&session);
            client_session.read_tools_ahead(&session);
            client_session.find_verdict_ahead(&session);
            Ok(())
        })
    }

    /// Resumes the upstream sessions, so that this node receives what the server sends outside of
    /// calls and can close them when the session ends. With forwarded credentials this has to wait
    /// until the client sends its credentials.
    fn restored(&self, session: SessionHandle) -> BoxFuture<()> {
        if self.shared.forwards_credentials() {
            return Box::pin(async {});
        }
        let client_session = self.client_session(&session, None);
        Box::pin(async move { client_session.resume_stored_sessions().await })
    }

    fn call(&self, call: CallHandle, request: IncomingMessage) -> BoxFuture<Result<Bytes, ErrorObject>> {
        let client_session = self.client_session(&call.session(), Some(&request));
        Box::pin(async move { run::run(&client_session, &call, &request).await })
    }

    /// Decides which node runs a call, and whether another node may run it again. Reads the
    /// annotations of the call's tool first if they are not known, unless another node runs the
    /// call: that node reads them.
    fn route(&self, session: &SessionHandle, request: &IncomingMessage) -> Routing {
        if is_sent_by_gateway_itself(&request.method) {
            return Routing::LOCAL;
        }
        match (self.routing_for(session), self.shared.may_be_reassigned(session, request)) {
            (Routing::Ready(route), Some(idempotent)) => Routing::Ready(Route { idempotent, ..route }),
            (Routing::Pending(route), Some(idempotent)) => {
                Routing::Pending(Box::pin(async move { Route { idempotent, ..route.await } }))
            }
            (routing, None) => {
                let (client_session, session, params) =
                    (self.client_session(session, None), session.clone(), request.params.clone());
                Routing::Pending(Box::pin(async move {
                    let route = match routing {
                        Routing::Ready(route) => route,
                        Routing::Pending(route) => route.await,
                    };
                    if route.node.is_some() {
                        return route;
                    }
                    Route {
                        idempotent: client_session.calls_idempotent_tool(&session, params.as_ref()).await,
                        ..route
                    }
                }))
            }
        }
    }

    fn invalidate_route(&self, facts: &Arc<Facts>, fence: &Fence) {
        let Some(client_session) = self.registry.find(&facts.id) else { return };
        if !lease::is_lease_fence(fence) {
            return client_session.known_placement.mark_outdated(fence.version);
        }
        let abandoned = client_session.forget_lease(fence.version);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { client_session.close_upstream_sessions(abandoned).await });
        }
    }

    fn readers_present(&self, sessions: Vec<SessionHandle>) -> BoxFuture<()> {
        let client_sessions = if self.pause_detector.was_paused() { self.registry.all() } else { Vec::new() };
        let listens = self.shared.config.standalone || self.shared.instances.is_stdio();
        let forwarded = self.shared.forwards_credentials();
        let readers_present = sessions.into_iter().filter(|_| listens).filter_map(|session| {
            // Without the client's credentials this node cannot create a client session.
            let known = self.registry.find(&session.facts().id);
            let client_session =
                known.or_else(|| (!forwarded).then(|| self.client_session(&session, None)))?;
            Some((session, client_session))
        });
        let readers_present: Vec<_> = readers_present.collect();
        Box::pin(async move {
            takeover::verify_leases(client_sessions).await;
            takeover::take_over_leases(readers_present).await;
        })
    }

    /// Releases the leases if all calls of a session run on one node, so that the next call runs on
    /// another node. Otherwise this node keeps receiving what servers send until it stops.
    fn draining(&self) -> BoxFuture<()> {
        self.shared.draining.cancel();
        let mut client_sessions = self.registry.all();
        client_sessions.retain(|client_session| client_session.requires_single_node());
        Box::pin(async move { takeover::release_leases(client_sessions).await })
    }

    fn serve(&self, exchange: ExchangeHandle, request: IncomingMessage) -> BoxFuture<Answer> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { stateless::serve(&shared, &exchange, &request).await })
    }

    fn notify(&self, session: SessionHandle, notification: IncomingMessage) -> BoxFuture<()> {
        if is_sent_by_gateway_itself(&notification.method) {
            return Box::pin(async {});
        }
        let client_session = self.client_session(&session, Some(&notification));
        Box::pin(async move {
            let params = notification.params.as_deref().and_then(|params| std::str::from_utf8(params).ok());
            if let Err(error) = client_session.upstream_session_of(0).await {
                tracing::warn!(session = client_session.short(), %error, "could not forward a notification: no upstream session");
                return;
            }
            for (no, lane) in client_session.lanes.iter().enumerate() {
                let Some(upstream_session) = lane.upstream_session() else { continue };
                let mut sent = upstream_session.client.notify(&notification.method, params).await;
                if let (Err(Error::SessionLost), Ok(now)) =
                    (&sent, client_session.upstream_session_of(no).await)
                    && !Arc::ptr_eq(&now, &upstream_session)
                {
                    sent = now.client.notify(&notification.method, params).await;
                }
                if let Err(error) = sent {
                    let method = &notification.method;
                    tracing::warn!(session = client_session.short(), method, %error, "could not send a notification to the server");
                }
            }
        })
    }

    fn admits(
        &self,
        session: SessionHandle,
        principal: &Principal,
        http: &http::request::Parts,
    ) -> BoxFuture<bool> {
        let (shared, principal) = (Arc::clone(&self.shared), principal.clone());
        let token = Token::of(&http.headers).filter(|_| shared.forwards_credentials());
        Box::pin(async move {
            let Some(token) = token else { return false };
            rebinding::admits(&shared, &session, &principal, &token).await
        })
    }

    fn ended_elsewhere(&self, session: SessionId) {
        let Removed::ClientSession(client_session) = self.registry.remove(&session) else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // The node at which the session ended has most likely closed the upstream sessions.
            // Closing them twice is harmless.
            runtime.spawn(async move { client_session.close().await });
        }
    }

    fn closed(&self, session: &SessionHandle) {
        let removed = self.registry.remove(&session.facts().id);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        match removed {
            Removed::ClientSession(client_session) => {
                drop(runtime.spawn(async move { client_session.close().await }))
            }
            Removed::Earlier => {}
            Removed::Unknown => {
                let (shared, registry) = (Arc::clone(&self.shared), Arc::clone(&self.registry));
                let session = session.clone();
                runtime.spawn(async move {
                    close_unserved::close_stored_sessions(&shared, &registry, &session).await
                });
            }
        }
    }
}

impl Upstream {
    /// Decides which node runs a call. If all calls of a session must run on one node, that is the
    /// holder of the lease. Otherwise any node can run the call, provided that it knows the current
    /// placement.
    fn routing_for(&self, session: &SessionHandle) -> Routing {
        if self.shared.requires_single_node() {
            return to_lease_holder(self.client_session(session, None), session);
        }
        // Calls with forwarded credentials run at any node, and each node applies the verdict.
        if !self.shared.adapts_concurrency() || self.shared.forwards_credentials() {
            let known = self.registry.find(&session.facts().id);
            known.iter().for_each(|known| known.refresh_verdicts(session));
            return to_any_node(known, session);
        }
        let client_session = self.client_session(session, None);
        match client_session.verdict() {
            Some(Verdict::Parallel) => {
                client_session.refresh_verdicts(session);
                to_any_node(Some(client_session), session)
            }
            Some(Verdict::Serial(_)) => to_lease_holder(client_session, session),
            None => {
                let session = session.clone();
                Routing::Pending(Box::pin(async move {
                    client_session.find_verdict(&session).await;
                    let routing = match client_session.verdict() {
                        Some(Verdict::Parallel) => to_any_node(Some(client_session), &session),
                        Some(Verdict::Serial(_)) | None => to_lease_holder(client_session, &session),
                    };
                    match routing {
                        Routing::Ready(route) => route,
                        Routing::Pending(route) => route.await,
                    }
                }))
            }
        }
    }
}

/// Any node can run the call, provided that it knows the current placement. Without a client
/// session the placement is read before the call is sent.
fn to_any_node(known: Option<Arc<ClientSession>>, session: &SessionHandle) -> Routing {
    let outdated = known.as_ref().filter(|known| known.known_placement.is_outdated()).cloned();
    let Some(client_session) = outdated else {
        let fence = known.and_then(|known| known.known_placement.fence());
        return Routing::Ready(Route { fence, ..Route::default() });
    };
    let session = session.clone();
    Routing::Pending(Box::pin(async move {
        client_session.sync_placement(&session, LaneFilter::Open).await;
        // The placement was read just now. With a fence the engine might route the call again and
        // again.
        Route::default()
    }))
}

/// The holder of the lease runs the call.
fn to_lease_holder(client_session: Arc<ClientSession>, session: &SessionHandle) -> Routing {
    let is_stdio = client_session.shared.instances.is_stdio();
    let route = move |holder: Holder| match holder {
        Holder::OtherNode(node, _) => Route { node: Some(node), fence: holder.fence(), ..Route::default() },
        // The call could exceed the concurrency limit, because the lease holder sends calls too.
        // With this fence the engine asks again, and refuses the call if the holder stays unknown.
        Holder::Unknown if !is_stdio => Route { fence: Some(lease::impossible_fence()), ..Route::default() },
        Holder::ThisNode(_) | Holder::Unknown => Route { fence: holder.fence(), ..Route::default() },
    };
    if let Some(holder) = client_session.lease.cached() {
        return Routing::Ready(route(holder));
    }
    let session = session.clone();
    Routing::Pending(Box::pin(async move {
        let holder = client_session.claim(&session).await;
        if matches!(holder, Holder::ThisNode(_)) && !client_session.shared.instances.is_stdio() {
            // The previous holder may have moved the session.
            client_session.sync_placement(&session, LaneFilter::Open).await;
            client_session.hold_standalone_streams();
        }
        route(holder)
    }))
}

/// Returns true for notifications that the gateway sends to the server itself: it has sent
/// `initialized` already, and a cancelled call has another id at the server.
fn is_sent_by_gateway_itself(method: &str) -> bool {
    matches!(method, "notifications/initialized" | "notifications/cancelled")
}
