//! The sweeper: periodic work that depends on time, such as deadlines, expiry and reaping of dead
//! nodes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use steadfast_session::Time;
use steadfast_store::StoreError;
use steadfast_wire::Reason;

use crate::engine::Engine;
use crate::internal_sessions::is_internal;
use crate::panics::{catch_panic, catch_panic_text};
use crate::sessions::LiveSession;

/// How many sessions one sweep command of the store checks.
const BATCH: usize = 256;

impl Engine {
    pub(crate) fn start_sweeper(&self) {
        let engine = Arc::downgrade(&self.arc());
        let interval = self.options().sweep_interval;
        self.spawn(async move {
            let mut ticks = tokio::time::interval(interval);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let Some(engine) = engine.upgrade() else { return };
                match catch_panic_text(engine.sweep()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::warn!(%error, "sweep failed; the next one will retry"),
                    // The next sweep starts from the beginning.
                    Err(panic) => tracing::error!(%panic, "sweep panicked"),
                }
            }
        });
    }

    /// Ends what has expired: calls and server requests past their deadline, sessions past their
    /// grace or idle time, streams past their retention. Sends heartbeats. Reaps dead nodes. The
    /// sweeper calls this periodically; a test with its own clock may call it as well.
    pub async fn sweep(&self) -> Result<(), StoreError> {
        let now = self.now();
        let sessions = self.sessions.all();
        self.pending_initialize.expire(now);
        self.heartbeats.tick(now);
        sessions.iter().for_each(|session| self.expire_server_requests(session, now));
        self.fail_overdue_calls(&sessions, now).await;
        self.cancel_abandoned_calls(&sessions, now);
        self.store_kept_answers(&sessions).await;
        tokio::join!(self.reconcile_marked(&sessions), self.process_pending_hints());
        self.report_readers(&sessions);
        drop(sessions);
        let swept = self.sweep_store(now).await;
        // A node that reaps takes over calls, so a draining node does not reap. A failed store
        // sweep does not prevent reaping.
        let reaped = if self.is_draining() { Ok(()) } else { self.reap(now).await };
        let forget = u64::try_from(self.options().forget_after.as_millis()).unwrap_or(u64::MAX);
        self.sessions.forget_unused(Time(now.0.saturating_sub(forget)));
        self.forget_ended(now).await;
        swept.and(reaped)
    }

    /// Settles what dead nodes held.
    pub(crate) async fn reap(&self, now: Time) -> Result<(), StoreError> {
        self.store().reap_dead_nodes(now).await.map(drop)
    }

    async fn sweep_store(&self, now: Time) -> Result<(), StoreError> {
        while self.store().sweep(now, BATCH).await? >= BATCH {
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Tells the backend which sessions have readers on this node.
    fn report_readers(&self, sessions: &[Arc<LiveSession>]) {
        if !self.shares_store()
            || self.is_draining()
            || self.is_reporting_readers.swap(true, Ordering::SeqCst)
        {
            return;
        }
        let is_read = |session: &&Arc<LiveSession>| !is_internal(session.facts()) && session.has_readers();
        let read = sessions.iter().filter(is_read);
        let readers_present: Vec<_> = read.map(|session| self.session_handle(session)).collect();
        let engine = self.arc();
        self.spawn(async move {
            // A panic is logged, and the next sweep tries again.
            let _ = catch_panic(async { engine.backend().readers_present(readers_present).await }).await;
            engine.is_reporting_readers.store(false, Ordering::SeqCst);
        });
    }

    async fn fail_overdue_calls(&self, sessions: &[Arc<LiveSession>], now: Time) {
        let error = Reason::Deadline
            .error("The call took longer than the server allows. Whether it took effect is not known.");
        self.fail_overdue_exchanges(now, &error);
        for session in sessions {
            for (no, call) in session.overdue_calls(now) {
                // The task that runs a job records why the job ended, and only then ends the call.
                let is_internal = is_internal(session.facts());
                if is_internal && call.cancel.is_cancelled() {
                    continue;
                }
                tracing::warn!(session = %session.id().short(), call = %no, "a call exceeded its deadline");
                if is_internal {
                    call.cancel.cancel();
                } else {
                    self.try_fail(session, no, &call, &error).await;
                }
            }
        }
    }
}
