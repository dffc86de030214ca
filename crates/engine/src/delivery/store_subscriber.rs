//! Receives the signals of the store and passes them to sessions, listeners and the backend.

use std::sync::{Arc, Weak};

use steadfast_session::command::Successor;
use steadfast_session::{Facts, Lifecycle};
use steadfast_store::{Signal, Subscriber};

use crate::engine::Engine;
use crate::internal_sessions::is_internal;

/// The engine's subscription at the store. It holds a weak reference, so that the store does not
/// keep the engine alive.
#[derive(Debug)]
pub(crate) struct Signals(Weak<Engine>);

impl Signals {
    pub(crate) fn new(engine: &Arc<Engine>) -> Self {
        Self(Arc::downgrade(engine))
    }
}

impl Subscriber for Signals {
    /// The store may hold a lock during this call, so it uses the store only in new tasks.
    fn signal(&self, signal: Signal<'_>) {
        let Some(engine) = self.0.upgrade() else { return };
        match signal {
            Signal::SessionUpdate(update) => {
                let session = engine.sessions.get(&update.session);
                // Nodes repeat the hint for a forwarded call until it has started.
                let is_accepted = |call| session.as_ref().is_some_and(|session| session.has_accepted(call));
                let mut forwarded = update.forwarded.iter().filter(|(_, owner)| *owner == engine.node());
                if forwarded.any(|(call, _)| !is_accepted(*call)) {
                    engine.handle_hint(update.session);
                }
                let Some(session) = session else { return };
                let follow_ups = session.apply_update(&update, engine.node());
                if follow_ups.poll_store {
                    engine.poll_soon(&session);
                }
                if follow_ups.send_server_requests {
                    engine.clone().spawn(async move { engine.send_server_requests(&session) });
                }
            }
            Signal::Lifecycle { facts, event } => {
                engine.listeners.report(facts, event.into());
                if let Lifecycle::Closed(_) = event {
                    engine.sessions.remove(&facts.id);
                    if is_internal(facts) {
                        return;
                    }
                    // In a task, because the backend may run destructors of user code here.
                    let facts = Arc::clone(facts);
                    engine.clone().spawn(async move { engine.notify_closed(&facts) });
                }
            }
        }
    }

    /// This node can take over the calls of a node that it reaps.
    fn successor(&self, _facts: &Facts) -> Successor {
        self.0.upgrade().map_or(Successor::None, |engine| Successor::Node(engine.node()))
    }
}
