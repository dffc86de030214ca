//! Hints that the store holds calls for this node to run. A hint is kept until one poll of this
//! node after it has succeeded.

use std::collections::BTreeMap;

use steadfast_session::SessionId;
use steadfast_wire::Mutex;

use crate::engine::Engine;
use crate::refusal::Refusal;
use crate::upkeep::RoundRobin;

/// The sessions that a hint named and that were not polled successfully since. Bounded by the
/// number of sessions.
#[derive(Debug, Default)]
pub(crate) struct PendingHints {
    hints: Mutex<Hints>,
    round_robin: RoundRobin,
}

#[derive(Debug, Default)]
struct Hints {
    /// Counts all hints.
    count: u64,
    /// The number of the latest hint of each session.
    latest: BTreeMap<SessionId, u64>,
}

impl PendingHints {
    fn add(&self, session: SessionId) {
        let mut hints = self.hints.lock();
        hints.count += 1;
        let number = hints.count;
        hints.latest.insert(session, number);
    }

    fn next_batch(&self) -> Vec<SessionId> {
        let all = self.hints.lock().latest.keys().copied().collect();
        self.round_robin.next_batch(all, |id| *id)
    }

    fn latest(&self, session: SessionId) -> Option<u64> {
        self.hints.lock().latest.get(&session).copied()
    }

    /// A poll that began after hint `number` has succeeded. A later hint stays.
    fn resolve(&self, session: SessionId, number: u64) {
        let mut hints = self.hints.lock();
        if hints.latest.get(&session) == Some(&number) {
            hints.latest.remove(&session);
        }
    }
}

impl Engine {
    /// A hint says that this node has to run a call of the session. The node may not have served
    /// the session before.
    pub(crate) fn handle_hint(&self, session: SessionId) {
        self.pending_hints.add(session);
        let engine = self.arc();
        self.spawn(async move { engine.process_hint(session).await });
    }

    /// Polls the sessions whose hints could not be processed so far.
    pub(crate) async fn process_pending_hints(&self) {
        self.for_each(self.pending_hints.next_batch(), |engine, session| async move {
            engine.process_hint(session).await
        })
        .await;
    }

    async fn process_hint(&self, id: SessionId) {
        let Some(number) = self.pending_hints.latest(id) else { return };
        let polled = async {
            let session = self.find(id, None).await?;
            self.poll_session(&session).await.map_err(Refusal::from)
        };
        match polled.await {
            Ok(true) | Err(Refusal::NoSession) => self.pending_hints.resolve(id, number),
            // Another task polls the session, and may fail. The hint stays until a poll of this
            // function succeeds.
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(session = %id.short(), %error, "could not read the forwarded calls of a session; the sweeper will retry");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_resolved_by_a_poll_that_began_after_it() {
        let (pending_hints, id) = (PendingHints::default(), SessionId::from_random([1; SessionId::BYTES]));
        pending_hints.add(id);
        let first = pending_hints.latest(id).unwrap();
        pending_hints.add(id);
        pending_hints.resolve(id, first);
        assert_eq!(pending_hints.next_batch(), [id], "a later hint stays");
        let second = pending_hints.latest(id).unwrap();
        pending_hints.resolve(id, second);
        pending_hints.add(id);
        pending_hints.resolve(id, second);
        assert_eq!(pending_hints.next_batch(), [id], "a new hint stays");
    }
}
