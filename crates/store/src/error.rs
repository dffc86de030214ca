//! The errors of a store.

/// Why a store could not return the outcome of an operation.
///
/// A command that a session's rules refuse is not an error: the refusal is its outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be reached or cannot do any work. The operation did **not** happen. The
    /// caller may retry it.
    #[error("the session store is unavailable: {0}")]
    Unavailable(String),
    /// The operation may or may not have happened: the connection broke, or the commit failed half
    /// way. The caller must read the session to find out.
    #[error("the session store did not confirm the operation; it may or may not have happened: {0}")]
    Unknown(String),
    /// The stored data cannot be read: another version of this program wrote it, or it is damaged.
    #[error("the session store holds data that this version cannot read: {0}")]
    Corrupt(String),
}
