//! What a store can fail with.

/// Why a command has no outcome. The session's rules never fail this way: a refusal is an outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store could not be reached or refused to work. The command did **not** happen. Trying again is safe.
    #[error("the session store is unavailable: {0}")]
    Unavailable(String),
    /// The command may or may not have happened: the connection broke, or the commit failed half way. Find out
    /// by reading; never guess.
    #[error("the session store did not say whether the command happened: {0}")]
    Unknown(String),
    /// What the store holds is not what this program writes: another version's format, or damage.
    #[error("the session store holds something unreadable: {0}")]
    Corrupt(String),
}
