//! Writes the changes of a session to rows.

use rusqlite::params;
use steadfast_session::changes::Appended;
use steadfast_session::{CallNo, Changes, Class, ForwardedBegin, Meta, Stream, StreamKind, StreamNo, Time};

use super::cached_session::{CachedSession, Dirty};
use super::columns::{Column, FORWARDED_BEGIN_BIT, instant, int};
use super::statements::WriterStatements;

/// The size up to which the answer that ends a POST stream is stored in the row of the stream.
/// The row then stays on one page.
const MAX_RESPONSE_IN_ROW: u32 = 768;

/// Inserts the events that a command appended, and deletes those that it dropped. This happens at
/// once and not with the group: each event is written only once anyway, and its payload need not be
/// kept in memory.
pub(super) fn write_events(
    statements: &mut WriterStatements<'_>,
    cached: &mut CachedSession,
    changes: &Changes,
) -> rusqlite::Result<()> {
    for Appended { stream, seq, class, payload } in &changes.appended {
        // An event that the same command removed is not written.
        let Some(log) = cached.session.streams().get(stream) else { continue };
        let Ok(at) = log.events.binary_search_by_key(seq, |entry| entry.seq) else { continue };
        if is_stored_in_stream_row(log, at) {
            continue;
        }
        let size = log.events[at].size;
        cached.session.drop_payload(*stream, *seq);
        statements.add_event.execute(params![
            cached.key,
            int(stream.0),
            int(*seq),
            class.code(),
            size,
            &payload[..]
        ])?;
    }
    for (stream, seq) in &changes.dropped {
        statements.drop_event.execute([cached.key, int(stream.0), int(*seq)])?;
    }
    Ok(())
}

/// Returns true if an event is stored in the row of its stream. Only such events keep their payload
/// in memory.
fn is_stored_in_stream_row(stream: &Stream, at: usize) -> bool {
    let ends = !stream.is_open() && stream.kind != StreamKind::Standalone && at + 1 == stream.events.len();
    ends && stream.events[at].class == Class::Response && stream.events[at].size <= MAX_RESPONSE_IN_ROW
}

/// Writes every row of a session that differs from the file, once each.
pub(super) fn write_rows(
    statements: &mut WriterStatements<'_>,
    cached: &mut CachedSession,
) -> rusqlite::Result<()> {
    let mut dirty = std::mem::take(&mut cached.dirty);
    streams(statements, cached, &mut dirty)?;
    calls(statements, cached, &mut dirty)?;
    server_requests(statements, cached, &mut dirty)?;
    state(statements, cached, &mut dirty)?;
    if dirty.meta {
        meta(statements, cached)?;
    }
    dirty.meta = false;
    dirty.listed = false;
    cached.dirty = dirty;
    Ok(())
}

fn streams(
    statements: &mut WriterStatements<'_>,
    cached: &CachedSession,
    dirty: &mut Dirty,
) -> rusqlite::Result<()> {
    dirty.streams.sort_unstable();
    dirty.streams.dedup();
    let live = cached.session.streams();
    // Delete runs of streams with one statement. A stream that was added and removed within this
    // group does not end a run.
    let one_run = |a: &StreamNo, b: &StreamNo| live.range(a..=b).next().is_none();
    for run in dirty.streams.chunk_by(one_run) {
        let (first, last) = (run[0], run[run.len() - 1]);
        if let Some(stream) = live.get(&first) {
            put_stream(statements, cached.key, first, stream)?;
        } else {
            statements.drop_streams.execute([cached.key, int(first.0), int(last.0)])?;
            statements.drop_events_of_streams.execute([cached.key, int(first.0), int(last.0)])?;
        }
    }
    dirty.streams.clear();
    Ok(())
}

fn put_stream(
    statements: &mut WriterStatements<'_>,
    key: i64,
    no: StreamNo,
    stream: &Stream,
) -> rusqlite::Result<()> {
    let open_calls = match stream.kind {
        StreamKind::Post { open } => Some(open),
        StreamKind::Standalone => None,
    };
    let answer = stream.events.back().filter(|entry| entry.payload.is_some());
    statements.put_stream.execute(params![
        key,
        int(no.0),
        open_calls,
        int(stream.next_seq),
        stream.attached.map(|(connection, _)| int(connection.0)),
        stream.attached.map(|(_, node)| int(node.0)),
        int(stream.delivered),
        stream.finished_at.map(instant),
        answer.map(|answer| answer.size),
        answer.and_then(|answer| answer.payload.as_deref()),
    ])?;
    Ok(())
}

fn calls(
    statements: &mut WriterStatements<'_>,
    cached: &CachedSession,
    dirty: &mut Dirty,
) -> rusqlite::Result<()> {
    dirty.calls.sort_unstable();
    for no in dirty.started.drain(..).filter(|no| dirty.calls.binary_search(no).is_err()) {
        put_call(statements, cached, no)?;
    }
    for mentions in dirty.calls.chunk_by(CallNo::eq) {
        let no = mentions[0];
        match cached.session.calls().get(&no) {
            Some(_) => put_call(statements, cached, no)?,
            // A call is in the list once when it is added and once when it is removed. If it is
            // there twice, it was added and removed within this group, and has no row.
            None if mentions.len() > 1 => {}
            None => {
                statements.drop_call.execute([cached.key, int(no.0)])?;
            }
        }
    }
    dirty.calls.clear();
    Ok(())
}

fn put_call(
    statements: &mut WriterStatements<'_>,
    cached: &CachedSession,
    no: CallNo,
) -> rusqlite::Result<()> {
    let Some(call) = cached.session.calls().get(&no) else { return Ok(()) };
    statements.put_call.execute(params![
        cached.key,
        int(no.0),
        Column(&call.id),
        int(call.stream.0),
        int(call.owner.0),
        int(call.assigned_by.0),
        int(call.attempt),
        call.response_only,
        call.request.as_ref().map(|request| request.reassignable),
        call.request.as_ref().map(|request| &request.text[..]),
    ])?;
    Ok(())
}

fn server_requests(
    statements: &mut WriterStatements<'_>,
    cached: &CachedSession,
    dirty: &mut Dirty,
) -> rusqlite::Result<()> {
    dirty.server_requests.sort_unstable();
    dirty.server_requests.dedup();
    for no in dirty.server_requests.drain(..) {
        match cached.session.server_requests().get(&no) {
            Some(server_request) => statements.put_server_request.execute(params![
                cached.key,
                int(no.0),
                server_request.call.map(|call| int(call.0)),
                int(server_request.stream.0),
                int(server_request.seq),
                int(server_request.owner.0),
                server_request.answer.as_ref().map(|kept| int(kept.by.0.0)),
                server_request.answer.as_ref().map(|kept| int(kept.by.1)),
                server_request.answer.as_ref().map(|kept| &kept.message[..]),
            ])?,
            None => statements.drop_server_request.execute([cached.key, int(no.0)])?,
        };
    }
    Ok(())
}

fn state(
    statements: &mut WriterStatements<'_>,
    cached: &CachedSession,
    dirty: &mut Dirty,
) -> rusqlite::Result<()> {
    dirty.state.sort_unstable();
    dirty.state.dedup();
    for name in dirty.state.drain(..) {
        match cached.session.state().get(&name) {
            Some(value) => statements.put_state.execute(params![
                cached.key,
                name,
                int(value.version),
                &value.bytes[..]
            ])?,
            None => statements.drop_state.execute(params![cached.key, name])?,
        };
    }
    Ok(())
}

pub(super) fn meta(statements: &mut WriterStatements<'_>, cached: &CachedSession) -> rusqlite::Result<()> {
    let meta = cached.session.meta();
    statements.put_meta.execute(params![
        cached.key,
        instant(meta.last_active),
        meta.detached_at.map(instant),
        meta.closed.map(|(reason, _)| reason.as_str()),
        meta.closed.map(|(_, at)| instant(at)),
        int(meta.next_call),
        int(meta.next_stream),
        int(meta.next_server_request),
        int(meta.next_connection),
        int(meta.next_version),
        encode_remembered(meta),
        cached.check_at.map(instant),
    ])?;
    Ok(())
}

/// Encodes the calls that were reassigned (`revoked_calls`) and the forwarded `Begin`s. The words
/// of the latter have the highest bit, which no call number has. A release that does not know
/// forwarded `Begin`s reads them as numbers of calls that do not exist.
fn encode_remembered(meta: &Meta) -> Option<Vec<u8>> {
    let revoked_calls = meta.revoked_calls.iter().map(|call| call.0);
    let words = |begin: &ForwardedBegin| {
        let (high, low) = (begin.node.0 >> 32, begin.node.0 & u64::from(u32::MAX));
        [high, low, begin.attempt, begin.stream.0].map(|word| word | FORWARDED_BEGIN_BIT)
    };
    let words: Vec<u64> = revoked_calls.chain(meta.forwarded_begins.iter().flat_map(words)).collect();
    (!words.is_empty()).then(|| words.into_iter().flat_map(u64::to_be_bytes).collect())
}

/// Moves the next sweep of a session.
pub(super) fn schedule(
    statements: &mut WriterStatements<'_>,
    cached: &mut CachedSession,
    at: Option<Time>,
) -> rusqlite::Result<()> {
    if cached.check_at == at {
        return Ok(());
    }
    if let Some(old) = cached.check_at {
        statements.drop_agenda.execute([instant(old), cached.key])?;
    }
    if let Some(new) = at {
        statements.put_agenda.execute([instant(new), cached.key])?;
    }
    cached.check_at = at;
    cached.dirty.meta = true;
    Ok(())
}

/// Removes every row of a session.
pub(super) fn remove(
    statements: &mut WriterStatements<'_>,
    cached: &mut CachedSession,
) -> rusqlite::Result<()> {
    schedule(statements, cached, None)?;
    for statement in [
        &mut statements.remove_session,
        &mut statements.remove_meta,
        &mut statements.remove_streams,
        &mut statements.remove_events,
        &mut statements.remove_calls,
        &mut statements.remove_server_requests,
        &mut statements.remove_state,
        &mut statements.remove_presence,
    ] {
        statement.execute([cached.key])?;
    }
    Ok(())
}
