//! Classifies the errors of SQLite.

use rusqlite::ErrorCode;

use crate::error::StoreError;

/// Classifies an error of an operation that was not committed.
pub(super) fn classify_error(error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::Corrupt(error.to_string()),
        Some(_) => StoreError::Unavailable(error.to_string()),
        // SQLite succeeded, but the value that it returned could not be converted.
        None => StoreError::Corrupt(error.to_string()),
    }
}

/// Returns true if only the rows of one session are unreadable, so that the transaction can
/// continue.
pub(super) fn affects_one_session(error: &rusqlite::Error) -> bool {
    matches!(
        error,
        rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::Utf8Error(..)
            | rusqlite::Error::QueryReturnedNoRows
    )
}
