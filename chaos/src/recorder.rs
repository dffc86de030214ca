//! The recorder of a run. It collects what clients and the nemesis see, in memory.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use steadfast_verify::{Entry, Seen};

use crate::clock::Clock;

/// All clones share one list. The number of calls of a run bounds its length.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    clock: Clock,
    entries: Arc<Mutex<Vec<Entry>>>,
    connections: Arc<AtomicU64>,
}

impl Recorder {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, entries: Arc::default(), connections: Arc::default() }
    }

    pub(crate) fn record(&self, seen: Seen) {
        // The clock is read under the lock, so that entries are in the order of their times.
        let mut entries = self.entries();
        entries.push(Entry { at: self.clock.now(), seen });
    }

    /// Returns a number that no other connection of this run has.
    pub(crate) fn next_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds entries that another process has recorded.
    pub(crate) fn add(&self, entries: Vec<Entry>) {
        self.entries().extend(entries);
    }

    /// Removes all entries, and returns them in the order of their times.
    pub(crate) fn take(&self) -> Vec<Entry> {
        let mut entries = std::mem::take(&mut *self.entries());
        entries.sort_by_key(|entry| entry.at);
        entries
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes a history as JSON, one entry per line.
pub(crate) fn write(history: &[Entry], path: &Path) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for entry in history {
        serde_json::to_writer(&mut file, entry)?;
        file.write_all(b"\n")?;
    }
    file.flush()
}
