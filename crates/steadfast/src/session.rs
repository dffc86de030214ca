//! [`Session`]: the handle through which a handler uses its session and the session's state.

use bytes::Bytes;
use rmcp::model::ServerNotification;
use serde::Serialize;
use serde::de::DeserializeOwned;
use steadfast_engine::{Principal, Refusal, SessionHandle, SessionId};

use crate::adapter::{change, outgoing};

/// A handle to the session that a request or notification belongs to. A handler gets it from the
/// `extensions` of its context.
///
/// The handle does not keep the session open. Store it, clone it, or use it from background tasks:
/// it works until the session ends, whereas `context.peer` works until the call ends.
#[derive(Clone, Debug)]
pub struct Session(SessionHandle);

/// Error of an operation on session state.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The session has ended.
    #[error("the session has ended")]
    NoSession,
    /// The entry does not have the expected version: another writer changed it.
    #[error("the entry was changed by another writer")]
    Conflict,
    /// The limit `state_entries` or `state_bytes` is reached.
    #[error("the session's state has reached its limit (`state_entries` or `state_bytes`)")]
    Full,
    /// The entry does not deserialise to the expected type, or the value does not serialise to
    /// JSON.
    #[error("the entry cannot be converted from or to JSON: {0}")]
    Format(#[from] serde_json::Error),
    /// The store failed.
    #[error(transparent)]
    Store(steadfast_store::StoreError),
}

impl Session {
    pub(crate) fn new(handle: SessionHandle) -> Self {
        Self(handle)
    }

    /// Returns the id that logs and stores use. It is not a secret: requests carry the session's
    /// token, which cannot be derived from the id.
    pub fn id(&self) -> SessionId {
        self.0.facts().id
    }

    /// Returns the principal that opened the session.
    pub fn principal(&self) -> &Principal {
        &self.0.facts().principal
    }

    /// Sends a notification on a standalone stream of the session. If the client has none open, the
    /// session keeps the notification until the client opens one.
    ///
    /// If the notification announces a change of a list or a resource, subscribers of 2026-07-28
    /// receive it too.
    pub async fn notify(&self, notification: ServerNotification) -> Result<(), Refusal> {
        if let Some(change) = change(&notification) {
            self.0.engine().publish(&change);
        }
        let (class, payload) = outgoing::notification(notification);
        self.0.notify(class, payload).await
    }

    /// Ends the session. Each of its calls is answered with an error.
    pub async fn close(&self) -> Result<(), Refusal> {
        self.0.close().await
    }

    /// Returns the entry `key` of the session state and its version, or `None` if there is no such
    /// entry.
    pub async fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<(T, u64)>, StateError> {
        match self.0.get(key).await? {
            Some(value) => Ok(Some((serde_json::from_slice(&value.bytes)?, value.version))),
            None => Ok(None),
        }
    }

    /// Writes the entry `key` and returns its new version. Fails with [`StateError::Conflict`]
    /// unless the entry has the version `expected`; `None` expects that there is no entry.
    pub async fn put<T: Serialize>(
        &self,
        key: &str,
        expected: Option<u64>,
        value: &T,
    ) -> Result<u64, StateError> {
        let bytes = Bytes::from(serde_json::to_vec(value)?);
        Ok(self.0.put(key, expected, Some(bytes)).await?.unwrap_or_default())
    }

    /// Deletes the entry `key`. Fails with [`StateError::Conflict`] unless it has the version
    /// `expected`.
    pub async fn remove(&self, key: &str, expected: u64) -> Result<(), StateError> {
        self.0.put(key, Some(expected), None).await?;
        Ok(())
    }

    /// Changes the entry `key` atomically: reads it (a missing entry is `T::default()`), applies
    /// `change`, and writes it. If another writer changed the entry meanwhile, this function starts
    /// over, so `change` may run more than once. Returns the result of the last run.
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
