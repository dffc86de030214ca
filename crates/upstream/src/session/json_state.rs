//! Entries of the session state that contain JSON and that several nodes read and write.

use serde::Serialize;
use serde::de::DeserializeOwned;
use steadfast_engine::{SessionHandle, StateEntry, StateError};

/// How often a write is tried when other nodes write as well.
const MAX_WRITE_RETRIES: usize = 16;

/// Returns an entry and its version. An entry that cannot be parsed was written by a newer release
/// and counts as absent.
pub(crate) async fn load<T: DeserializeOwned>(
    session: &SessionHandle,
    key: &str,
) -> Result<Option<(T, u64)>, StateError> {
    Ok(session.get(key).await?.and_then(parse))
}

/// Returns an entry of a session that has ended.
pub(crate) async fn load_after_end<T: DeserializeOwned>(session: &SessionHandle, key: &str) -> Option<T> {
    session.get_after_close(key).await.ok().flatten().and_then(parse).map(|(value, _)| value)
}

/// Changes an entry. `change` receives the current value and its version, and returns whether it
/// has modified the value. It is called again if another node has written meanwhile. Returns the
/// version that was written, or `None` if nothing was modified.
pub(crate) async fn update<T: DeserializeOwned + Default + Serialize>(
    session: &SessionHandle,
    key: &str,
    mut change: impl FnMut(&mut T, Option<u64>) -> bool,
) -> Result<Option<u64>, StateError> {
    let mut current = session.get(key).await?;
    let mut attempts = 0;
    loop {
        let version = current.as_ref().map(|value| value.version);
        let mut value: T = current.take().and_then(parse).map(|(value, _)| value).unwrap_or_default();
        if !change(&mut value, version) {
            return Ok(None);
        }
        // Strings, lists and options always serialise.
        let text = serde_json::to_vec(&value).unwrap_or_default();
        attempts += 1;
        match session.put(key, version, Some(text.into())).await {
            Err(StateError::Conflict { current: theirs }) if attempts < MAX_WRITE_RETRIES => current = theirs,
            outcome => return outcome,
        }
    }
}

fn parse<T: DeserializeOwned>(value: StateEntry) -> Option<(T, u64)> {
    serde_json::from_slice(&value.bytes).ok().map(|parsed| (parsed, value.version))
}
