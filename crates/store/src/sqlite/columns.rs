//! Converts values to and from SQLite columns.

use bytes::Bytes;
use rusqlite::ToSql;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSqlOutput, ValueRef};
use steadfast_session::{Class, CloseReason, NodeId, SessionId, Time};
use steadfast_wire::{RequestId, Revision};

/// Converts an unsigned number. SQLite's integers are signed, so the column has the number with the
/// same bits. That is the same number for everything but node ids.
pub(super) const fn int(number: u64) -> i64 {
    number.cast_signed()
}

/// Converts a time. A time that is too large ("never") becomes the largest one, and not one in the
/// past.
pub(super) fn instant(time: Time) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

/// Marks the words of a forwarded `Begin` in the column `revoked_calls`. All other words in it are
/// call numbers.
pub(super) const FORWARDED_BEGIN_BIT: u64 = 1 << 63;

/// A value that this program does not write.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Unreadable(&'static str);

fn unreadable(what: &'static str) -> FromSqlError {
    FromSqlError::other(Unreadable(what))
}

/// A value as a column contains it.
pub(super) struct Column<T>(pub(super) T);

impl FromSql for Column<u64> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Ok(Self(value.as_i64()?.cast_unsigned()))
    }
}

impl FromSql for Column<Time> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Column::<u64>::column_result(value).map(|Column(time)| Self(Time(time)))
    }
}

impl FromSql for Column<NodeId> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Column::<u64>::column_result(value).map(|Column(node)| Self(NodeId(node)))
    }
}

impl FromSql for Column<Bytes> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Ok(Self(Bytes::copy_from_slice(value.as_blob()?)))
    }
}

impl FromSql for Column<SessionId> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let bytes =
            value.as_blob()?.try_into().map_err(|_| unreadable("a session id of the wrong length"))?;
        Ok(Self(SessionId::from_random(bytes)))
    }
}

impl FromSql for Column<Revision> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Revision::parse(value.as_str()?).map(Self).ok_or_else(|| unreadable("an unknown protocol revision"))
    }
}

impl FromSql for Column<CloseReason> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        CloseReason::parse(value.as_str()?).map(Self).ok_or_else(|| unreadable("an unknown close reason"))
    }
}

impl FromSql for Column<Class> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let class = u8::try_from(value.as_i64()?).ok().and_then(Class::from_code);
        class.map(Self).ok_or_else(|| unreadable("an unknown event class"))
    }
}

impl FromSql for Column<RequestId> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        match value {
            ValueRef::Integer(number) => Ok(Self(RequestId::Number(number))),
            ValueRef::Text(_) => Ok(Self(RequestId::text(value.as_str()?))),
            _ => Err(FromSqlError::InvalidType),
        }
    }
}

impl ToSql for Column<&RequestId> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self.0 {
            RequestId::Number(number) => ToSqlOutput::from(*number),
            RequestId::Text(text) => ToSqlOutput::from(&**text),
        })
    }
}
