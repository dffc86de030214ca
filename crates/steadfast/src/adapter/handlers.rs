//! [`Handlers`]: creates the handler values and keeps one per session that this process serves.

use std::sync::Arc;

use steadfast_engine::SessionId;
use steadfast_store::sharded::{SessionMap, Sharded};

/// How many handler values a process creates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HandlerScope {
    /// One per session: rmcp handlers may keep state in their fields.
    #[default]
    Session,
    /// One for all sessions and requests.
    Process,
}

/// The handler values of this process.
pub(crate) struct Handlers<H> {
    factory: Box<dyn Fn() -> H + Send + Sync>,
    /// The only handler, with [`HandlerScope::Process`].
    shared: Option<Arc<H>>,
    shards: Sharded<SessionMap<Arc<H>>>,
}

impl<H> Handlers<H> {
    pub(crate) fn new(factory: Box<dyn Fn() -> H + Send + Sync>, scope: HandlerScope) -> Self {
        // Values of a type without fields cannot differ, so one is enough.
        let is_empty = size_of::<H>() == 0 && !std::mem::needs_drop::<H>();
        let shared = (scope == HandlerScope::Process || is_empty).then(|| Arc::new(factory()));
        Self { factory, shared, shards: Sharded::default() }
    }

    /// Returns the handler of a session, and creates it if this process has none.
    pub(crate) fn get(&self, id: SessionId) -> Arc<H> {
        if let Some(shared) = &self.shared {
            return Arc::clone(shared);
        }
        if let Some(handler) = self.shards.of(&id).get(&id) {
            return Arc::clone(handler);
        }
        // The factory and `drop` are the user's code, so they run outside the lock. If two requests
        // create a handler concurrently, the first one stays.
        let new = Arc::new((self.factory)());
        let handler = Arc::clone(self.shards.of(&id).entry(id).or_insert_with(|| Arc::clone(&new)));
        drop(new);
        handler
    }

    /// Returns the handler for one stateless request. Unless it is shared, it is dropped with the
    /// request.
    pub(crate) fn for_stateless_request(&self) -> Arc<H> {
        match &self.shared {
            Some(shared) => Arc::clone(shared),
            None => Arc::new((self.factory)()),
        }
    }

    pub(crate) fn close(&self, id: SessionId) {
        let handler = self.shards.of(&id).remove(&id);
        // `drop` is the user's code, so it runs outside the lock.
        drop(handler);
    }
}
