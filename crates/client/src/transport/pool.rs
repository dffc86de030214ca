//! Idle connections that later requests can reuse.

use std::sync::{Arc, Weak};
use std::time::Duration;

use steadfast_wire::Mutex;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::connection::{Connection, Io};

/// How long an idle connection stays in the pool. Node and uvicorn close idle connections after 5
/// s. A request that is sent at that moment is lost, and the client cannot know whether the server
/// executed it.
const MAX_IDLE_TIME: Duration = Duration::from_secs(4);

/// How many idle connections the pool holds.
const MAX_IDLE_CONNECTIONS: usize = 1024;

/// The idle connections.
#[derive(Debug)]
pub(super) struct Pool<T: Io>(Mutex<PoolState<T>>);

#[derive(Debug)]
struct PoolState<T: Io> {
    /// Ordered by last use; the most recently used connection is last.
    idle: Vec<Idle<T>>,
    /// Whether a task that drops expired connections is running.
    has_sweeper: bool,
}

#[derive(Debug)]
struct Idle<T: Io> {
    connection: Box<Connection<T>>,
    since: Instant,
}

impl<T: Io> Default for Pool<T> {
    fn default() -> Self {
        Self(Mutex::new(PoolState { idle: Vec::new(), has_sweeper: false }))
    }
}

impl<T: Io> Pool<T> {
    /// Takes a usable connection to this host that belongs to the current runtime. A connection of
    /// another runtime would work, but each of its responses would wake another thread.
    pub(super) fn take(&self, host: &str) -> Option<Box<Connection<T>>> {
        let runtime = Handle::current().id();
        loop {
            let mut state = self.0.lock();
            let at = state
                .idle
                .iter()
                .rposition(|idle| idle.connection.runtime == runtime && idle.connection.host == host)?;
            let Idle { mut connection, since } = state.idle.remove(at);
            drop(state);
            if since.elapsed() < MAX_IDLE_TIME && connection.is_usable() {
                return Some(connection);
            }
        }
    }

    pub(super) fn put(self: &Arc<Self>, connection: Box<Connection<T>>) {
        let mut state = self.0.lock();
        if state.idle.len() >= MAX_IDLE_CONNECTIONS {
            return;
        }
        state.idle.push(Idle { connection, since: Instant::now() });
        if !std::mem::replace(&mut state.has_sweeper, true) {
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
    }

    /// Drops expired connections. Returns true if connections are left.
    fn drop_expired(&self) -> bool {
        let mut state = self.0.lock();
        let (old, young) = std::mem::take(&mut state.idle)
            .into_iter()
            .partition(|idle| idle.since.elapsed() >= MAX_IDLE_TIME);
        state.idle = young;
        state.has_sweeper = !state.idle.is_empty();
        let has_sweeper = state.has_sweeper;
        drop(state);
        let old: Vec<Idle<T>> = old;
        drop(old);
        has_sweeper
    }
}

async fn sweep<T: Io>(pool: Weak<Pool<T>>) {
    loop {
        tokio::time::sleep(MAX_IDLE_TIME).await;
        match pool.upgrade() {
            Some(pool) if pool.drop_expired() => {}
            _ => return,
        }
    }
}
