//! What SQLite's errors mean to a store.

use rusqlite::ErrorCode;

use crate::error::StoreError;

/// What an error of SQLite means when nothing was committed.
pub(super) fn not_done(error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::Corrupt(error.to_string()),
        Some(_) => StoreError::Unavailable(error.to_string()),
        // Not SQLite failed, but our reading of what it gave.
        None => StoreError::Corrupt(error.to_string()),
    }
}

/// Whether only one session's rows are unreadable, and the transaction can go on.
pub(super) fn concerns_one_session(error: &rusqlite::Error) -> bool {
    matches!(
        error,
        rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::Utf8Error(..)
            | rusqlite::Error::QueryReturnedNoRows
    )
}
