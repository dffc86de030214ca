//! Read-only requests to one session: facts, events, holdings. Also dispatches the jobs of a
//! session that are not commands.

use std::rc::Rc;
use std::sync::Arc;

use steadfast_session::{Facts, Holdings, NodeId, Read, SessionId, StreamNo};

use super::cached_session::CachedSession;
use super::database::{Database, EventKey, LoadOutcome, Payloads, StoreResult, VersionStamp};
use super::job::SessionJob;
use super::worker::Worker;
use crate::error::StoreError;

/// How often a read starts again because the session has changed meanwhile.
const MAX_READ_RETRIES: usize = 64;

impl<D: Database> Worker<D> {
    /// Runs a job that is not a command. Commands go through `run_commands`.
    pub(crate) async fn run_session_job(self: Rc<Self>, id: SessionId, job: SessionJob) {
        // If the receiver is gone, the caller does not need the result.
        match job {
            SessionJob::Open { facts, to } => drop(to.send(self.open(facts).await)),
            SessionJob::Command(_) => {}
            SessionJob::Read { stream, after, budget, to } => {
                drop(to.send(self.read(id, stream, after, budget).await));
            }
            SessionJob::Facts { to } => drop(to.send(self.facts(id).await)),
            SessionJob::Holdings { node, to } => drop(to.send(self.holdings(id, node).await)),
            SessionJob::Refresh => {
                if let Err(error) = self.current(id, |_| ()).await {
                    tracing::debug!(session = id.short(), %error, "could not load a session after a change hint");
                }
            }
            SessionJob::Remove { index_key, now, to } => drop(to.send(self.remove(&index_key, now).await)),
        }
    }

    /// Returns the result of `inspect` for the current version of a session. `None` if the session
    /// does not exist.
    pub(crate) async fn current<T>(
        &self,
        id: SessionId,
        inspect: impl FnOnce(&CachedSession) -> T,
    ) -> StoreResult<Option<T>> {
        let cached = self.take_cached(&id);
        let known = cached.as_ref().map_or_else(VersionStamp::default, |cached| cached.stamp.clone());
        let loaded = self.with_retry(|| self.database.load(id, &known)).await;
        let cached = match (loaded, cached) {
            (Ok(LoadOutcome::Changed(snapshot)), _) => self.restore(id, snapshot)?,
            (Ok(LoadOutcome::Unchanged), Some(cached)) => cached,
            (Ok(LoadOutcome::Missing | LoadOutcome::Unchanged), _) => {
                self.signal_external_changes(id, None);
                return Ok(None);
            }
            (Err(error), cached) => {
                // The copy was right when it was cached, and every use checks its version.
                if let Some(cached) = cached {
                    self.put_cached(id, cached);
                }
                return Err(error);
            }
        };
        let result = inspect(&cached);
        self.put_cached(id, cached);
        Ok(Some(result))
    }

    async fn facts(&self, id: SessionId) -> StoreResult<Option<Arc<Facts>>> {
        let facts =
            |cached: &CachedSession| cached.session.is_open().then(|| Arc::clone(cached.session.facts()));
        self.current(id, facts).await.map(Option::flatten)
    }

    async fn holdings(&self, id: SessionId, node: NodeId) -> StoreResult<Holdings> {
        let holdings = self.current(id, |cached| cached.session.held_by(node)).await?;
        Ok(holdings.unwrap_or(Holdings::NoSession))
    }

    /// Reads a stream. The cached session determines which events to read. The database returns
    /// their payloads only if the session still has that version.
    async fn read(&self, id: SessionId, stream: StreamNo, after: u64, budget: u64) -> StoreResult<Read> {
        let mut cached = match self.take_cached(&id) {
            Some(cached) => cached,
            None => match self.load(id).await? {
                Some(cached) => cached,
                None => return Ok(Read::NoSession),
            },
        };
        for _ in 0..MAX_READ_RETRIES {
            let mut read = cached.session.read(stream, after, budget);
            let events = events_without_payload(stream, &read);
            match self.with_retry(|| self.database.read_payloads(id, &cached.stamp, &events)).await {
                Ok(Payloads::Read(payloads)) => {
                    self.put_cached(id, cached);
                    fill_in_payloads(&mut read, payloads)?;
                    return Ok(read);
                }
                Ok(Payloads::Changed(snapshot)) => cached = self.restore(id, snapshot)?,
                Ok(Payloads::Missing) => {
                    self.signal_external_changes(id, None);
                    return Ok(Read::NoSession);
                }
                Err(error) => {
                    self.put_cached(id, cached);
                    return Err(error);
                }
            }
        }
        self.put_cached(id, cached);
        Err(StoreError::Unavailable("other processes keep changing this session; gave up retrying".into()))
    }
}

/// Returns the events of a slice whose payloads are in the database and not in memory.
fn events_without_payload(stream: StreamNo, read: &Read) -> Vec<EventKey> {
    let Read::Slice(slice) = read else { return Vec::new() };
    let absent = slice.events.iter().filter(|entry| entry.payload.is_none());
    absent.map(|entry| EventKey { stream, seq: entry.seq, class: entry.class, size: entry.size }).collect()
}

fn fill_in_payloads(read: &mut Read, payloads: Vec<Option<bytes::Bytes>>) -> StoreResult<()> {
    let Read::Slice(slice) = read else { return Ok(()) };
    let absent = slice.events.iter_mut().filter(|entry| entry.payload.is_none());
    for (entry, payload) in absent.zip(payloads) {
        entry.payload = Some(payload.ok_or_else(|| StoreError::Corrupt("an event has no payload".into()))?);
    }
    Ok(())
}
