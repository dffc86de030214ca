//! What errors of the client library mean.

use std::error::Error as _;
use std::io;

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::error::StoreError;

/// Why there is no connection.
#[derive(Clone, Debug)]
pub(super) enum NoLine {
    /// Nobody is there, or not now.
    Unreachable(String),
    /// Somebody is there and will say the same again: a wrong password, no such database, missing rights, another schema.
    Refused(String),
}

impl NoLine {
    pub(super) fn of(error: &Error) -> Self {
        let text = text(error);
        match error.as_db_error() {
            Some(answer) if is_passing(answer) => Self::Unreachable(text),
            Some(_) => Self::Refused(text),
            None if is_about_the_network(error) => Self::Unreachable(text),
            None => Self::Refused(text),
        }
    }
}

impl From<NoLine> for StoreError {
    fn from(why: NoLine) -> Self {
        let (NoLine::Unreachable(text) | NoLine::Refused(text)) = why;
        Self::Unavailable(text)
    }
}

/// What it means that a request failed. An error that the server answers with has undone everything; one that ends the
/// connection may have come after the commit, as may silence.
pub(super) fn meaning(error: &Error) -> StoreError {
    match error.as_db_error() {
        Some(answer) if answer.parsed_severity() == Some(Severity::Error) => {
            StoreError::Unavailable(text(error))
        }
        _ => StoreError::Unknown(text(error)),
    }
}

/// Whether the next request had better use another connection: this one leads to a server that may not write, or remembers
/// statements that are not there any more.
pub(super) fn spoils_line(error: &Error) -> bool {
    const SPOILT: [SqlState; 3] = [
        SqlState::READ_ONLY_SQL_TRANSACTION,
        SqlState::INVALID_SQL_STATEMENT_NAME,
        SqlState::FEATURE_NOT_SUPPORTED,
    ];
    error.as_db_error().is_none_or(|answer| answer.parsed_severity() != Some(Severity::Error))
        || error.code().is_some_and(|code| SPOILT.contains(code))
        || is_without_schema(error)
}

/// Whether the schema is not there, or not all of it: somebody has taken it away.
pub(super) fn is_without_schema(error: &Error) -> bool {
    const ABSENT: [SqlState; 3] =
        [SqlState::UNDEFINED_FUNCTION, SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME];
    error.code().is_some_and(|code| ABSENT.contains(code))
}

/// Without the details that a server adds: they may quote a session id.
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
        text.push_str(" (`sslmode=disable` does without)");
    }
    text
}

/// A server that starts, stops or is full will be there again.
fn is_passing(answer: &DbError) -> bool {
    let class = answer.code().code().get(..2).unwrap_or_default();
    // Connections, resources, operators, the system.
    ["08", "53", "57", "58"].contains(&class)
}

fn is_about_the_network(error: &Error) -> bool {
    error.is_closed() || error.source().is_some_and(|cause| cause.is::<io::Error>())
}
