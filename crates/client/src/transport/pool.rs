//! Connections that are kept for the next request.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use super::line::{Io, Line};

/// How long a connection is kept for the next request. Node and uvicorn close theirs after 5 s: a request that is under way
/// then is lost, and nobody can tell whether it was begun.
const MAX_IDLE: Duration = Duration::from_secs(4);

/// Connections that are kept for the next request.
const MAX_KEPT: usize = 1024;

/// Connections that wait for a request.
#[derive(Debug)]
pub(super) struct Pool<T: Io>(Mutex<Kept<T>>);

#[derive(Debug)]
struct Kept<T: Io> {
    /// The one that was used last is at the end.
    idle: Vec<Idle<T>>,
    /// Somebody looks after them.
    is_swept: bool,
}

#[derive(Debug)]
struct Idle<T: Io> {
    line: Box<Line<T>>,
    since: Instant,
}

impl<T: Io> Default for Pool<T> {
    fn default() -> Self {
        Self(Mutex::new(Kept { idle: Vec::new(), is_swept: false }))
    }
}

impl<T: Io> Pool<T> {
    /// A connection to this host that can be used here. Those of another runtime would do, but each of their answers had to be told
    /// from one thread to another.
    pub(super) fn take(&self, host: &str) -> Option<Box<Line<T>>> {
        let home = Handle::current().id();
        loop {
            let mut kept = self.kept();
            let at = kept.idle.iter().rposition(|idle| idle.line.home == home && idle.line.host == host)?;
            let Idle { mut line, since } = kept.idle.remove(at);
            drop(kept);
            if since.elapsed() < MAX_IDLE && line.is_usable() {
                return Some(line);
            }
        }
    }

    pub(super) fn put(self: &Arc<Self>, line: Box<Line<T>>) {
        let mut kept = self.kept();
        if kept.idle.len() >= MAX_KEPT {
            return;
        }
        kept.idle.push(Idle { line, since: Instant::now() });
        if !std::mem::replace(&mut kept.is_swept, true) {
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
    }

    /// Lets go of connections that have waited too long. Gives whether any are left.
    fn let_go(&self) -> bool {
        let mut kept = self.kept();
        let (old, young) =
            std::mem::take(&mut kept.idle).into_iter().partition(|idle| idle.since.elapsed() >= MAX_IDLE);
        kept.idle = young;
        kept.is_swept = !kept.idle.is_empty();
        let is_swept = kept.is_swept;
        drop(kept);
        let old: Vec<Idle<T>> = old;
        drop(old);
        is_swept
    }

    fn kept(&self) -> MutexGuard<'_, Kept<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn sweep<T: Io>(pool: Weak<Pool<T>>) {
    loop {
        tokio::time::sleep(MAX_IDLE).await;
        match pool.upgrade() {
            Some(pool) if pool.let_go() => {}
            _ => return,
        }
    }
}
