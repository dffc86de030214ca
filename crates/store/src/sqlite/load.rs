//! From rows to a session.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use rusqlite::{OptionalExtension, Row};
use steadfast_session::{
    Ask, AskNo, Call, CallNo, Class, ConnNo, Entry, Facts, Kept, Mailed, Meta, NodeId, Request, Session,
    SessionId, Stream, StreamKind, StreamNo, Streams, Time, Value,
};

use super::slot::Slot;
use super::sql::WriterSql;
use super::value::{Col, MAILED};

/// Loads a session with the index of its logs. Payloads stay in the file.
pub(super) fn load(sql: &mut WriterSql<'_>, id: SessionId) -> rusqlite::Result<Option<Slot>> {
    let found = sql.find_session.query_row([id.as_bytes()], |row| Ok((row.get(0)?, facts(id, row, 1)?)));
    let Some((key, facts)) = found.optional()? else { return Ok(None) };
    let (meta, check_at) = sql.load_meta.query_row([key], meta)?;
    let calls = sql.load_calls.query_map([key], call)?.collect::<Result<_, _>>()?;
    let asks = sql.load_asks.query_map([key], ask)?.collect::<Result<_, _>>()?;
    let state = sql.load_state.query_map([key], state)?.collect::<Result<_, _>>()?;
    let streams = streams(sql, key)?;
    let session = Session::restore(Arc::new(facts), meta, calls, asks, streams, state);
    Ok(Some(Slot::new(key, session, check_at)))
}

fn streams(sql: &mut WriterSql<'_>, key: i64) -> rusqlite::Result<Streams> {
    let mut streams = BTreeMap::new();
    let mut answers = Vec::new();
    let mut rows = sql.load_streams.query([key])?;
    while let Some(row) = rows.next()? {
        let (no, stream) = stream(row)?;
        answers.extend(answer(row, 7, &stream)?.map(|answer| (no, answer)));
        streams.insert(no, Box::new(stream));
    }
    let mut rows = sql.load_events.query([key])?;
    while let Some(row) = rows.next()? {
        hold(&mut streams, StreamNo(number(row, 0)?), event(row, 1)?);
    }
    for (no, answer) in answers {
        hold(&mut streams, no, answer);
    }
    Ok(streams)
}

fn hold(streams: &mut Streams, no: StreamNo, entry: Entry) {
    let Some(stream) = streams.get_mut(&no) else { return };
    stream.bytes += u64::from(entry.size);
    stream.entries.push_back(entry);
}

/// Reads sequence number, class and size from the columns from `at` on.
pub(super) fn event(row: &Row<'_>, at: usize) -> rusqlite::Result<Entry> {
    Ok(Entry {
        seq: number(row, at)?,
        class: row.get::<_, Col<_>>(at + 1)?.0,
        size: row.get(at + 2)?,
        payload: None,
    })
}

/// Reads the answer that ends a stream, if it is kept in the stream's row, from the columns from `at` on.
pub(super) fn answer(row: &Row<'_>, at: usize, stream: &Stream) -> rusqlite::Result<Option<Entry>> {
    let Some(size) = row.get(at)? else { return Ok(None) };
    let payload = Some(row.get::<_, Col<_>>(at + 1)?.0);
    Ok(Some(Entry { seq: stream.last_seq(), class: Class::Response, size, payload }))
}

/// Reads principal, revision, `initialize` and time of opening from the columns from `at` on.
pub(super) fn facts(id: SessionId, row: &Row<'_>, at: usize) -> rusqlite::Result<Facts> {
    Ok(Facts {
        id,
        principal: steadfast_session::Principal::new(row.get::<_, String>(at)?),
        revision: row.get::<_, Col<_>>(at + 1)?.0,
        initialize: row.get::<_, Col<_>>(at + 2)?.0,
        opened_at: row.get::<_, Col<_>>(at + 3)?.0,
    })
}

/// The kind of a stream, by how many of its calls are open.
pub(super) fn kind(open_calls: Option<u32>) -> StreamKind {
    open_calls.map_or(StreamKind::Standalone, |open| StreamKind::Post { open })
}

pub(super) fn number(row: &Row<'_>, at: usize) -> rusqlite::Result<u64> {
    row.get::<_, Col<u64>>(at).map(|Col(number)| number)
}

pub(super) fn optional<T>(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<T>>
where
    Col<T>: rusqlite::types::FromSql,
{
    Ok(row.get::<_, Option<Col<T>>>(at)?.map(|Col(value)| value))
}

pub(super) fn time(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Time>> {
    optional(row, at)
}

fn meta(row: &Row<'_>) -> rusqlite::Result<(Meta, Option<Time>)> {
    let meta = Meta {
        last_active: row.get::<_, Col<_>>(0)?.0,
        detached_at: time(row, 1)?,
        closed: optional(row, 2)?.zip(time(row, 3)?),
        next_call: number(row, 4)?,
        next_stream: number(row, 5)?,
        next_ask: number(row, 6)?,
        next_connection: number(row, 7)?,
        next_version: number(row, 8)?,
        taken: Vec::new(),
        mailed: Vec::new(),
    };
    let (taken, mailed) = remembered(&optional(row, 9)?.unwrap_or_default());
    let meta = Meta { taken, mailed, ..meta };
    Ok((meta, time(row, 10)?))
}

fn remembered(words: &Bytes) -> (Vec<CallNo>, Vec<Mailed>) {
    let words = words.as_chunks::<8>().0.iter().map(|word| u64::from_be_bytes(*word));
    let (mailed, taken): (Vec<u64>, Vec<u64>) = words.partition(|word| word & MAILED != 0);
    let mailed: Vec<u64> = mailed.into_iter().map(|word| word & !MAILED).collect();
    // Another release may have dropped the first words for want of room.
    let mailed = mailed.as_rchunks::<4>().1.iter().map(|[high, low, attempt, stream]| Mailed {
        node: NodeId(high << 32 | low),
        attempt: *attempt,
        stream: StreamNo(*stream),
    });
    (taken.into_iter().map(CallNo).collect(), mailed.collect())
}

fn call(row: &Row<'_>) -> rusqlite::Result<(CallNo, Call)> {
    let call = Call {
        id: row.get::<_, Col<_>>(1)?.0,
        stream: StreamNo(number(row, 2)?),
        owner: row.get::<_, Col<_>>(3)?.0,
        from: row.get::<_, Col<_>>(4)?.0,
        attempt: number(row, 5)?,
        answer_only: row.get(6)?,
        request: request(row, 7)?,
    };
    Ok((CallNo(number(row, 0)?), call))
}

/// Reads a request that is kept, if there is one, from the columns from `at` on.
fn request(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Box<Request>>> {
    let again: Option<bool> = row.get(at)?;
    let text = optional(row, at + 1)?;
    Ok(again.zip(text).map(|(again, text)| Box::new(Request { text, again })))
}

fn ask(row: &Row<'_>) -> rusqlite::Result<(AskNo, Ask)> {
    let ask = Ask {
        call: optional(row, 1)?.map(CallNo),
        stream: StreamNo(number(row, 2)?),
        seq: number(row, 3)?,
        owner: row.get::<_, Col<_>>(4)?.0,
        answer: kept(row, 5)?,
    };
    Ok((AskNo(number(row, 0)?), ask))
}

/// Reads an answer that is kept, if there is one, from the columns from `at` on.
fn kept(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Kept>> {
    let by = optional(row, at)?.zip(optional(row, at + 1)?);
    let message = optional(row, at + 2)?;
    Ok(by.zip(message).map(|(by, message)| Kept { by, message }))
}

fn state(row: &Row<'_>) -> rusqlite::Result<(Box<str>, Box<Value>)> {
    let value = Value { version: number(row, 1)?, bytes: row.get::<_, Col<_>>(2)?.0 };
    Ok((row.get(0)?, Box::new(value)))
}

fn stream(row: &Row<'_>) -> rusqlite::Result<(StreamNo, Stream)> {
    let connection = optional(row, 3)?.map(ConnNo);
    let stream = Stream {
        next_seq: number(row, 2)?,
        attached: connection.zip(optional(row, 4)?),
        delivered: number(row, 5)?,
        finished_at: time(row, 6)?,
        ..Stream::new(kind(row.get(1)?))
    };
    Ok((StreamNo(number(row, 0)?), stream))
}
