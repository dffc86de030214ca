//! Records that a backend keeps in the store beside the sessions of clients, one per principal.
//!
//! A record is the state of a session of a stateless revision, like a job (`jobs.rs`): no client can use
//! it as a session, and no listener hears of it. Its id is a hash of what the record is about and of the
//! principal, so every node finds it without a directory. It expires as a session does; each `load`
//! counts as use.

use std::sync::Arc;

use bytes::Bytes;
use steadfast_session::command::Touch;
use steadfast_session::{Facts, Principal, SessionId, Value};
use steadfast_store::{Opened, StoreExt};
use steadfast_wire::Revision;

use crate::engine::Engine;
use crate::handle::{SessionHandle, StateError};

/// The one entry of a record's state.
const KEY: &str = "record";

/// A record of one principal. Making one sends nothing to the store.
#[derive(Clone, Debug)]
pub struct PrincipalRecord(SessionHandle);

impl PrincipalRecord {
    /// Reads the record and keeps it from expiring. `None` if there is none.
    pub async fn load(&self) -> Result<Option<Value>, StateError> {
        let engine = self.0.engine();
        let touch = engine.store().run(self.0.facts().id, Touch, engine.now());
        // A `Touch` that fails only lets the record expire earlier.
        let (loaded, _) = tokio::join!(self.0.get(KEY), touch);
        match loaded {
            Err(StateError::NoSession) => Ok(None),
            loaded => loaded,
        }
    }

    /// Writes the record if it still has the version that was loaded (`None`: there was no record).
    pub async fn store(&self, expected: Option<u64>, value: Bytes) -> Result<(), StateError> {
        let put = || self.0.put(KEY, expected, Some(value.clone()));
        match put().await {
            Err(StateError::NoSession) => {
                self.open().await?;
                put().await
            }
            stored => stored,
        }
        .map(drop)
    }

    async fn open(&self) -> Result<(), StateError> {
        let facts = Facts { opened_at: self.0.engine().now(), ..Facts::clone(self.0.facts()) };
        match self.0.engine().store().open(facts).await {
            // Taken: another node has opened it meanwhile.
            Ok(Opened::Opened(_) | Opened::Taken) => Ok(()),
            Ok(Opened::OverLimit(limit)) => Err(StateError::OverLimit(limit)),
            Err(error) => Err(error.into()),
        }
    }
}

impl Engine {
    /// The record of a principal about `subject`.
    ///
    /// It belongs to a principal of its own, whose name begins with the client's. So it does not count
    /// toward `sessions_per_principal` of the client, and the client cannot name it as a task.
    pub fn record(&self, subject: &str, principal: &Principal) -> PrincipalRecord {
        let facts = Facts {
            id: SessionId::derived(subject, &[principal.as_str().as_bytes()]),
            principal: Principal::new(format!("{}\u{1f}{subject}", principal.as_str())),
            revision: Revision::V2026_07_28,
            initialize: Bytes::new(),
            opened_at: self.now(),
        };
        PrincipalRecord(SessionHandle::new(self.arc(), Arc::new(facts)))
    }
}
