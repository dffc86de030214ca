//! What the store tells this node, handed to whom it concerns.

use std::sync::{Arc, Weak};

use steadfast_session::command::Heir;
use steadfast_session::{Facts, Lifecycle};
use steadfast_store::{Signal, Subscriber};

use crate::engine::Engine;
use crate::handle::SessionHandle;

/// The engine's ear at the store. Weak, so that a store does not keep its engine alive.
#[derive(Debug)]
pub(crate) struct Signals(Weak<Engine>);

impl Signals {
    pub(crate) fn new(engine: &Arc<Engine>) -> Self {
        Self(Arc::downgrade(engine))
    }
}

impl Subscriber for Signals {
    /// May run under a lock of the store, so it only hands things over.
    fn signal(&self, signal: Signal<'_>) {
        let Some(engine) = self.0.upgrade() else { return };
        match signal {
            Signal::News(news) => {
                let session = engine.live.get(&news.session);
                // Somebody who waits says so again and again.
                let is_taken = |call| session.as_ref().is_some_and(|session| session.has_taken(call));
                let mut errands = news.errands.iter().filter(|(_, owner)| *owner == engine.node());
                if errands.any(|(call, _)| !is_taken(*call)) {
                    engine.run_errands_soon(news.session);
                }
                let Some(session) = session else { return };
                let chores = session.take_news(&news, engine.node());
                if chores.look {
                    engine.look_soon(&session);
                }
                if chores.send_asks {
                    engine.clone().spawn(async move { engine.send_asks(&session) });
                }
            }
            Signal::Lifecycle { facts, event } => {
                engine.listeners.report(facts, event.into());
                if let Lifecycle::Closed(_) = event {
                    engine.live.remove(&facts.id);
                    // The backend drops its handler there, which is the user's code.
                    let session = SessionHandle::new(Arc::clone(&engine), Arc::clone(facts));
                    engine.spawn(async move { session.engine().backend().closed(&session) });
                }
            }
        }
    }

    /// This node, which is there and buries.
    fn heir(&self, _facts: &Facts) -> Heir {
        self.0.upgrade().map_or(Heir::Nobody, |engine| Heir::Node(engine.node()))
    }
}
