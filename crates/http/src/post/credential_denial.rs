//! Upstream servers that verify the client's credentials themselves and deny a call in the middle
//! of a session.
//!
//! A client fetches new credentials when it sees a status and a challenge. So the head of the
//! response waits for the server's decision, up to `Config::auth_wait`.

use steadfast_engine::{CallDriver, Cursor, Denial};
use steadfast_wire::RequestId;

use super::{Endpoint, Problem, ResponseMode};
use crate::coarse_timer::Wait;

impl Endpoint {
    /// Waits for the server's decision about the credentials. Returns the denial if it arrives
    /// before the head of the response must be sent. `single_id` is the id of the only call of the
    /// POST. A POST with several calls never waits: each call has its own answer, and one status
    /// for all of them would discard the others.
    pub(super) async fn denial(
        &self,
        (cursor, calls): &mut (Cursor, Vec<CallDriver>),
        single_id: Option<&RequestId>,
    ) -> Option<Denial> {
        let wait = self.config.auth_wait;
        if wait.is_zero() || single_id.is_none() || calls.is_empty() {
            return None;
        }
        let mut decision = std::pin::pin!(std::future::poll_fn(|context| {
            calls.iter_mut().for_each(|call| call.poll(context));
            cursor.poll_denial(context)
        }));
        // Most servers have decided by then, so no tokio timer is needed.
        tokio::select! {
            biased;
            denial = &mut decision => return denial,
            () = self.timer.wait(Wait::Short) => {}
        }
        match self.config.response {
            // The head of a JSON response waits for the answer anyway.
            ResponseMode::Json => decision.await,
            ResponseMode::Stream | ResponseMode::Adaptive => {
                tokio::time::timeout(wait, decision).await.ok().flatten()
            }
        }
    }
}

/// Refuses a POST whose call the server has denied. The call still gets its answer, which is in the
/// stream before the client sees the refusal, so that there is only one outcome.
pub(super) async fn refuse((cursor, calls): (Cursor, Vec<CallDriver>), denial: Denial) -> Problem {
    drop(calls);
    cursor.read_to_end().await;
    denial.into()
}
