//! Classifies the errors of the client library.

use std::error::Error as _;
use std::io;

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::error::StoreError;

/// Why a connection could not be opened.
#[derive(Clone, Debug)]
pub(super) enum ConnectError {
    /// The server cannot be reached, or cannot work at the moment. A retry may succeed.
    Unreachable(String),
    /// The server refuses the connection, and would refuse it again: wrong password, missing
    /// database, missing rights, unknown schema version.
    Refused(String),
}

impl ConnectError {
    /// Classifies the error of an attempt to connect.
    pub(super) fn of(error: &Error) -> Self {
        let text = text(error);
        match error.as_db_error() {
            Some(answer) if is_temporary(answer) => Self::Unreachable(text),
            Some(_) => Self::Refused(text),
            None if is_network_error(error) => Self::Unreachable(text),
            None => Self::Refused(text),
        }
    }
}

impl From<ConnectError> for StoreError {
    fn from(why: ConnectError) -> Self {
        let (ConnectError::Unreachable(text) | ConnectError::Refused(text)) = why;
        Self::Unavailable(text)
    }
}

/// Classifies the error of a request. If the server replied with an error, it has rolled back
/// everything. If the connection ended, or the server did not reply, the request may have been
/// committed.
pub(super) fn classify_error(error: &Error) -> StoreError {
    match error.as_db_error() {
        Some(answer) if answer.parsed_severity() == Some(Severity::Error) => {
            StoreError::Unavailable(text(error))
        }
        _ => StoreError::Unknown(text(error)),
    }
}

/// Returns true if the next request should use another connection: this one leads to a server that
/// is read-only, or has prepared statements that do not exist any more.
pub(super) fn should_discard_connection(error: &Error) -> bool {
    const DISCARD_AFTER: [SqlState; 3] = [
        SqlState::READ_ONLY_SQL_TRANSACTION,
        SqlState::INVALID_SQL_STATEMENT_NAME,
        SqlState::FEATURE_NOT_SUPPORTED,
    ];
    error.as_db_error().is_none_or(|answer| answer.parsed_severity() != Some(Severity::Error))
        || error.code().is_some_and(|code| DISCARD_AFTER.contains(code))
        || is_schema_missing(error)
}

/// Returns true if the schema, or a part of it, does not exist. An operator may have dropped it.
pub(super) fn is_schema_missing(error: &Error) -> bool {
    const ABSENT: [SqlState; 3] =
        [SqlState::UNDEFINED_FUNCTION, SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME];
    error.code().is_some_and(|code| ABSENT.contains(code))
}

/// Returns the text of an error without the details that a server adds: they may quote a session
/// id.
pub(super) fn text(error: &Error) -> String {
    if let Some(answer) = error.as_db_error() {
        return format!("{} ({})", answer.message(), answer.code().code());
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    if text.ends_with("server does not support TLS") {
        text.push_str(" (set `sslmode=disable` to connect without TLS)");
    }
    text
}

/// Returns true if the server starts, stops or is overloaded, so that a retry may succeed.
fn is_temporary(answer: &DbError) -> bool {
    let class = answer.code().code().get(..2).unwrap_or_default();
    // The classes of errors of connections, resources, operator intervention, and the system.
    ["08", "53", "57", "58"].contains(&class)
}

fn is_network_error(error: &Error) -> bool {
    error.is_closed() || error.source().is_some_and(|cause| cause.is::<io::Error>())
}
