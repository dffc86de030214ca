//! What has to happen because time passes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use steadfast_session::Time;
use steadfast_store::StoreError;
use steadfast_wire::planted;
use steadfast_wire::rpc::ErrorObject;

use crate::calls::{catch_panic, guarded};
use crate::engine::Engine;
use crate::jobs::is_job;
use crate::live::LiveSession;

/// Sessions that one command to the store looks at.
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
                match guarded(engine.sweep()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::warn!(%error, "the sweep has to wait for the store"),
                    // What time demands has to be done all the same: the next sweep starts from the beginning.
                    Err(panic) => tracing::error!(%panic, "a sweep panicked"),
                }
            }
        });
    }

    /// Ends what is over by now: calls and asks past their deadline, sessions past their grace or idle time, streams past
    /// their retention, and whatever dead nodes left. The sweeper calls this; a test with its own clock may, too.
    pub async fn sweep(&self) -> Result<(), StoreError> {
        let now = self.now();
        let sessions = self.live.all();
        self.openings.expire(now);
        sessions.iter().for_each(|session| self.expire_asks(session, now));
        self.fail_overdue_calls(&sessions, now).await;
        self.offer_answers(&sessions).await;
        tokio::join!(self.reconcile_suspects(&sessions), self.follow_rumours());
        self.tell_of_readers(&sessions);
        drop(sessions);
        let swept = self.sweep_store(now).await;
        // Whoever buries inherits, and this node is about to go itself. What dead nodes left does not wait for a session that
        // cannot be swept.
        let buried = if self.is_draining() { Ok(()) } else { self.bury(now).await };
        let forget = u64::try_from(self.options().forget_after.as_millis()).unwrap_or(u64::MAX);
        self.live.forget_unused(Time(now.0.saturating_sub(forget)));
        self.forget_ended(now).await;
        swept.and(buried)
    }

    /// Sees to what dead nodes left.
    pub(crate) async fn bury(&self, now: Time) -> Result<(), StoreError> {
        if planted("no-burial") {
            return Ok(());
        }
        self.store().bury_dead_nodes(now).await.map(drop)
    }

    async fn sweep_store(&self, now: Time) -> Result<(), StoreError> {
        while self.store().sweep(now, BATCH).await? >= BATCH {
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Lets the backend know which sessions somebody reads here.
    fn tell_of_readers(&self, sessions: &[Arc<LiveSession>]) {
        if !self.shares_its_store() || self.is_draining() || self.attending.swap(true, Ordering::SeqCst) {
            return;
        }
        let read = sessions.iter().filter(|session| session.has_readers());
        let attended: Vec<_> = read.map(|session| self.handle(session)).collect();
        let engine = self.arc();
        self.spawn(async move {
            // A panic is logged, and the next sweep tries again.
            let _ = catch_panic(async { engine.backend().attended(attended).await }).await;
            engine.attending.store(false, Ordering::SeqCst);
        });
    }

    async fn fail_overdue_calls(&self, sessions: &[Arc<LiveSession>], now: Time) {
        let error = ErrorObject::internal(
            "deadline",
            "The call took longer than the server allows. Whether it took effect is not known.",
            false,
        );
        self.fail_overdue_exchanges(now, &error);
        for session in sessions {
            for (no, call) in session.overdue(now) {
                // The task that runs a job records why the job ended, and only then ends the call.
                let is_job = is_job(session.facts());
                if is_job && call.cancel.is_cancelled() {
                    continue;
                }
                tracing::warn!(session = %session.id().short(), call = %no, "a call is past its deadline");
                if is_job {
                    call.cancel.cancel();
                } else {
                    self.fail_soon(session, no, &call, &error).await;
                }
            }
        }
    }
}
