//! A session as a handler sees it.

use bytes::Bytes;
use rmcp::model::ServerNotification;
use serde::Serialize;
use serde::de::DeserializeOwned;
use steadfast_engine::{Principal, Refusal, SessionHandle, SessionId};

use crate::adapter::{change, outgoing};

/// The session that a request or notification belongs to.
///
/// Handlers find it in the `extensions` of their context. It is a name, not a resource: keep it, clone it, use it
/// from background tasks. Unlike `context.peer`, which works for as long as the call does, it works for as long
/// as the session lives.
#[derive(Clone, Debug)]
pub struct Session(SessionHandle);

/// Why session state could not be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The session has ended.
    #[error("no such session")]
    NoSession,
    /// Somebody else changed the entry since it was read.
    #[error("the entry was changed by somebody else")]
    Conflict,
    /// The session holds as much state as its limits allow.
    #[error("the session's state is full")]
    Full,
    /// The entry is not what the reader expects, or the value cannot be written as JSON.
    #[error("session state is not of the expected form: {0}")]
    Format(#[from] serde_json::Error),
    /// The store failed.
    #[error(transparent)]
    Store(steadfast_store::StoreError),
}

impl Session {
    pub(crate) fn new(handle: SessionHandle) -> Self {
        Self(handle)
    }

    /// The id that logs and stores use. It is no secret: no client can use it to name the session.
    pub fn id(&self) -> SessionId {
        self.0.facts().id
    }

    pub fn principal(&self) -> &Principal {
        &self.0.facts().principal
    }

    /// Sends a notification that belongs to no call. It waits in the session if nobody listens. What it says has changed is
    /// told to clients of 2026-07-28 as well, if they subscribed to it.
    pub async fn notify(&self, notification: ServerNotification) -> Result<(), Refusal> {
        if let Some(change) = change(&notification) {
            self.0.engine().announce(&change);
        }
        let (class, payload) = outgoing::notification(notification);
        self.0.notify(class, payload).await
    }

    /// Ends the session. Each of its calls gets an explicit error.
    pub async fn close(&self) -> Result<(), Refusal> {
        self.0.close().await
    }

    /// Reads an entry of session state, with its version.
    pub async fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<(T, u64)>, StateError> {
        match self.0.get(key).await? {
            Some(value) => Ok(Some((serde_json::from_slice(&value.bytes)?, value.version))),
            None => Ok(None),
        }
    }

    /// Writes an entry if it still has this version (`None`: if there is none). Gives the new version.
    pub async fn put<T: Serialize>(
        &self,
        key: &str,
        expected: Option<u64>,
        value: &T,
    ) -> Result<u64, StateError> {
        let bytes = Bytes::from(serde_json::to_vec(value)?);
        Ok(self.0.put(key, expected, Some(bytes)).await?.unwrap_or_default())
    }

    /// Deletes an entry if it still has this version.
    pub async fn remove(&self, key: &str, expected: u64) -> Result<(), StateError> {
        self.0.put(key, Some(expected), None).await?;
        Ok(())
    }

    /// Changes an entry, whatever others do at the same time: reads it, lets `change` work on it, writes it if
    /// nobody was faster, and otherwise starts over.
    pub async fn update<T, R>(&self, key: &str, mut change: impl FnMut(&mut T) -> R) -> Result<R, StateError>
    where
        T: Default + Serialize + DeserializeOwned,
    {
        loop {
            let (mut value, version) = match self.get::<T>(key).await? {
                Some((value, version)) => (value, Some(version)),
                None => (T::default(), None),
            };
            let result = change(&mut value);
            match self.put(key, version, &value).await {
                Err(StateError::Conflict) => {}
                other => return other.map(|_| result),
            }
        }
    }
}

impl From<steadfast_engine::StateError> for StateError {
    fn from(error: steadfast_engine::StateError) -> Self {
        use steadfast_engine::StateError as E;
        match error {
            E::Conflict { .. } => Self::Conflict,
            E::OverLimit(_) => Self::Full,
            E::NoSession => Self::NoSession,
            E::Store(error) => Self::Store(error),
        }
    }
}
