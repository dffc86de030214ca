//! Entries of session state that hold JSON, which several processes read and write.

use serde::Serialize;
use serde::de::DeserializeOwned;
use steadfast_engine::{SessionHandle, StateError, Value};

/// How often a write is tried when others write as well.
const ATTEMPTS: usize = 16;

/// What is written down, and its version. What cannot be read was written by a future version and counts as nothing.
pub(crate) async fn load<T: DeserializeOwned>(
    session: &SessionHandle,
    key: &str,
) -> Result<Option<(T, u64)>, StateError> {
    Ok(session.get(key).await?.and_then(read))
}

/// What a session that has ended has left.
pub(crate) async fn left<T: DeserializeOwned>(session: &SessionHandle, key: &str) -> Option<T> {
    session.left(key).await.ok().flatten().and_then(read).map(|(value, _)| value)
}

/// Changes what is written down. `change` is made on what is there, and its version; it says whether anything is different.
/// Gives the version of what it has written.
pub(crate) async fn change<T: DeserializeOwned + Default + Serialize>(
    session: &SessionHandle,
    key: &str,
    mut change: impl FnMut(&mut T, Option<u64>) -> bool,
) -> Result<Option<u64>, StateError> {
    let mut current = session.get(key).await?;
    let mut attempts = 0;
    loop {
        let version = current.as_ref().map(|value| value.version);
        let mut value: T = current.take().and_then(read).map(|(value, _)| value).unwrap_or_default();
        if !change(&mut value, version) {
            return Ok(None);
        }
        // Strings, lists and options always serialise.
        let text = serde_json::to_vec(&value).unwrap_or_default();
        attempts += 1;
        match session.put(key, version, Some(text.into())).await {
            Err(StateError::Conflict { current: theirs }) if attempts < ATTEMPTS => current = theirs,
            outcome => return outcome,
        }
    }
}

fn read<T: DeserializeOwned>(value: Value) -> Option<(T, u64)> {
    serde_json::from_slice(&value.bytes).ok().map(|read| (read, value.version))
}
