//! Finding somebody who answers: a request that was not sent may go to any replica.

use steadfast_engine::{Answer, ExchangeHandle, Incoming};
use tokio::time::Instant;

use super::forward::NotSent;
use crate::errors;
use crate::healing::Pauses;
use crate::upstream::Shared;

/// Has some replica answer, the best first, and waits for one if none can be reached.
pub(crate) async fn serve(shared: &Shared, exchange: &ExchangeHandle, request: &Incoming) -> Answer {
    let mut pauses = Pauses::until(Instant::now() + shared.config.patience);
    loop {
        let missed = match try_each(shared, exchange, request).await {
            Ok(answer) => return answer,
            Err(missed @ NotSent::Untrusted(_)) => return Err(missed.into()),
            Err(missed @ NotSent::Away(_)) => missed,
        };
        tokio::select! {
            biased;
            () = exchange.cancelled().cancelled() => return Err(errors::cancelled(true)),
            is_over = pauses.next() => if is_over {
                return Err(missed.into());
            },
        }
    }
}

/// Tries each replica once. If one of them is away and may come back, that counts and not what else is wrong.
async fn try_each(shared: &Shared, exchange: &ExchangeHandle, request: &Incoming) -> Result<Answer, NotSent> {
    let (mut tried, mut missed) = (Vec::new(), None);
    while let Some(place) = shared.servers.stateless(&tried) {
        match shared.forwarder.forward(&place.transport, &place.url, exchange, request).await {
            Ok(answer) => {
                place.replica().into_iter().for_each(|replica| replica.succeeded());
                return Ok(answer);
            }
            Err(not_sent) => {
                if !matches!(missed, Some(NotSent::Away(_))) {
                    missed = Some(not_sent);
                }
            }
        }
        place.replica().into_iter().for_each(|replica| replica.failed());
        tried.push(place.name);
    }
    Err(missed.unwrap_or_else(|| NotSent::Away("there is no replica".to_owned())))
}
