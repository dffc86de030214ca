//! Finding somebody who answers: a request that was not sent may go to any replica.

use steadfast_engine::{Answer, ExchangeHandle, Incoming};
use tokio::time::Instant;

use super::errors;
use super::forward::NotSent;
use crate::healing::Pauses;
use crate::upstream::Shared;

/// Has some replica answer, the best first, and waits for one if none can be reached.
pub(crate) async fn serve(shared: &Shared, exchange: &ExchangeHandle, request: &Incoming) -> Answer {
    let end = Instant::now() + shared.config.patience;
    let mut pauses = Pauses::until(end);
    loop {
        let missed = match try_each(shared, exchange, request).await {
            Ok(answer) => return answer,
            Err(missed) => missed,
        };
        tokio::select! {
            biased;
            () = exchange.cancelled().cancelled() => return Err(errors::cancelled()),
            is_over = pauses.next() => if is_over {
                return Err(missed.into());
            },
        }
    }
}

async fn try_each(shared: &Shared, exchange: &ExchangeHandle, request: &Incoming) -> Result<Answer, NotSent> {
    let (mut tried, mut missed) = (Vec::new(), NotSent("there is no replica".to_owned()));
    while let Some(place) = shared.servers.stateless(&tried) {
        match shared.forwarder.forward(&place.transport, &place.url, exchange, request).await {
            Ok(answer) => {
                place.replica().into_iter().for_each(|replica| replica.succeeded());
                return Ok(answer);
            }
            Err(not_sent) => missed = not_sent,
        }
        place.replica().into_iter().for_each(|replica| replica.failed());
        tried.push(place.name);
    }
    Err(missed)
}
