//! From a session's changes to rows.

use rusqlite::params;
use steadfast_session::changes::Appended;
use steadfast_session::{CallNo, Changes, Class, Mailed, Meta, Stream, StreamKind, StreamNo, Time};

use super::slot::{Dirty, Slot};
use super::sql::WriterSql;
use super::value::{Col, MAILED, class_code, instant, int};

/// The size up to which an answer is kept in its stream's row, so that the row stays on its page.
const SMALL_ANSWER: u32 = 768;

/// Writes the events that a command appended and removes those that it dropped. Done at once and not with the
/// group: each event is written once anyway, and its payload need not be kept for later.
pub(super) fn log(sql: &mut WriterSql<'_>, slot: &mut Slot, changes: &Changes) -> rusqlite::Result<()> {
    for Appended { stream, seq, class, payload } in &changes.appended {
        // An event that left again within its own command never reaches the file.
        let Some(log) = slot.session.streams().get(stream) else { continue };
        let Ok(at) = log.entries.binary_search_by_key(seq, |entry| entry.seq) else { continue };
        if is_small_answer(log, at) {
            continue;
        }
        let size = log.entries[at].size;
        slot.session.shed_payload(*stream, *seq);
        sql.add_event.execute(params![
            slot.key,
            int(stream.0),
            int(*seq),
            class_code(*class),
            size,
            &payload[..]
        ])?;
    }
    for (stream, seq) in &changes.dropped {
        sql.drop_event.execute([slot.key, int(stream.0), int(*seq)])?;
    }
    Ok(())
}

/// Whether an event is written with its stream's row. It is the only kind that keeps its payload in memory.
fn is_small_answer(stream: &Stream, at: usize) -> bool {
    let ends = !stream.is_open() && stream.kind != StreamKind::Standalone && at + 1 == stream.entries.len();
    ends && stream.entries[at].class == Class::Response && stream.entries[at].size <= SMALL_ANSWER
}

/// Writes every row of a session that differs from the file, once each.
pub(super) fn rows(sql: &mut WriterSql<'_>, slot: &mut Slot) -> rusqlite::Result<()> {
    let mut dirty = std::mem::take(&mut slot.dirty);
    streams(sql, slot, &mut dirty)?;
    calls(sql, slot, &mut dirty)?;
    asks(sql, slot, &mut dirty)?;
    state(sql, slot, &mut dirty)?;
    if dirty.meta {
        meta(sql, slot)?;
    }
    dirty.meta = false;
    dirty.listed = false;
    slot.dirty = dirty;
    Ok(())
}

fn streams(sql: &mut WriterSql<'_>, slot: &Slot, dirty: &mut Dirty) -> rusqlite::Result<()> {
    dirty.streams.sort_unstable();
    dirty.streams.dedup();
    let live = slot.session.streams();
    // Streams go in runs. One that came and went within this group is no reason to end a run.
    let one_run = |a: &StreamNo, b: &StreamNo| live.range(a..=b).next().is_none();
    for run in dirty.streams.chunk_by(one_run) {
        let (first, last) = (run[0], run[run.len() - 1]);
        if let Some(stream) = live.get(&first) {
            put_stream(sql, slot.key, first, stream)?;
        } else {
            sql.drop_streams.execute([slot.key, int(first.0), int(last.0)])?;
            sql.drop_events_of_streams.execute([slot.key, int(first.0), int(last.0)])?;
        }
    }
    dirty.streams.clear();
    Ok(())
}

fn put_stream(sql: &mut WriterSql<'_>, key: i64, no: StreamNo, stream: &Stream) -> rusqlite::Result<()> {
    let open_calls = match stream.kind {
        StreamKind::Post { open } => Some(open),
        StreamKind::Standalone => None,
    };
    let answer = stream.entries.back().filter(|entry| entry.payload.is_some());
    sql.put_stream.execute(params![
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

fn calls(sql: &mut WriterSql<'_>, slot: &Slot, dirty: &mut Dirty) -> rusqlite::Result<()> {
    dirty.calls.sort_unstable();
    for no in dirty.started.drain(..).filter(|no| dirty.calls.binary_search(no).is_err()) {
        put_call(sql, slot, no)?;
    }
    for mentions in dirty.calls.chunk_by(CallNo::eq) {
        let no = mentions[0];
        match slot.session.calls().get(&no) {
            Some(_) => put_call(sql, slot, no)?,
            // A call is named when it comes and when it goes. Named twice, it came and went within this group
            // and has no row.
            None if mentions.len() > 1 => {}
            None => {
                sql.drop_call.execute([slot.key, int(no.0)])?;
            }
        }
    }
    dirty.calls.clear();
    Ok(())
}

fn put_call(sql: &mut WriterSql<'_>, slot: &Slot, no: CallNo) -> rusqlite::Result<()> {
    let Some(call) = slot.session.calls().get(&no) else { return Ok(()) };
    sql.put_call.execute(params![
        slot.key,
        int(no.0),
        Col(&call.id),
        int(call.stream.0),
        int(call.owner.0),
        int(call.from.0),
        int(call.attempt),
        call.answer_only,
        call.request.as_ref().map(|request| request.again),
        call.request.as_ref().map(|request| &request.text[..]),
    ])?;
    Ok(())
}

fn asks(sql: &mut WriterSql<'_>, slot: &Slot, dirty: &mut Dirty) -> rusqlite::Result<()> {
    dirty.asks.sort_unstable();
    dirty.asks.dedup();
    for no in dirty.asks.drain(..) {
        match slot.session.asks().get(&no) {
            Some(ask) => sql.put_ask.execute(params![
                slot.key,
                int(no.0),
                ask.call.map(|call| int(call.0)),
                int(ask.stream.0),
                int(ask.seq),
                int(ask.owner.0),
                ask.answer.as_ref().map(|kept| int(kept.by.0.0)),
                ask.answer.as_ref().map(|kept| int(kept.by.1)),
                ask.answer.as_ref().map(|kept| &kept.message[..]),
            ])?,
            None => sql.drop_ask.execute([slot.key, int(no.0)])?,
        };
    }
    Ok(())
}

fn state(sql: &mut WriterSql<'_>, slot: &Slot, dirty: &mut Dirty) -> rusqlite::Result<()> {
    dirty.state.sort_unstable();
    dirty.state.dedup();
    for name in dirty.state.drain(..) {
        match slot.session.state().get(&name) {
            Some(value) => {
                sql.put_state.execute(params![slot.key, name, int(value.version), &value.bytes[..]])?
            }
            None => sql.drop_state.execute(params![slot.key, name])?,
        };
    }
    Ok(())
}

pub(super) fn meta(sql: &mut WriterSql<'_>, slot: &Slot) -> rusqlite::Result<()> {
    let meta = slot.session.meta();
    sql.put_meta.execute(params![
        slot.key,
        instant(meta.last_active),
        meta.detached_at.map(instant),
        meta.closed.map(|(reason, _)| reason.as_str()),
        meta.closed.map(|(_, at)| instant(at)),
        int(meta.next_call),
        int(meta.next_stream),
        int(meta.next_ask),
        int(meta.next_connection),
        int(meta.next_version),
        remembered(meta),
        slot.check_at.map(instant),
    ])?;
    Ok(())
}

/// Calls that were taken, and those that were mailed: their words have the highest bit, which no number of a call has. So whoever
/// does not know of them finds calls that there are not.
fn remembered(meta: &Meta) -> Option<Vec<u8>> {
    let taken = meta.taken.iter().map(|call| call.0);
    let words = |mailed: &Mailed| {
        let (high, low) = (mailed.node.0 >> 32, mailed.node.0 & u64::from(u32::MAX));
        [high, low, mailed.attempt, mailed.stream.0].map(|word| word | MAILED)
    };
    let words: Vec<u64> = taken.chain(meta.mailed.iter().flat_map(words)).collect();
    (!words.is_empty()).then(|| words.into_iter().flat_map(u64::to_be_bytes).collect())
}

/// Moves a session in the agenda.
pub(super) fn schedule(sql: &mut WriterSql<'_>, slot: &mut Slot, at: Option<Time>) -> rusqlite::Result<()> {
    if slot.check_at == at {
        return Ok(());
    }
    if let Some(old) = slot.check_at {
        sql.drop_agenda.execute([instant(old), slot.key])?;
    }
    if let Some(new) = at {
        sql.put_agenda.execute([instant(new), slot.key])?;
    }
    slot.check_at = at;
    slot.dirty.meta = true;
    Ok(())
}

/// Removes every row of a session.
pub(super) fn remove(sql: &mut WriterSql<'_>, slot: &mut Slot) -> rusqlite::Result<()> {
    schedule(sql, slot, None)?;
    for statement in [
        &mut sql.remove_session,
        &mut sql.remove_meta,
        &mut sql.remove_streams,
        &mut sql.remove_events,
        &mut sql.remove_calls,
        &mut sql.remove_asks,
        &mut sql.remove_state,
        &mut sql.remove_presence,
    ] {
        statement.execute([slot.key])?;
    }
    Ok(())
}
