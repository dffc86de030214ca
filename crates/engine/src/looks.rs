//! Looking at what the store holds for this node: answers and calls that came to other nodes, and calls that others have ended.
//!
//! A signal of the store is a hint to look. Where other processes change sessions without one, this node looks by itself
//! from time to time: at those sessions in which it has something in flight, and only if others have changed anything.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use steadfast_session::command::Collect;
use steadfast_session::{AskNo, CallNo, Holdings};
use steadfast_store::{StoreError, StoreExt};

use crate::calls::guarded;
use crate::engine::Engine;
use crate::live::LiveSession;

impl Engine {
    /// Looks from time to time, if the store says that this is needed.
    pub(crate) fn start_looking(&self) {
        let Some(interval) = self.store().poll_interval() else { return };
        let engine = Arc::downgrade(&self.arc());
        self.spawn(async move {
            let mut seen = None;
            loop {
                tokio::time::sleep(interval).await;
                let Some(engine) = engine.upgrade() else { return };
                let looked = guarded(async {
                    engine.remind_others().await;
                    engine.look_everywhere(&mut seen).await
                });
                match looked.await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::debug!(%error, "the store does not say what it holds"),
                    Err(panic) => tracing::error!(%panic, "a look at the store panicked"),
                }
            }
        });
    }

    /// `seen` says up to which changes of other processes this has looked before. Sessions that could not be looked at are
    /// looked at by the sweeper, some at a time, until one look has succeeded.
    async fn look_everywhere(&self, seen: &mut Option<u64>) -> Result<(), StoreError> {
        // Asked even if nothing is done here: a store that cannot tell of calls for this node looks for them when it is asked.
        // In this order: what begins after the number was read can only be changed with another number.
        let number = self.store().changes_elsewhere().await;
        let has_changed = !matches!(&number, Ok(Some(number)) if seen.as_ref() == Some(number));
        let is_worth_it = |session: &Arc<LiveSession>| {
            session.is_busy() && !session.is_suspect() && (has_changed || session.looking.is_due())
        };
        let due = self.live.all().into_iter().filter(is_worth_it);
        self.for_each(due, |engine, session| async move {
            if let Err(error) = engine.look_in_turn(&session).await {
                // All of them, if the store is away; the sweeper says that once.
                tracing::debug!(session = %session.id().short(), %error, "a session cannot be looked at");
                session.suspect();
            }
        })
        .await;
        *seen = number?;
        Ok(())
    }

    /// Looks at a session because there is something to be found.
    pub(crate) fn look_soon(&self, session: &Arc<LiveSession>) {
        let (engine, session) = (self.arc(), Arc::clone(session));
        self.spawn(async move {
            if let Err(error) = engine.patiently(|| engine.look_in_turn(&session)).await {
                tracing::warn!(session = %session.id().short(), %error, "answers cannot be collected yet");
                session.suspect();
            }
        });
    }

    /// Looks, and looks again for whoever wanted to meanwhile. If somebody else looks already, that one does so, and this gives
    /// `false`: what comes of that look, the other one knows.
    pub(crate) async fn look_in_turn(&self, session: &Arc<LiveSession>) -> Result<bool, StoreError> {
        let mut turn = session.looking.start();
        let is_mine = turn.is_some();
        while let Some(looking) = turn {
            let looked = self.look(session).await;
            turn = looking.again();
            looked?;
        }
        Ok(is_mine)
    }

    /// One look. May be repeated whatever came of the one before: an answer stays in the store until the store hears that
    /// its asker has it, and an asker gets it once.
    async fn look(&self, session: &Arc<LiveSession>) -> Result<(), StoreError> {
        let settled = session.settled();
        // Those that are known here were in the store before. What the store does not hold any more is over.
        let running = session.running_calls();
        let held = self.store().held(session.id(), self.node()).await?;
        // What is being begun or asked may have been ended or answered before it is known here: then look another time.
        session.looking.set_due(settled.is_none() || session.settled() != settled);
        let Holdings::Held { calls, errands, answers, .. } = held else {
            self.lost(session);
            return Ok(());
        };
        let is_held = |call: &CallNo| calls.binary_search_by_key(call, |(no, _)| *no).is_ok();
        let stopped: Vec<CallNo> = running.into_iter().filter(|call| !is_held(call)).collect();
        session.stopped(&stopped);
        self.run_errands(session, errands);
        let collected = self.hand_over_kept(session, answers).await;
        if collected.is_err() {
            session.looking.set_due(true);
        }
        collected
    }

    async fn hand_over_kept(
        &self,
        session: &Arc<LiveSession>,
        answers: Vec<(AskNo, Bytes)>,
    ) -> Result<(), StoreError> {
        let asks = session.asks().hand_over(answers);
        if asks.is_empty() {
            return Ok(());
        }
        let collected = self.store().run(session.id(), Collect { node: self.node(), asks }, self.now()).await;
        if collected.is_ok() {
            session.asks().collected();
        }
        self.send_asks(session);
        collected.map(drop)
    }
}

/// Sees to it that one task at a time looks at a session, and looks again if something has changed meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Looking {
    state: Mutex<State>,
    /// The last look may have been too early to see everything.
    is_due: AtomicBool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Nobody,
    Somebody,
    /// Somebody looks and has to look again.
    Again,
}

impl Looking {
    /// The right to look. `None` if somebody else has it, who then looks again.
    pub(crate) fn start(&self) -> Option<Turn<'_>> {
        let mut state = self.lock();
        if *state == State::Nobody {
            *state = State::Somebody;
            return Some(Turn(Some(self)));
        }
        *state = State::Again;
        None
    }

    fn is_due(&self) -> bool {
        self.is_due.load(Ordering::SeqCst)
    }

    fn set_due(&self, is_due: bool) {
        self.is_due.store(is_due, Ordering::SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to look, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a>(Option<&'a Looking>);

impl Turn<'_> {
    /// Keeps the right if there is a reason to look again, and gives it back otherwise.
    pub(crate) fn again(mut self) -> Option<Self> {
        let looking = self.0.take()?;
        let mut state = looking.lock();
        if *state == State::Again {
            *state = State::Somebody;
            drop(state);
            return Some(Turn(Some(looking)));
        }
        *state = State::Nobody;
        None
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(looking) = self.0 {
            *looking.lock() = State::Nobody;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_looks_and_looks_again_for_the_others() {
        let looking = Looking::default();
        let turn = looking.start().unwrap();
        assert!(looking.start().is_none() && looking.start().is_none());
        let turn = turn.again().unwrap();
        assert!(turn.again().is_none());
        drop(looking.start().unwrap());
        assert!(looking.start().is_some(), "a turn that is dropped is over");
    }
}
