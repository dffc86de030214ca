//! Writing down what is seen.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use steadfast_verify::{Entry, Seen};

use crate::clock::Clock;

/// Everybody's notebook. A run is bounded by its number of calls, and so is this.
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

    pub(crate) fn note(&self, seen: Seen) {
        // Under the lock, so that times never go back.
        let mut entries = self.entries();
        entries.push(Entry { at: self.clock.now(), seen });
    }

    /// A number for a connection that is about to be read.
    pub(crate) fn connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds what others have written down.
    pub(crate) fn add(&self, others: Vec<Entry>) {
        self.entries().extend(others);
    }

    pub(crate) fn take(&self) -> Vec<Entry> {
        let mut entries = std::mem::take(&mut *self.entries());
        entries.sort_by_key(|entry| entry.at);
        entries
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes a history, one entry for each line.
pub(crate) fn write(history: &[Entry], path: &Path) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for entry in history {
        serde_json::to_writer(&mut file, entry)?;
        file.write_all(b"\n")?;
    }
    file.flush()
}
