//! The record of verdicts in the store. All nodes of an endpoint use it, and so does the next
//! process.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use steadfast_engine::{Engine, Principal, PrincipalRecord, StateError, Time};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{SerialReason, ServerTag, Verdict};

/// The subject of the record. It is part of the record's id, so it never changes.
const SUBJECT: &str = "parallel calls";

/// How long a node trusts what it has read. So long a verdict of another node takes to reach it.
const READ_TTL: Duration = Duration::from_secs(1);

/// How long a verdict is valid. Then the server is checked again: its version may be the same
/// although it was repaired.
pub(super) const VERDICT_TTL: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How many verdicts the record keeps. One more drops the oldest.
const MAX_VERDICTS: usize = 256;

/// How often a write is tried when other nodes write as well.
const MAX_WRITES: usize = 16;

/// When this node has read the record last. Held by the task that reads it.
#[derive(Debug, Default)]
pub(crate) struct LastRead(Mutex<Option<Instant>>);

impl LastRead {
    /// Returns true if the record should be read and no task reads it.
    pub(super) fn is_due(&self) -> bool {
        self.0.try_lock().is_ok_and(|last| is_outdated(*last))
    }

    /// Reads the record with `load`, unless this node has just read it. If another task reads it,
    /// waits for that.
    pub(super) async fn read(&self, load: impl Future<Output = ()>) {
        let mut last = self.0.lock().await;
        if is_outdated(*last) {
            load.await;
            *last = Some(Instant::now());
        }
    }
}

fn is_outdated(last: Option<Instant>) -> bool {
    last.is_none_or(|last| last.elapsed() >= READ_TTL)
}

/// One verdict in the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredVerdict {
    pub(super) replica: String,
    /// Name and version of the server, as JSON text.
    pub(super) server: String,
    /// Why the server gets one call at a time. `None`: it gets parallel calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    serial: Option<SerialReason>,
    /// When it was decided, in milliseconds since 1970.
    at: u64,
}

impl StoredVerdict {
    pub(super) fn new(replica: &str, server: &ServerTag, verdict: Verdict, now: Time) -> Self {
        let serial = match verdict {
            Verdict::Parallel => None,
            Verdict::Serial(reason) => Some(reason),
        };
        Self { replica: replica.to_owned(), server: server.as_str().to_owned(), serial, at: now.0 }
    }

    pub(super) fn verdict(&self) -> Verdict {
        self.serial.map_or(Verdict::Parallel, Verdict::Serial)
    }

    /// Returns how long the verdict is still valid. `None`: it has expired.
    pub(super) fn remaining(&self, now: Time) -> Option<Duration> {
        VERDICT_TTL.checked_sub(Duration::from_millis(now.0.saturating_sub(self.at)))
    }
}

/// Returns all verdicts that have not expired.
pub(super) async fn load(engine: &Engine) -> Result<Vec<StoredVerdict>, StateError> {
    let (mut all, _) = read(&record(engine)).await?;
    let now = engine.now();
    all.retain(|stored| stored.remaining(now).is_some());
    Ok(all)
}

/// Adds a verdict. A stored proof that the server has the fault is kept.
pub(super) async fn add(engine: &Engine, new: &StoredVerdict) -> Result<(), StateError> {
    let (record, now) = (record(engine), engine.now());
    for _ in 0..MAX_WRITES {
        let (mut all, version) = read(&record).await?;
        all.retain(|stored| stored.remaining(now).is_some());
        let is_same = |stored: &StoredVerdict| stored.replica == new.replica && stored.server == new.server;
        if let Some(stored) = all.iter().find(|stored| is_same(stored))
            && stored.verdict().then(new.verdict()) != new.verdict()
        {
            return Ok(());
        }
        all.retain(|stored| !is_same(stored));
        if all.len() >= MAX_VERDICTS {
            all.remove(0);
        }
        all.push(new.clone());
        // Numbers and strings always serialise.
        match record.store(version, serde_json::to_vec(&all).unwrap_or_default().into()).await {
            Err(StateError::Conflict { .. }) => {}
            stored => return stored,
        }
    }
    Err(StateError::Conflict { current: None })
}

fn record(engine: &Engine) -> PrincipalRecord {
    engine.record(SUBJECT, &Principal::anonymous())
}

/// Returns the content of the record and its version. A record that cannot be parsed counts as
/// empty.
async fn read(record: &PrincipalRecord) -> Result<(Vec<StoredVerdict>, Option<u64>), StateError> {
    let Some(entry) = record.load().await? else { return Ok((Vec::new(), None)) };
    Ok((serde_json::from_slice(&entry.bytes).unwrap_or_default(), Some(entry.version)))
}
