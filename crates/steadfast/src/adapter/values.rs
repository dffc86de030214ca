//! The handler values of the sessions that this process serves.

use std::sync::Arc;

use steadfast_engine::SessionId;
use steadfast_store::sharded::{SessionMap, Sharded};

/// How many handler values there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HandlerPer {
    /// One for each session, for as long as the session lives: rmcp handlers keep state in their fields.
    #[default]
    Session,
    /// One for all, for handlers that keep nothing.
    Process,
}

pub(crate) struct Values<H> {
    factory: Box<dyn Fn() -> H + Send + Sync>,
    shared: Option<Arc<H>>,
    shards: Sharded<SessionMap<Arc<H>>>,
}

impl<H> Values<H> {
    pub(crate) fn new(factory: Box<dyn Fn() -> H + Send + Sync>, per: HandlerPer) -> Self {
        // A handler without fields is the same in every session, so one is enough.
        let is_empty = size_of::<H>() == 0 && !std::mem::needs_drop::<H>();
        let shared = (per == HandlerPer::Process || is_empty).then(|| Arc::new(factory()));
        Self { factory, shared, shards: Sharded::default() }
    }

    /// The handler of a session; made anew if this process has not served the session before.
    pub(crate) fn get(&self, id: SessionId) -> Arc<H> {
        if let Some(shared) = &self.shared {
            return Arc::clone(shared);
        }
        if let Some(handler) = self.shards.of(&id).get(&id) {
            return Arc::clone(handler);
        }
        // The user's code runs outside the lock. If two requests make a value at once, the first stays.
        let made = Arc::new((self.factory)());
        let kept = Arc::clone(self.shards.of(&id).entry(id).or_insert_with(|| Arc::clone(&made)));
        drop(made);
        kept
    }

    /// A handler for a request without a session: what it keeps in its fields is gone when the request is.
    pub(crate) fn for_one_request(&self) -> Arc<H> {
        match &self.shared {
            Some(shared) => Arc::clone(shared),
            None => Arc::new((self.factory)()),
        }
    }

    pub(crate) fn close(&self, id: SessionId) {
        let handler = self.shards.of(&id).remove(&id);
        // The user's code again, and again outside the lock.
        drop(handler);
    }
}
