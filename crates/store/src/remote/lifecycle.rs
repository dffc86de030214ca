//! Opens sessions, and removes those that have expired.

use std::sync::Arc;

use steadfast_session::command::{Sweep, Swept};
use steadfast_session::{Changes, Command, Facts, Lifecycle, Outcome, Time};

use super::cached_session::{CachedSession, IndexEntries};
use super::commands::CommitVerdict;
use super::database::{
    Admission, AdmissionRequest, CommitRequest, Database, IndexKey, Presence, StoreResult,
};
use super::worker::Worker;
use crate::store::Opened;

impl<D: Database> Worker<D> {
    /// Opens a session: counts it, then commits its first version.
    pub(crate) async fn open(&self, facts: Facts) -> StoreResult<Opened> {
        let facts = Arc::new(facts);
        // A node that opens a session will hold something in it.
        let present = self.local_nodes.borrow().clone();
        let mut cached = CachedSession::open(Arc::clone(&facts), IndexEntries { check_at: Time(0), present });
        cached.index_entries.check_at = self.check_at(&cached, facts.opened_at);
        let admission = self.admit(&cached).await?;
        if let Admission::OverLimit(limit) = admission {
            let is_in_use = self.current(facts.id, |_| ()).await?.is_some();
            return Ok(if is_in_use { Opened::IdInUse } else { Opened::OverLimit(limit) });
        }
        let commit_name = self.new_commit_name();
        let new_version = cached.first_version(commit_name);
        let request = CommitRequest { expected: &cached.stamp, new_version: Some(&new_version) };
        match self.commit_with_retry(facts.id, &request, commit_name).await? {
            CommitVerdict::Committed | CommitVerdict::CommittedEarlier(_) => {}
            CommitVerdict::Conflict(_) => {
                if admission == Admission::Admitted {
                    // Another session has this id. It is counted under its own principal.
                    self.database.remove_from_indexes(&IndexKey::of(&facts), &[]).await?;
                }
                return Ok(Opened::IdInUse);
            }
        }
        cached.stamp = new_version.stamp;
        self.put_cached(facts.id, Box::new(cached));
        let changes = Changes { lifecycle: vec![Lifecycle::Opened], ..Changes::default() };
        self.signal_sink.publish(&facts, &changes);
        Ok(Opened::Opened(facts))
    }

    async fn admit(&self, cached: &CachedSession) -> StoreResult<Admission> {
        let facts = cached.session.facts();
        let limits = &self.rules.limits;
        let request = AdmissionRequest {
            index_key: &IndexKey::of(facts),
            due: cached.index_entries.check_at,
            sessions: limits.sessions,
            sessions_per_principal: limits.sessions_per_principal,
        };
        let record_presence = async {
            for node in &cached.index_entries.present {
                let presence = Presence { session: facts.id, node: *node, version: 1, is_local: true };
                self.with_retry(|| self.database.record_presence(presence)).await?;
            }
            Ok(())
        };
        // Both requests are idempotent.
        let admit = self.with_retry(|| self.database.admit(&request));
        let (admission, recorded) = tokio::join!(admit, record_presence);
        recorded.and(admission)
    }

    /// Removes a session and its index entries, if the session has expired.
    pub(crate) async fn remove(&self, index_key: &IndexKey, now: Time) -> StoreResult<()> {
        let if_expired = |cached: &CachedSession| {
            let mut session = cached.session.clone();
            let swept = session.apply(Command::Sweep(Sweep), now, &self.rules, &mut Changes::default());
            let has_expired = swept == Outcome::Sweep(Swept::Remove);
            has_expired.then(|| (cached.stamp.clone(), cached.index_entries.present.clone()))
        };
        let id = index_key.session;
        match self.current(id, if_expired).await? {
            None => self.database.remove_from_indexes(index_key, &[]).await,
            Some(Some((stamp, present))) => {
                // If another process has changed the session meanwhile, the next sweep handles it.
                if self.database.remove(id, &stamp).await? {
                    drop(self.take_cached(&id));
                    self.database.remove_from_indexes(index_key, &present).await?;
                }
                Ok(())
            }
            Some(None) => Ok(()),
        }
    }
}
