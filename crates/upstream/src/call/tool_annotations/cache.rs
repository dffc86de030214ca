//! The cache of tool annotations on this node.
//!
//! A call whose outcome is unknown is retried only if its tool has `readOnlyHint` or
//! `idempotentHint`. A server may show different tools to different principals, so annotations are
//! kept per principal. They come from, in this order:
//!
//! 1. the cache of this node, for [`CACHE_TTL`];
//! 2. a record in the store, if nodes share it, for [`ANNOTATIONS_TTL`] after it was read from the
//!    server;
//! 3. `tools/list` in an upstream session of the principal (`read.rs`). Concurrent calls share one
//!    read. After a failure calls count as not idempotent, and the delay before the next read
//!    doubles.
//!
//! `notifications/tools/list_changed` invalidates the cache and the record, and so does an upstream
//! session that was opened again or moved. Other nodes notice that after [`CACHE_TTL`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use steadfast_engine::{Principal, Time};
use tokio::sync::{Notify, watch};

use super::idempotent_tools::IdempotentTools;

/// How long a node uses its copy before it compares it with the record in the store.
pub(crate) const CACHE_TTL: Duration = Duration::from_secs(60);

/// How long annotations are used after they were read from the server.
pub(crate) const ANNOTATIONS_TTL: Duration = Duration::from_secs(10 * 60);

/// After this time a call causes another read, while the old annotations are still used.
pub(crate) const REFRESH_AFTER: Duration = Duration::from_secs(5 * 60);

/// How many principals are cached. One more drops all entries that are not being read.
const MAX_PRINCIPALS: usize = 4096;

/// The content of the record in the store.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Stored {
    /// When the annotations were read, in milliseconds since 1970. `None`: the list has changed
    /// since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) read_at: Option<u64>,
    #[serde(default)]
    pub(crate) idempotent: IdempotentTools,
}

/// The annotations that this node has cached, for all principals of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct ToolAnnotations {
    entries: Mutex<Entries>,
    /// Notified when a record in the store was invalidated.
    record_written: Notify,
}

#[derive(Debug, Default)]
struct Entries {
    by_principal: HashMap<Principal, Entry>,
    /// The number of entries ever created plus the number of invalidations.
    generations: u64,
}

#[derive(Debug, Default)]
struct Entry {
    known: Option<Known>,
    /// Changes with each invalidation. The result of a read that began under another generation is
    /// not used.
    generation: u64,
    /// The read in progress. A closed channel without a result belongs to a task that was dropped.
    reading: Option<watch::Receiver<Option<ReadResult>>>,
    failure: Option<Failure>,
    invalidating: Invalidating,
}

#[derive(Debug)]
struct Known {
    tools: Arc<IdempotentTools>,
    read_at: Time,
    cached_until: Time,
}

/// The last read failed.
#[derive(Clone, Copy, Debug)]
struct Failure {
    delay: Duration,
    retry_at: Time,
}

/// Whether a task is invalidating the record in the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Invalidating {
    #[default]
    No,
    Yes,
    /// The list has changed again since the task began.
    Again,
}

/// Whether a record in the store has to be invalidated as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharedRecord {
    Kept,
    None,
}

/// Result of a read.
#[derive(Clone, Debug)]
pub(crate) enum ReadResult {
    Known(Arc<IdempotentTools>),
    /// The server did not answer, or not with a list.
    Failed,
    /// The upstream session of the read has ended. Another session may be used.
    Abandoned,
}

/// How a caller gets the annotations.
#[derive(Debug)]
pub(crate) enum Lookup {
    Known(Arc<IdempotentTools>),
    /// The last read failed a moment ago.
    Unavailable,
    /// Another caller reads.
    Join(watch::Receiver<Option<ReadResult>>),
    /// The caller must read and send the result.
    Read(watch::Sender<Option<ReadResult>>),
}

impl Stored {
    pub(crate) fn new(tools: &IdempotentTools, read_at: Time) -> Self {
        Self { read_at: Some(read_at.0), idempotent: tools.clone() }
    }

    /// Returns when the record was read, if that was at most `age` ago. Allows for clocks that
    /// differ between nodes.
    pub(crate) fn read_within(&self, age: Duration, now: Time) -> Option<Time> {
        let read_at = self.read_at?;
        (u128::from(read_at.abs_diff(now.0)) < age.as_millis()).then_some(Time(read_at))
    }
}

impl ToolAnnotations {
    /// Returns the annotations, if the cached copy may be used.
    pub(crate) fn cached(&self, principal: &Principal, now: Time) -> Option<Arc<IdempotentTools>> {
        let entries = self.entries();
        let known = entries.by_principal.get(principal)?.known.as_ref()?;
        (now < known.cached_until).then(|| Arc::clone(&known.tools))
    }

    pub(crate) fn look_up(&self, principal: &Principal, now: Time) -> Lookup {
        let mut entries = self.entries();
        let Some(entry) = entries.of(principal) else { return Lookup::Unavailable };
        match &entry.known {
            Some(known) if now < known.cached_until => return Lookup::Known(Arc::clone(&known.tools)),
            _ => {}
        }
        if let Some(reading) = entry.reading() {
            return Lookup::Join(reading);
        }
        if entry.failure.is_some_and(|failure| now < failure.retry_at) {
            return Lookup::Unavailable;
        }
        Lookup::Read(entry.start_reading())
    }

    /// Returns a sender if the annotations should be read again. The caller must read and send the
    /// result.
    pub(crate) fn refresh(
        &self,
        principal: &Principal,
        now: Time,
    ) -> Option<watch::Sender<Option<ReadResult>>> {
        let mut entries = self.entries();
        let entry = entries.by_principal.get_mut(principal)?;
        let is_due = now >= entry.known.as_ref()?.read_at.plus(REFRESH_AFTER)
            && entry.failure.is_none_or(|failure| now >= failure.retry_at)
            && entry.reading().is_none();
        is_due.then(|| entry.start_reading())
    }

    /// Returns a number that changes when the annotations are invalidated.
    pub(crate) fn generation(&self, principal: &Principal) -> u64 {
        self.entries().of(principal).map_or(0, |entry| entry.generation)
    }

    /// Stores annotations that were read at `read_at`. Returns false if they were invalidated
    /// since.
    pub(crate) fn set(
        &self,
        principal: &Principal,
        tools: &Arc<IdempotentTools>,
        generation: u64,
        read_at: Time,
        cached_until: Time,
    ) -> bool {
        let mut entries = self.entries();
        let Some(entry) = entries.of(principal) else { return true };
        let is_current = entry.generation == generation;
        if is_current {
            entry.known = Some(Known { tools: Arc::clone(tools), read_at, cached_until });
            entry.failure = None;
        }
        is_current
    }

    /// Records that a read failed after `elapsed`. The longer it took, the longer the delay before
    /// the next read.
    pub(crate) fn failed(&self, principal: &Principal, elapsed: Duration, now: Time) {
        let mut entries = self.entries();
        let Some(entry) = entries.of(principal) else { return };
        let first = Duration::from_secs(1).saturating_add(elapsed * 3);
        let delay =
            entry.failure.map_or(first, |failure| failure.delay.saturating_mul(2)).min(ANNOTATIONS_TTL);
        entry.failure = Some(Failure { delay, retry_at: now.plus(delay) });
    }

    /// Records that the server does not declare the capability `tools`, so that it is not asked
    /// ahead of need.
    pub(crate) fn not_offered(&self, principal: &Principal, now: Time) {
        if let Some(entry) = self.entries().of(principal) {
            entry.failure = Some(Failure { delay: ANNOTATIONS_TTL, retry_at: now.plus(ANNOTATIONS_TTL) });
        }
    }

    /// Drops the annotations. Returns true if the caller must invalidate the record in the store
    /// and then call [`ToolAnnotations::invalidated`].
    pub(crate) fn invalidate(&self, principal: &Principal, record: SharedRecord) -> bool {
        let mut entries = self.entries();
        entries.generations += 1;
        let generation = entries.generations;
        // The cache is full and has no entry for the principal. The record must be invalidated all
        // the same.
        let Some(entry) = entries.of(principal) else { return record == SharedRecord::Kept };
        entry.generation = generation;
        (entry.known, entry.failure) = (None, None);
        let is_first = record == SharedRecord::Kept && entry.invalidating == Invalidating::No;
        entry.invalidating = match entry.invalidating {
            _ if record == SharedRecord::None => entry.invalidating,
            Invalidating::No => Invalidating::Yes,
            Invalidating::Yes | Invalidating::Again => Invalidating::Again,
        };
        is_first
    }

    /// Records that the record in the store was invalidated. Returns true if that must be done once
    /// more, because the list has changed meanwhile.
    pub(crate) fn invalidated(&self, principal: &Principal) -> bool {
        let mut entries = self.entries();
        let Some(entry) = entries.by_principal.get_mut(principal) else { return false };
        let again = entry.invalidating == Invalidating::Again;
        entry.invalidating = if again { Invalidating::Yes } else { Invalidating::No };
        drop(entries);
        self.record_written.notify_waiters();
        again
    }

    /// Waits until no invalidation of the record in the store is pending.
    pub(crate) async fn record_is_written(&self, principal: &Principal) {
        loop {
            let written = self.record_written.notified();
            let is_invalidating = {
                let entries = self.entries();
                let entry = entries.by_principal.get(principal);
                entry.is_some_and(|entry| entry.invalidating != Invalidating::No)
            };
            if !is_invalidating {
                return;
            }
            written.await;
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    /// Returns the entry of a principal. `None` if the cache is full.
    fn of(&mut self, principal: &Principal) -> Option<&mut Entry> {
        if !self.by_principal.contains_key(principal) {
            if self.by_principal.len() >= MAX_PRINCIPALS {
                self.by_principal.retain(|_, entry| entry.is_in_use());
            }
            if self.by_principal.len() >= MAX_PRINCIPALS {
                return None;
            }
            self.generations += 1;
            let entry = Entry { generation: self.generations, ..Entry::default() };
            self.by_principal.insert(principal.clone(), entry);
        }
        self.by_principal.get_mut(principal)
    }
}

impl Entry {
    fn reading(&self) -> Option<watch::Receiver<Option<ReadResult>>> {
        self.reading.clone().filter(|reading| reading.has_changed().is_ok() && reading.borrow().is_none())
    }

    fn start_reading(&mut self) -> watch::Sender<Option<ReadResult>> {
        let (sender, reading) = watch::channel(None);
        self.reading = Some(reading);
        sender
    }

    fn is_in_use(&self) -> bool {
        self.reading().is_some() || self.invalidating != Invalidating::No
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000_000_000);

    #[test]
    fn a_record_is_used_for_its_lifetime_whichever_clock_is_ahead() {
        let stored = Stored::new(&IdempotentTools::default(), NOW);
        let last = Duration::from_millis(ANNOTATIONS_TTL.as_millis() as u64 - 1);
        let early = Time(NOW.0 - ANNOTATIONS_TTL.as_millis() as u64);
        let read = [NOW, NOW.plus(last), NOW.plus(ANNOTATIONS_TTL), early]
            .map(|now| stored.read_within(ANNOTATIONS_TTL, now));
        assert_eq!(read, [Some(NOW), Some(NOW), None, None]);
        assert_eq!(Stored::default().read_within(ANNOTATIONS_TTL, NOW), None);
    }

    fn known(annotations: &ToolAnnotations, principal: &Principal, generation: u64) -> bool {
        let tools = Arc::new(IdempotentTools::default());
        annotations.set(principal, &tools, generation, NOW, NOW.plus(CACHE_TTL))
    }

    #[test]
    fn what_was_read_before_a_change_is_not_used() {
        let (annotations, principal) = (ToolAnnotations::default(), Principal::new("a"));
        let generation = annotations.generation(&principal);
        assert!(annotations.invalidate(&principal, SharedRecord::Kept));
        assert!(!known(&annotations, &principal, generation));
        assert!(!annotations.invalidate(&principal, SharedRecord::Kept), "one task writes at a time");
        assert!(annotations.invalidated(&principal) && !annotations.invalidated(&principal));
        assert!(known(&annotations, &principal, annotations.generation(&principal)));
        assert!(annotations.cached(&principal, NOW).is_some());
        assert!(annotations.cached(&principal, NOW.plus(CACHE_TTL)).is_none());
    }

    #[test]
    fn one_caller_reads_and_waits_longer_after_each_failure() {
        let (annotations, principal) = (ToolAnnotations::default(), Principal::new("a"));
        let Lookup::Read(sender) = annotations.look_up(&principal, NOW) else { panic!("the first") };
        assert!(matches!(annotations.look_up(&principal, NOW), Lookup::Join(_)));
        drop(sender);
        let Lookup::Read(_) = annotations.look_up(&principal, NOW) else { panic!("the task is gone") };
        let second = Duration::from_secs(1);
        annotations.failed(&principal, Duration::ZERO, NOW);
        assert!(matches!(annotations.look_up(&principal, NOW), Lookup::Unavailable));
        let later = NOW.plus(second);
        let Lookup::Read(_) = annotations.look_up(&principal, later) else { panic!("a second later") };
        annotations.failed(&principal, Duration::ZERO, later);
        assert!(matches!(annotations.look_up(&principal, later.plus(second)), Lookup::Unavailable));
        let Lookup::Read(_) = annotations.look_up(&principal, later.plus(second * 2)) else {
            panic!("two later")
        };
    }

    #[test]
    fn principals_are_bounded() {
        let annotations = ToolAnnotations::default();
        let name = |no: usize| Principal::new(no.to_string());
        let reading = annotations.look_up(&name(0), NOW);
        for no in 1..MAX_PRINCIPALS {
            assert!(known(&annotations, &name(no), annotations.generation(&name(no))));
        }
        assert!(annotations.cached(&name(1), NOW).is_some());
        annotations.generation(&name(MAX_PRINCIPALS));
        assert!(annotations.cached(&name(1), NOW).is_none(), "all are dropped");
        assert!(
            matches!(annotations.look_up(&name(0), NOW), Lookup::Join(_)),
            "but for the one that is read"
        );
        drop(reading);
    }
}
