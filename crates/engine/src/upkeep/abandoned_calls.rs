//! Cancels stateless requests whose client has disconnected and not resumed in time.
//!
//! Only requests that were promoted to jobs need this; any other request is cancelled when its
//! connection breaks. The node that runs the request decides. Its client may have resumed at
//! another node, so it asks the store when the last connection was lost.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use steadfast_session::{Holdings, SessionId, Time};

use crate::engine::Engine;
use crate::panics::catch_panic;
use crate::sessions::LiveSession;

/// Since when the jobs that run on this node have had no reader, as far as this node has asked.
#[derive(Debug, Default)]
pub(crate) struct ReaderChecks {
    absences: Mutex<BTreeMap<SessionId, Absence>>,
    /// True while the jobs are checked, so that checks do not overlap.
    is_running: AtomicBool,
}

/// A time without readers.
#[derive(Clone, Copy, Debug)]
struct Absence {
    /// When it began, by the clock of the node that lost the connection. That clock may differ from
    /// the clock of this node, so the value only identifies the absence.
    detached_at: Time,
    /// When this node may cancel the call, by its own clock.
    grace_ends: Time,
}

impl ReaderChecks {
    /// Keeps the entries of these jobs, and returns the jobs that the store must be asked about.
    fn due(&self, unread: Vec<Arc<LiveSession>>, now: Time) -> Vec<Arc<LiveSession>> {
        let mut absences = self.absences();
        let before = std::mem::take(&mut *absences);
        let known = |session: &LiveSession| before.get(&session.id()).copied();
        *absences = unread.iter().filter_map(|session| Some((session.id(), known(session)?))).collect();
        unread
            .into_iter()
            .filter(|session| known(session).is_none_or(|absence| absence.grace_ends <= now))
            .collect()
    }

    /// Records what the store says. Returns when the grace of the absence ends, which began when
    /// this node first heard of it. `None` if the job has a reader.
    fn record(&self, session: SessionId, detached_at: Option<Time>, grace_ends: Time) -> Option<Time> {
        let mut absences = self.absences();
        let known = absences.remove(&session).filter(|known| Some(known.detached_at) == detached_at);
        let absence = known.or_else(|| detached_at.map(|detached_at| Absence { detached_at, grace_ends }))?;
        absences.insert(session, absence);
        Some(absence.grace_ends)
    }

    fn absences(&self) -> MutexGuard<'_, BTreeMap<SessionId, Absence>> {
        self.absences.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// Starts a check of the jobs that run on this node, unless one is in progress. The sweep does
    /// not wait for it: a slow store must not delay what else depends on time.
    pub(crate) fn cancel_abandoned_calls(&self, sessions: &[Arc<LiveSession>], now: Time) {
        let is_unread = |session: &&Arc<LiveSession>| {
            session.facts().is_call_job() && !session.has_readers() && !session.running_calls().is_empty()
        };
        if self.reader_checks.is_running.swap(true, Ordering::SeqCst) {
            return;
        }
        let unread = sessions.iter().filter(is_unread).cloned().collect();
        let due = self.reader_checks.due(unread, now);
        let engine = self.arc();
        self.spawn(async move {
            let check = |engine: Arc<Self>, session: Arc<LiveSession>| async move {
                engine.cancel_if_abandoned(&session, now).await;
            };
            // A panic is logged, and the next sweep tries again.
            let _ = catch_panic(engine.for_each(due, check)).await;
            engine.reader_checks.is_running.store(false, Ordering::SeqCst);
        });
    }

    async fn cancel_if_abandoned(&self, session: &Arc<LiveSession>, now: Time) {
        match self.store().holdings(session.id(), self.node()).await {
            Ok(Holdings::Held { detached_at, .. }) => {
                let grace_ends = now.plus(self.options().resume_grace);
                let ends = self.reader_checks.record(session.id(), detached_at, grace_ends);
                // A client may have come back while the store was asked.
                if ends.is_some_and(|ends| ends <= now) && !session.has_readers() {
                    tracing::debug!(session = %session.id().short(), "cancelling a stateless request whose client did not resume");
                    session.cancel_calls();
                }
            }
            Ok(Holdings::NoSession) => drop(self.session_gone(session)),
            // The next sweep asks again.
            Err(error) => tracing::debug!(%error, "could not read whether a job has a reader"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The clock of the node that lost the connection does not matter.
    #[test]
    fn the_grace_begins_when_the_owner_hears_of_the_absence() {
        let (checks, session) = (ReaderChecks::default(), SessionId::derived("test", &[]));
        let grace = Duration::from_secs(5);
        for skewed in [Time(0), Time(u64::MAX - 1)] {
            let record = |detached_at, now: u64| checks.record(session, detached_at, Time(now).plus(grace));
            assert_eq!(record(None, 0), None);
            assert_eq!(record(Some(skewed), 1_000), Some(Time(6_000)));
            assert_eq!(record(Some(skewed), 3_000), Some(Time(6_000)), "the same absence");
            assert_eq!(record(Some(Time(skewed.0 + 1)), 4_000), Some(Time(9_000)), "another one");
            assert_eq!(record(None, 5_000), None);
            assert_eq!(record(Some(skewed), 6_000), Some(Time(11_000)), "a reader was there meanwhile");
        }
    }
}
