//! Values as SQLite keeps them.

use bytes::Bytes;
use rusqlite::ToSql;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSqlOutput, ValueRef};
use steadfast_session::{Class, CloseReason, NodeId, SessionId, Time};
use steadfast_wire::{RequestId, Revision};

/// SQLite's integers are signed: a number is kept as the one with the same bits, which for all but node ids is
/// the same number.
pub(super) const fn int(number: u64) -> i64 {
    number.cast_signed()
}

/// A time far beyond any clock ("never") must not turn into one long past.
pub(super) fn instant(time: Time) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

/// Marks the words of calls that were mailed, among the numbers of calls that were taken.
pub(super) const MAILED: u64 = 1 << 63;

/// A value that is not what this program writes.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Unreadable(&'static str);

fn unreadable(what: &'static str) -> FromSqlError {
    FromSqlError::other(Unreadable(what))
}

/// How a type of ours is kept in a column.
pub(super) struct Col<T>(pub(super) T);

impl FromSql for Col<u64> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Ok(Self(value.as_i64()?.cast_unsigned()))
    }
}

impl FromSql for Col<Time> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Col::<u64>::column_result(value).map(|Col(time)| Self(Time(time)))
    }
}

impl FromSql for Col<NodeId> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Col::<u64>::column_result(value).map(|Col(node)| Self(NodeId(node)))
    }
}

impl FromSql for Col<Bytes> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Ok(Self(Bytes::copy_from_slice(value.as_blob()?)))
    }
}

impl FromSql for Col<SessionId> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let bytes =
            value.as_blob()?.try_into().map_err(|_| unreadable("a session id of the wrong length"))?;
        Ok(Self(SessionId::from_random(bytes)))
    }
}

impl FromSql for Col<Revision> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Revision::parse(value.as_str()?).map(Self).ok_or_else(|| unreadable("an unknown protocol revision"))
    }
}

impl FromSql for Col<CloseReason> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let text = value.as_str()?;
        let known = CloseReason::ALL.into_iter().find(|reason| reason.as_str() == text);
        known.map(Self).ok_or_else(|| unreadable("an unknown reason for closing"))
    }
}

impl FromSql for Col<Class> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let code = value.as_i64()?;
        let known = CLASSES.into_iter().find(|class| class_code(*class) == code);
        known.map(Self).ok_or_else(|| unreadable("an unknown class of message"))
    }
}

const CLASSES: [Class; 5] = [Class::Chatter, Class::Notice, Class::Withdrawal, Class::Ask, Class::Response];

pub(super) const fn class_code(class: Class) -> i64 {
    match class {
        Class::Chatter => 0,
        Class::Notice => 1,
        Class::Ask => 2,
        Class::Response => 3,
        Class::Withdrawal => 4,
    }
}

impl FromSql for Col<RequestId> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        match value {
            ValueRef::Integer(number) => Ok(Self(RequestId::Number(number))),
            ValueRef::Text(_) => Ok(Self(RequestId::text(value.as_str()?))),
            _ => Err(FromSqlError::InvalidType),
        }
    }
}

impl ToSql for Col<&RequestId> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self.0 {
            RequestId::Number(number) => ToSqlOutput::from(*number),
            RequestId::Text(text) => ToSqlOutput::from(&**text),
        })
    }
}
