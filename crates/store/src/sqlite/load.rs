//! Reads the rows of a session and builds the session from them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use rusqlite::{OptionalExtension, Row};
use steadfast_session::{
    Call, CallNo, Class, ConnNo, Facts, ForwardedBegin, Meta, NodeId, Request, ServerRequest,
    ServerRequestNo, Session, SessionId, StateEntry, StoredAnswer, StoredEvent, Stream, StreamKind, StreamNo,
    Streams, Time,
};

use super::cached_session::CachedSession;
use super::columns::{Column, FORWARDED_BEGIN_BIT};
use super::statements::WriterStatements;

/// Loads a session with the index of its events. Payloads stay in the file.
pub(super) fn load(
    statements: &mut WriterStatements<'_>,
    id: SessionId,
) -> rusqlite::Result<Option<CachedSession>> {
    let found =
        statements.find_session.query_row([id.as_bytes()], |row| Ok((row.get(0)?, facts(id, row, 1)?)));
    let Some((key, facts)) = found.optional()? else { return Ok(None) };
    let (meta, check_at) = statements.load_meta.query_row([key], meta)?;
    let calls = statements.load_calls.query_map([key], call)?.collect::<Result<_, _>>()?;
    let server_requests =
        statements.load_server_requests.query_map([key], server_request)?.collect::<Result<_, _>>()?;
    let state = statements.load_state.query_map([key], state)?.collect::<Result<_, _>>()?;
    let streams = streams(statements, key)?;
    let session = Session::restore(Arc::new(facts), meta, calls, server_requests, streams, state);
    Ok(Some(CachedSession::new(key, session, check_at)))
}

fn streams(statements: &mut WriterStatements<'_>, key: i64) -> rusqlite::Result<Streams> {
    let mut streams = BTreeMap::new();
    let mut answers = Vec::new();
    let mut rows = statements.load_streams.query([key])?;
    while let Some(row) = rows.next()? {
        let (no, stream) = stream(row)?;
        answers.extend(answer(row, 7, &stream)?.map(|answer| (no, answer)));
        streams.insert(no, Box::new(stream));
    }
    let mut rows = statements.load_events.query([key])?;
    while let Some(row) = rows.next()? {
        add_event(&mut streams, StreamNo(number(row, 0)?), event(row, 1)?);
    }
    for (no, answer) in answers {
        add_event(&mut streams, no, answer);
    }
    Ok(streams)
}

fn add_event(streams: &mut Streams, no: StreamNo, entry: StoredEvent) {
    let Some(stream) = streams.get_mut(&no) else { return };
    stream.bytes += u64::from(entry.size);
    stream.events.push_back(entry);
}

/// Reads sequence number, class and size from the columns from `at` on.
pub(super) fn event(row: &Row<'_>, at: usize) -> rusqlite::Result<StoredEvent> {
    Ok(StoredEvent {
        seq: number(row, at)?,
        class: row.get::<_, Column<_>>(at + 1)?.0,
        size: row.get(at + 2)?,
        payload: None,
    })
}

/// Reads the answer that ends a stream from the columns from `at` on, if it is stored in the
/// stream's row.
pub(super) fn answer(row: &Row<'_>, at: usize, stream: &Stream) -> rusqlite::Result<Option<StoredEvent>> {
    let Some(size) = row.get(at)? else { return Ok(None) };
    let payload = Some(row.get::<_, Column<_>>(at + 1)?.0);
    Ok(Some(StoredEvent { seq: stream.last_seq(), class: Class::Response, size, payload }))
}

/// Reads principal, revision, `initialize` and time of opening from the columns from `at` on.
pub(super) fn facts(id: SessionId, row: &Row<'_>, at: usize) -> rusqlite::Result<Facts> {
    Ok(Facts {
        id,
        principal: steadfast_session::Principal::new(row.get::<_, String>(at)?),
        revision: row.get::<_, Column<_>>(at + 1)?.0,
        initialize: row.get::<_, Column<_>>(at + 2)?.0,
        opened_at: row.get::<_, Column<_>>(at + 3)?.0,
    })
}

/// Returns the kind of a stream. Only a POST stream has a count of open calls.
pub(super) fn kind(open_calls: Option<u32>) -> StreamKind {
    open_calls.map_or(StreamKind::Standalone, |open| StreamKind::Post { open })
}

pub(super) fn number(row: &Row<'_>, at: usize) -> rusqlite::Result<u64> {
    row.get::<_, Column<u64>>(at).map(|Column(number)| number)
}

pub(super) fn optional<T>(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<T>>
where
    Column<T>: rusqlite::types::FromSql,
{
    Ok(row.get::<_, Option<Column<T>>>(at)?.map(|Column(value)| value))
}

pub(super) fn time(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Time>> {
    optional(row, at)
}

fn meta(row: &Row<'_>) -> rusqlite::Result<(Meta, Option<Time>)> {
    let meta = Meta {
        last_active: row.get::<_, Column<_>>(0)?.0,
        detached_at: time(row, 1)?,
        closed: optional(row, 2)?.zip(time(row, 3)?),
        next_call: number(row, 4)?,
        next_stream: number(row, 5)?,
        next_server_request: number(row, 6)?,
        next_connection: number(row, 7)?,
        next_version: number(row, 8)?,
        revoked_calls: Vec::new(),
        forwarded_begins: Vec::new(),
    };
    let (revoked_calls, forwarded_begins) = decode_remembered(&optional(row, 9)?.unwrap_or_default());
    let meta = Meta { revoked_calls, forwarded_begins, ..meta };
    Ok((meta, time(row, 10)?))
}

fn decode_remembered(words: &Bytes) -> (Vec<CallNo>, Vec<ForwardedBegin>) {
    let words = words.as_chunks::<8>().0.iter().map(|word| u64::from_be_bytes(*word));
    let (forwarded_begins, revoked_calls): (Vec<u64>, Vec<u64>) =
        words.partition(|word| word & FORWARDED_BEGIN_BIT != 0);
    let forwarded_begins: Vec<u64> =
        forwarded_begins.into_iter().map(|word| word & !FORWARDED_BEGIN_BIT).collect();
    // Another release may have dropped the first words because of their limit, so the groups of
    // four are counted from the end.
    let forwarded_begins = forwarded_begins.as_rchunks::<4>().1.iter().map(|[high, low, attempt, stream]| {
        ForwardedBegin { node: NodeId(high << 32 | low), attempt: *attempt, stream: StreamNo(*stream) }
    });
    (revoked_calls.into_iter().map(CallNo).collect(), forwarded_begins.collect())
}

fn call(row: &Row<'_>) -> rusqlite::Result<(CallNo, Call)> {
    let call = Call {
        id: row.get::<_, Column<_>>(1)?.0,
        stream: StreamNo(number(row, 2)?),
        owner: row.get::<_, Column<_>>(3)?.0,
        assigned_by: row.get::<_, Column<_>>(4)?.0,
        attempt: number(row, 5)?,
        response_only: row.get(6)?,
        request: request(row, 7)?,
    };
    Ok((CallNo(number(row, 0)?), call))
}

/// Reads the stored request of a call from the columns from `at` on, if there is one.
fn request(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Box<Request>>> {
    let reassignable: Option<bool> = row.get(at)?;
    let text = optional(row, at + 1)?;
    Ok(reassignable.zip(text).map(|(reassignable, text)| Box::new(Request { text, reassignable })))
}

fn server_request(row: &Row<'_>) -> rusqlite::Result<(ServerRequestNo, ServerRequest)> {
    let server_request = ServerRequest {
        call: optional(row, 1)?.map(CallNo),
        stream: StreamNo(number(row, 2)?),
        seq: number(row, 3)?,
        owner: row.get::<_, Column<_>>(4)?.0,
        answer: kept(row, 5)?,
    };
    Ok((ServerRequestNo(number(row, 0)?), server_request))
}

/// Reads the kept answer of a server request from the columns from `at` on, if there is one.
fn kept(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<StoredAnswer>> {
    let by = optional(row, at)?.zip(optional(row, at + 1)?);
    let message = optional(row, at + 2)?;
    Ok(by.zip(message).map(|(by, message)| StoredAnswer { by, message }))
}

fn state(row: &Row<'_>) -> rusqlite::Result<(Box<str>, Box<StateEntry>)> {
    let value = StateEntry { version: number(row, 1)?, bytes: row.get::<_, Column<_>>(2)?.0 };
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
