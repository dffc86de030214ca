//! Servers that verify the client's credentials themselves, in the middle of a session. A client fetches other credentials when it
//! sees a status and a challenge, so the head of the response waits for the server's word, for as long as that is bearable.

use steadfast_engine::{Cursor, Denial, Unfinished};
use steadfast_wire::RequestId;

use super::{Endpoint, Problem, ResponseMode};

impl Endpoint {
    /// What the server has against the client's credentials, if it says so before the head of the response has to go. `only`: the
    /// call that the POST consists of. Several have an answer each, and one status for all of them would take the others' away.
    pub(super) async fn denial(
        &self,
        (cursor, calls): &mut (Cursor, Vec<Unfinished>),
        only: Option<&RequestId>,
    ) -> Option<Denial> {
        let wait = self.config.auth_wait;
        if wait.is_zero() || only.is_none() || calls.is_empty() {
            return None;
        }
        let mut verdict = std::pin::pin!(std::future::poll_fn(|context| {
            calls.iter_mut().for_each(|call| call.poll(context));
            cursor.poll_denial(context)
        }));
        // Most servers have answered by then, and need no timer.
        tokio::select! {
            biased;
            denial = &mut verdict => return denial,
            () = self.moments.begin() => {}
        }
        match self.config.response {
            // It has its head when it has its answer.
            ResponseMode::Json => verdict.await,
            ResponseMode::Stream | ResponseMode::Adaptive => {
                tokio::time::timeout(wait, verdict).await.ok().flatten()
            }
        }
    }
}

/// Refuses a POST whose call the server has refused. The call has its answer all the same, which is in the log before its client
/// hears of it: whoever looks there finds one outcome.
pub(super) async fn refuse((cursor, calls): (Cursor, Vec<Unfinished>), denial: Denial) -> Problem {
    drop(calls);
    cursor.read_out().await;
    denial.into()
}
