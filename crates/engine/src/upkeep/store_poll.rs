//! Reads what the store holds for this node: forwarded calls, answers of server requests that other
//! nodes received, and calls that other nodes have ended.
//!
//! A signal of the store triggers a poll of its session. If other nodes can change sessions without
//! a signal, this node also polls periodically: the sessions in which it has something in flight,
//! and only if other nodes have changed anything.

use std::sync::Arc;

use bytes::Bytes;
use steadfast_session::command::Collect;
use steadfast_session::{CallNo, Holdings, ServerRequestNo};
use steadfast_store::{StoreError, StoreExt};

use crate::engine::Engine;
use crate::panics::catch_panic_text;
use crate::sessions::LiveSession;

impl Engine {
    /// Starts the periodic poll, if the store requires one.
    pub(crate) fn start_store_poll(&self) {
        let Some(interval) = self.store().poll_interval() else { return };
        let engine = Arc::downgrade(&self.arc());
        self.spawn(async move {
            let mut seen = None;
            loop {
                tokio::time::sleep(interval).await;
                let Some(engine) = engine.upgrade() else { return };
                let polled = catch_panic_text(async {
                    engine.renotify_all().await;
                    engine.poll_all(&mut seen).await
                });
                match polled.await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::debug!(%error, "store poll failed"),
                    Err(panic) => tracing::error!(%panic, "store poll panicked"),
                }
            }
        });
    }

    /// Polls all sessions that may have changed. `seen` is the number of the last change by another
    /// node that this function has processed. A session that could not be polled is marked, and the
    /// sweeper polls it until that succeeds.
    async fn poll_all(&self, seen: &mut Option<u64>) -> Result<(), StoreError> {
        // The number is read even if this node has no sessions: some stores look for forwarded
        // calls when asked for it. It is read before the sessions are polled, so that a change
        // during the poll has a higher number.
        let number = self.store().external_change_count().await;
        let has_changed = !matches!(&number, Ok(Some(number)) if seen.as_ref() == Some(number));
        let is_due = |session: &Arc<LiveSession>| {
            session.is_busy()
                && !session.needs_reconcile()
                && (has_changed || session.store_poll.needs_repeat())
        };
        let due = self.sessions.all().into_iter().filter(is_due);
        self.for_each(due, |engine, session| async move {
            if let Err(error) = engine.poll_session(&session).await {
                // If the store is down, all polls fail; the sweeper logs that once.
                tracing::debug!(session = %session.id().short(), %error, "could not poll a session");
                session.mark_needs_reconcile();
            }
        })
        .await;
        *seen = number?;
        Ok(())
    }

    /// Polls a session in a task, with retries.
    pub(crate) fn poll_soon(&self, session: &Arc<LiveSession>) {
        let (engine, session) = (self.arc(), Arc::clone(session));
        self.spawn(async move {
            if let Err(error) = engine.with_retry(|| engine.poll_session(&session)).await {
                tracing::warn!(session = %session.id().short(), %error, "could not poll a session after a signal; the sweeper will retry");
                session.mark_needs_reconcile();
            }
        });
    }

    /// Polls a session, and again while other tasks ask for it. Returns false if another task polls
    /// the session already; that task then polls again and knows the result.
    pub(crate) async fn poll_session(&self, session: &Arc<LiveSession>) -> Result<bool, StoreError> {
        let mut guard = session.store_poll.start();
        let polled_here = guard.is_some();
        while let Some(flight) = guard {
            let polled = self.poll_once(session).await;
            guard = flight.finish_or_repeat();
            polled?;
        }
        Ok(polled_here)
    }

    /// Polls a session once. Repeating it is safe: an answer stays in the store until the store
    /// knows that it was delivered, and a waiter gets it once.
    async fn poll_once(&self, session: &Arc<LiveSession>) -> Result<(), StoreError> {
        let before = session.settled_operations();
        // Read before the store: a call of this list that the store does not hold has ended.
        let running = session.running_calls();
        let held = self.store().holdings(session.id(), self.node()).await?;
        // A call or server request in flight may have been ended or answered before this node knew
        // it. Then the session is polled again.
        session.store_poll.set_needs_repeat(before.is_none() || session.settled_operations() != before);
        let Holdings::Held { calls, forwarded, answers, .. } = held else {
            self.session_gone(session);
            return Ok(());
        };
        let is_held = |call: &CallNo| calls.binary_search_by_key(call, |(no, _)| *no).is_ok();
        let stopped: Vec<CallNo> = running.into_iter().filter(|call| !is_held(call)).collect();
        session.stop_calls(&stopped);
        self.run_forwarded(session, forwarded);
        let collected = self.collect_answers(session, answers).await;
        if collected.is_err() {
            session.store_poll.set_needs_repeat(true);
        }
        collected
    }

    async fn collect_answers(
        &self,
        session: &Arc<LiveSession>,
        answers: Vec<(ServerRequestNo, Bytes)>,
    ) -> Result<(), StoreError> {
        let server_requests = session.server_requests().deliver_stored_answers(answers);
        if server_requests.is_empty() {
            return Ok(());
        }
        let collected =
            self.store().run(session.id(), Collect { node: self.node(), server_requests }, self.now()).await;
        if collected.is_ok() {
            session.server_requests().mark_collected();
        }
        self.send_server_requests(session);
        collected.map(drop)
    }
}
