//! Runs one call at the server: permit, attempts, failover and retries. The client gets exactly one
//! answer.

use std::sync::Arc;

use bytes::Bytes;
use steadfast_client::{Answer, CallObserver, CallOptions, Effect, Error};
use steadfast_engine::{CallHandle, IncomingMessage, Retry};
use steadfast_wire::Reason;
use steadfast_wire::rpc::ErrorObject;
use tokio::time::Instant;

use crate::call::listener::CallListener;
use crate::call::progress::CallProgress;
use crate::errors;
use crate::placement::upstream_session::UpstreamSession;
use crate::replicas::health::unresponsive;
use crate::replicas::replica::is_unavailable;
use crate::session::client_session::ClientSession;
use crate::session::replay_state::{MAX_SUBSCRIPTIONS, ReplayState};
use crate::session::server_messages;

/// How often a call is sent before it fails because the server keeps going down.
const MAX_ATTEMPTS: usize = 4;

/// A call of the client.
struct Call<'a> {
    client_session: &'a Arc<ClientSession>,
    handle: &'a CallHandle,
    method: &'a str,
    params: Option<&'a str>,
    /// The progress of the call, if the client asked for it.
    progress: Option<Arc<CallProgress>>,
}

/// Runs a call at the server and returns the server's answer.
pub(crate) async fn run(
    client_session: &Arc<ClientSession>,
    handle: &CallHandle,
    request: &IncomingMessage,
) -> Result<Bytes, ErrorObject> {
    // The parameters were parsed as JSON, so they are UTF-8.
    let params = request.params.as_deref().and_then(|params| std::str::from_utf8(params).ok());
    let token = params.and_then(server_messages::progress_token);
    let progress = token.map(|token| CallProgress::start(client_session, handle, token));
    let call = Call { client_session, handle, method: &request.method, params, progress };
    call.check_limits().await?;
    if !client_session.shared.is_replaced() {
        client_session.check_lease_in_background();
    }
    // Only a forwarded call is started here. The engine has started a call of this node already.
    let is_idempotent =
        handle.is_forwarded() && Box::pin(may_be_reassigned(client_session, handle, request)).await;
    let permit = tokio::select! {
        biased;
        // The node that takes the lease next finds the call among those that this node has
        // released.
        () = client_session.shared.drain_started(), if handle.is_reassignable() => return Err(handle.release()),
        permit = client_session.acquire_permit(handle.cancelled()) => permit?,
    };
    if handle.is_forwarded() {
        let retry = if is_idempotent { Retry::OnAnotherNode } else { Retry::Never };
        handle.start(client_session.fence_for_calls(), retry).await?;
    }
    let annotations = &client_session.shared.annotations;
    let generation =
        (call.method == "tools/list").then(|| annotations.generation(&client_session.facts.principal));
    let answer = match call.run_with_retries(permit.lane).await? {
        Answer::Result(result) => result,
        Answer::Error(error) => return Err(errors::of_server(&error)),
    };
    let lane = permit.lane;
    match (call.method, generation) {
        ("tools/call", _) => client_session.refresh_tools(permit, &handle.session()),
        (_, Some(generation)) => {
            drop(permit);
            client_session.learn_tools(&handle.session(), params, &answer, generation);
        }
        _ => drop(permit),
    }
    call.remember_session_setting(lane).await;
    Ok(answer)
}

/// Returns true if another node may run a forwarded call again.
async fn may_be_reassigned(
    client_session: &Arc<ClientSession>,
    handle: &CallHandle,
    request: &IncomingMessage,
) -> bool {
    let session = handle.session();
    match client_session.shared.may_be_reassigned(&session, request) {
        Some(known) => known,
        None => client_session.calls_idempotent_tool(&session, request.params.as_ref()).await,
    }
}

impl Call<'_> {
    /// Sends the call until it is answered. Retries as long as the server cannot have executed the
    /// call, and once more if it may have executed an idempotent call.
    async fn run_with_retries(&self, lane: usize) -> Result<Answer, ErrorObject> {
        let client_session = self.client_session;
        let mut upstream_session = client_session
            .upstream_session_of(lane)
            .await
            .map_err(|error| self.denial_or(&error, errors::of_no_session(&error)))?;
        if self.is_given_up(&upstream_session) {
            // If no replica accepts the session, the call uses the current one.
            upstream_session = Box::pin(self.fail_over(lane, &upstream_session, &unresponsive()))
                .await
                .unwrap_or(upstream_session);
        }
        client_session.replay_missed(lane, &upstream_session).await;
        // An attempt may have been executed, and the call is idempotent.
        let mut has_repeated = false;
        let mut attempts = 0;
        loop {
            let begun = Instant::now();
            let error = match self.attempt(&upstream_session).await {
                Ok(answer) => {
                    upstream_session.call_answered();
                    return Ok(answer);
                }
                Err(error) => error,
            };
            match &error {
                Error::Refused { status, .. } if is_unavailable(*status) => {
                    upstream_session.call_refused(begun);
                }
                Error::Refused { .. } => upstream_session.call_answered(),
                _ => {}
            }
            attempts += 1;
            let may_be_executed = error.effect() == Effect::Unknown;
            let is_last = attempts == MAX_ATTEMPTS
                || may_be_executed && has_repeated
                || self.handle.cancelled().is_cancelled();
            let is_idempotent =
                client_session.shared.is_idempotent(&self.handle.session(), self.method, self.params);
            let may_succeed_later =
                is_transient(&error) || self.was_moved_meanwhile(lane, &upstream_session, &error);
            if is_last || !may_succeed_later || may_be_executed && is_idempotent == Some(false) {
                if self.suggests_outage(&upstream_session, &error) {
                    client_session.fail_over_in_background(lane, &upstream_session, &error);
                }
                let safe = has_repeated || is_idempotent == Some(true);
                return Err(self.denial_or(&error, errors::of_client(&error, safe)));
            }
            // Another attempt needs a reachable server. So does reading the annotations that permit
            // it.
            upstream_session = match Box::pin(self.fail_over(lane, &upstream_session, &error)).await {
                Ok(upstream_session) => upstream_session,
                Err(late) if !may_be_executed => {
                    return Err(self.denial_or(&late, errors::of_no_session(&late)));
                }
                Err(_) => {
                    let safe = is_idempotent == Some(true);
                    return Err(self.denial_or(&error, errors::of_client(&error, safe)));
                }
            };
            if may_be_executed {
                let session = self.handle.session();
                let may_be_retried =
                    client_session.may_be_retried(&upstream_session, &session, self.method, self.params);
                if !Box::pin(may_be_retried).await {
                    return Err(self.denial_or(&error, errors::of_client(&error, false)));
                }
            }
            has_repeated |= may_be_executed;
            tracing::info!(session = client_session.short(), method = self.method, %error, "retrying a call");
        }
    }

    /// Returns the client's error: `otherwise`, unless the server rejected the client's own
    /// credentials. Then the client must learn that first.
    fn denial_or(&self, error: &Error, otherwise: ErrorObject) -> ErrorObject {
        let forwards_credentials = self.client_session.shared.forwards_credentials();
        let denial = errors::denial_of_call(error).filter(|_| forwards_credentials);
        let Some(denial) = denial else { return otherwise };
        self.handle.deny(denial.clone());
        denial.error
    }

    /// Returns the upstream session of the lane after a failover.
    async fn fail_over(
        &self,
        lane: usize,
        lost: &Arc<UpstreamSession>,
        error: &Error,
    ) -> Result<Arc<UpstreamSession>, Error> {
        let failover = async {
            self.client_session.fail_over(lane, lost, error).await?;
            self.client_session.upstream_session_of(lane).await
        };
        tokio::select! {
            biased;
            () = self.handle.cancelled().cancelled() => Err(Error::Cancelled),
            upstream_session = failover => upstream_session,
        }
    }

    /// Returns true if a server that accepts connections may be down. The next call would not
    /// notice that either.
    fn suggests_outage(&self, upstream_session: &UpstreamSession, error: &Error) -> bool {
        match error {
            Error::Refused { status, .. } => is_unavailable(*status),
            Error::Timeout(_) => true,
            _ => self.is_given_up(upstream_session),
        }
    }

    /// Returns true if the replica has failed its health checks for `failover_after` and another
    /// one is up.
    fn is_given_up(&self, upstream_session: &UpstreamSession) -> bool {
        let replica = upstream_session.instance.replica().filter(|replica| replica.liveness.is_given_up());
        replica.is_some_and(|replica| self.client_session.shared.instances.has_other(&replica.name))
    }

    /// Returns true if the call was refused because the server had lost its session, and the lane
    /// has another upstream session by now.
    fn was_moved_meanwhile(
        &self,
        lane: usize,
        upstream_session: &Arc<UpstreamSession>,
        error: &Error,
    ) -> bool {
        let current = self.client_session.lanes[lane].upstream_session();
        matches!(error, Error::SessionLost)
            && current.is_some_and(|current| !Arc::ptr_eq(&current, upstream_session))
    }

    async fn attempt(&self, upstream_session: &UpstreamSession) -> Result<Answer, Error> {
        let listener = CallListener::new(self.client_session, self.handle, self.progress.clone());
        let options = CallOptions { timeout: None, progress: self.progress.is_some() };
        let to = Arc::clone(&listener) as Arc<dyn CallObserver>;
        let prepared = upstream_session.client.prepare(self.method, self.params, options, to)?;
        // Nothing was sent yet, so no notification arrives before this.
        listener.set_id(prepared.id());
        let ClientSession { shared, in_flight, .. } = &**self.client_session;
        let _in_flight = in_flight.register(upstream_session.no, prepared.id(), self.handle);
        let run = prepared.run(self.handle.cancelled());
        match shared.instances.await_response(&upstream_session.instance, shared.config.health_check) {
            Some(wait) => tokio::select! {
                biased;
                outcome = run => outcome,
                () = wait.given_up() => Err(unresponsive()),
            },
            None => run.await,
        }
    }

    /// Refuses a subscription that the replay state has no room for.
    async fn check_limits(&self) -> Result<(), ErrorObject> {
        if self.method != "resources/subscribe" {
            return Ok(());
        }
        let loaded = Box::pin(ReplayState::load(&self.handle.session())).await;
        if loaded.ok().flatten().unwrap_or_default().subscriptions.len() < MAX_SUBSCRIPTIONS {
            return Ok(());
        }
        tracing::debug!(session = self.client_session.short(), "too many subscriptions");
        let message =
            format!("This session watches {MAX_SUBSCRIPTIONS} resources already. Unsubscribe from some.");
        Err(Reason::OverLimit.error(message))
    }

    /// Adds a setting that the server has accepted to the replay state.
    async fn remember_session_setting(&self, lane: usize) {
        let (method, params) = (self.method, self.params.unwrap_or_default());
        if !matches!(method, "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe") {
            return;
        }
        let session = self.handle.session();
        let stored = ReplayState::update(&session, |replay_state| replay_state.apply(method, params));
        if let Err(error) = Box::pin(stored).await {
            tracing::warn!(
                session = self.client_session.short(),
                %error,
                "could not store a session setting; it is lost if the server loses the session"
            );
        }
        self.client_session.queue_for_other_lanes(lane, method, params);
    }
}

/// Returns true if the network or the server failed in a way that may not last.
fn is_transient(error: &Error) -> bool {
    match error {
        Error::Connect(_) | Error::Broken(_) | Error::OutcomeUnknown { .. } => true,
        Error::Refused { status, .. } => is_unavailable(*status),
        _ => false,
    }
}
