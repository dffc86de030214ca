//! Finding somebody who answers: a request with which nobody has begun may go to any replica, and so may one that does no harm
//! twice.

use steadfast_engine::{Answer, ExchangeHandle, Incoming};
use tokio::time::Instant;

use super::era::Verdict;
use super::errors::{DISCOVER, broken, has_sessions, is_safe};
use super::forward::{Missed, TOO_LONG, cancelled};
use crate::errors;
use crate::healing::Pauses;
use crate::seat::Place;
use crate::upstream::Shared;

/// Has some replica answer, the best first, and waits for one if none can be reached.
pub(crate) async fn serve(shared: &Shared, exchange: &ExchangeHandle, request: &Incoming) -> Answer {
    let mut pauses = Pauses::until(Instant::now() + shared.config.patience);
    loop {
        let missed = match try_each(shared, exchange, request).await {
            Ok(answer) => return answer,
            Err(missed @ Missed::Away(_)) => missed,
            Err(missed) => return missed.into(),
        };
        tokio::select! {
            biased;
            () = exchange.cancelled().cancelled() => return Err(errors::cancelled(true)),
            is_over = pauses.next() => if is_over {
                return missed.into();
            },
        }
    }
}

/// Tries each replica once. If one of them is away and may come back, that counts and not what else is wrong.
async fn try_each(shared: &Shared, exchange: &ExchangeHandle, request: &Incoming) -> Result<Answer, Missed> {
    let (mut tried, mut missed) = (Vec::new(), None);
    while let Some(place) = shared.servers.stateless(&tried) {
        let answered = attempt(shared, &place, exchange, request).await;
        note(&place, &answered);
        match answered {
            Ok(answer) => return Ok(answer),
            Err(error) if !may_go_on(&error, &request.method) => return Err(error),
            Err(error) => {
                if !matches!(missed, Some(Missed::Away(_))) {
                    missed = Some(error);
                }
            }
        }
        tried.push(place.name);
    }
    Err(missed.unwrap_or_else(|| Missed::Away("there is no replica".to_owned())))
}

/// Has one replica answer, unless it has sessions.
async fn attempt(
    shared: &Shared,
    place: &Place,
    exchange: &ExchangeHandle,
    request: &Incoming,
) -> Result<Answer, Missed> {
    let Place { transport, url, era, .. } = place;
    if request.method != DISCOVER {
        let verdict = tokio::select! {
            biased;
            () = exchange.cancelled().cancelled() => return Err(Missed::Ended(cancelled(exchange))),
            verdict = era.settle(shared.forwarder.discover(transport, url, request)) => verdict?,
        };
        if verdict == Some(Verdict::Sessions) {
            return Err(Missed::Ended(Err(has_sessions())));
        }
    }
    let forwarded = shared.forwarder.forward(transport, url, exchange, request);
    // A subscription may be silent for as long as nothing changes.
    let vigil = shared.config.vigil;
    let waiting = (!exchange.is_subscription()).then(|| shared.servers.wait_at(place, vigil)).flatten();
    let Some(waiting) = waiting else { return forwarded.await };
    tokio::select! {
        biased;
        answer = forwarded => answer,
        // Its client may have heard a part of the answer.
        () = waiting.end() => Err(Missed::BrokeOff(broken(&request.method, TOO_LONG))),
    }
}

/// What an attempt shows about its replica.
fn note(place: &Place, answered: &Result<Answer, Missed>) {
    match answered {
        Ok(_) => place.replica().into_iter().for_each(|replica| replica.succeeded()),
        Err(Missed::Ended(_) | Missed::Unanswered(_)) => {}
        Err(_) => {
            place.era.forget();
            place.replica().into_iter().for_each(|replica| replica.failed());
        }
    }
}

/// Whether another replica may be asked.
fn may_go_on(missed: &Missed, method: &str) -> bool {
    match missed {
        Missed::Away(_) | Missed::Untrusted(_) | Missed::Refused(_) => true,
        Missed::Lost(_) | Missed::Unanswered(_) => is_safe(method),
        Missed::BrokeOff(_) | Missed::Ended(_) => false,
    }
}
