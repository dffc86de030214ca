//! Chooses the replica for a request without a session, and retries at other replicas. A request
//! that no server has executed may go to any replica, and so may an idempotent request.

use steadfast_engine::{Answer, ExchangeHandle, IncomingMessage};
use tokio::time::Instant;

use super::era_detection::ServerEra;
use super::error_mapping::{broken, has_sessions, is_safe};
use super::forward::{ForwardError, TIMED_OUT, cancelled};
use crate::errors;
use crate::placement::retry_delays::RetryDelays;
use crate::placement::server_instance::ServerInstance;
use crate::upstream::Shared;

/// Serves a request at the best replica. Waits for a replica if none can be reached.
pub(crate) async fn serve(shared: &Shared, exchange: &ExchangeHandle, request: &IncomingMessage) -> Answer {
    let mut delays = RetryDelays::until(Instant::now() + shared.config.unavailable_timeout);
    loop {
        let error = match try_each(shared, exchange, request).await {
            Ok(answer) => return answer,
            Err(error @ ForwardError::Unreachable(_)) => error,
            Err(error) => return error.into(),
        };
        tokio::select! {
            biased;
            () = exchange.cancelled().cancelled() => return Err(errors::cancelled(true)),
            waited = delays.wait() => if waited.is_err() {
                return error.into();
            },
        }
    }
}

/// Tries each replica once. Returns `Unreachable` rather than another error, because a replica may
/// come back.
async fn try_each(
    shared: &Shared,
    exchange: &ExchangeHandle,
    request: &IncomingMessage,
) -> Result<Answer, ForwardError> {
    let (mut tried, mut last_error) = (Vec::new(), None);
    while let Some(instance) = shared.instances.stateless(&tried) {
        let answered = attempt(shared, &instance, exchange, request).await;
        update_replica(&instance, &answered);
        match answered {
            Ok(answer) => return Ok(answer),
            Err(error) if !may_try_next_replica(&error, &request.method) => return Err(error),
            Err(error) => {
                if !matches!(last_error, Some(ForwardError::Unreachable(_))) {
                    last_error = Some(error);
                }
            }
        }
        tried.push(instance.name);
    }
    Err(last_error.unwrap_or_else(|| ForwardError::Unreachable("there is no replica".to_owned())))
}

/// Tries one replica, unless it has sessions.
async fn attempt(
    shared: &Shared,
    instance: &ServerInstance,
    exchange: &ExchangeHandle,
    request: &IncomingMessage,
) -> Result<Answer, ForwardError> {
    let ServerInstance { transport, url, era, .. } = instance;
    let era = tokio::select! {
        biased;
        () = exchange.cancelled().cancelled() => return Err(ForwardError::Final(cancelled(exchange))),
        era = era.detect(shared.forwarder.discover(transport, url, request)) => era?,
    };
    if era == Some(ServerEra::Sessions) {
        return Err(ForwardError::Final(has_sessions(&request.method)));
    }
    let forwarded = shared.forwarder.forward(transport, url, exchange, request);
    // A subscription may be silent as long as nothing changes, so its replica gets no health check.
    let health_check = shared.config.health_check;
    let wait = (!exchange.is_subscription())
        .then(|| shared.instances.await_response(instance, health_check))
        .flatten();
    let Some(wait) = wait else { return forwarded.await };
    tokio::select! {
        biased;
        answer = forwarded => answer,
        // The client may have got a part of the answer.
        () = wait.given_up() => Err(ForwardError::Interrupted(broken(&request.method, TIMED_OUT))),
    }
}

/// Updates the state of the replica after an attempt.
fn update_replica(instance: &ServerInstance, answered: &Result<Answer, ForwardError>) {
    match answered {
        Ok(_) => instance.replica().into_iter().for_each(|replica| replica.succeeded()),
        Err(ForwardError::Final(_) | ForwardError::Unanswered(_)) => {}
        Err(_) => {
            instance.era.forget();
            instance.replica().into_iter().for_each(|replica| replica.failed());
        }
    }
}

/// Returns true if another replica may be tried.
fn may_try_next_replica(error: &ForwardError, method: &str) -> bool {
    match error {
        ForwardError::Unreachable(_) | ForwardError::Untrusted(_) | ForwardError::Refused(_) => true,
        ForwardError::Lost(_) | ForwardError::Unanswered(_) => is_safe(method),
        ForwardError::Interrupted(_) | ForwardError::Final(_) => false,
    }
}
