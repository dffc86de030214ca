//! Records that a backend keeps in the store, one per principal and subject.
//!
//! A record is the state of an internal session. The session id is a hash of the subject and the
//! principal, so every node finds the record without a directory. A record expires like a session;
//! each `load` counts as use.

use std::sync::Arc;

use bytes::Bytes;
use steadfast_session::command::Touch;
use steadfast_session::{Facts, Principal, SessionId, StateEntry};
use steadfast_store::{Opened, StoreExt};
use steadfast_wire::Revision;

use crate::engine::Engine;
use crate::sessions::{SessionHandle, StateError};

/// The key of the only entry of a record.
const KEY: &str = "record";

/// A record of one principal. Creating this value sends nothing to the store.
#[derive(Clone, Debug)]
pub struct PrincipalRecord(SessionHandle);

impl PrincipalRecord {
    /// Reads the record and extends its lifetime. Returns `None` if it does not exist.
    pub async fn load(&self) -> Result<Option<StateEntry>, StateError> {
        let engine = self.0.engine();
        let touch = engine.store().run(self.0.facts().id, Touch, engine.now());
        // If `Touch` fails, the record only expires earlier.
        let (loaded, _) = tokio::join!(self.0.get(KEY), touch);
        match loaded {
            Err(StateError::NoSession) => Ok(None),
            loaded => loaded,
        }
    }

    /// Writes the record if it has the version that was loaded (`None`: it did not exist).
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
        match self.0.engine().open_in_store(facts).await {
            // `IdInUse`: another node has opened it concurrently.
            Ok(Opened::Opened(_) | Opened::IdInUse) => Ok(()),
            Ok(Opened::OverLimit(limit)) => Err(StateError::OverLimit(limit)),
            Err(error) => Err(error.into()),
        }
    }
}

impl Engine {
    /// Returns the record of a principal about `subject`.
    ///
    /// It belongs to its own principal; see [`Principal::about`].
    pub fn record(&self, subject: &str, principal: &Principal) -> PrincipalRecord {
        let facts = Facts {
            id: SessionId::derived(subject, &[principal.as_str().as_bytes()]),
            principal: principal.about(subject),
            revision: Revision::V2026_07_28,
            initialize: Bytes::new(),
            opened_at: self.now(),
        };
        PrincipalRecord(SessionHandle::new(self.arc(), Arc::new(facts)))
    }
}
