//! Compares the rows of the file with the model.

use std::path::Path;

use rusqlite::Connection;
use steadfast_session::Session;
use steadfast_store::testing::model::Model;

pub(crate) fn audit(file: &Path, model: &Model) -> Result<(), String> {
    let connection = Connection::open(file).map_err(|error| error.to_string())?;
    let ask = |sql: &str| {
        connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(|error| format!("{sql}: {error}"))
    };
    let sum = |count: fn(&Session) -> usize| model.sessions.values().map(count).sum::<usize>();
    for (what, expected) in [
        ("FROM session", model.sessions.len()),
        ("FROM meta", model.sessions.len()),
        ("FROM agenda JOIN meta USING (session, check_at)", check_schedule(&ask)?),
        ("FROM stream", sum(|session| session.streams().len())),
        ("FROM call", sum(|session| session.calls().len())),
        ("FROM ask", sum(|session| session.server_requests().len())),
        ("FROM ask WHERE answer IS NOT NULL", sum(kept_answers)),
        ("FROM ask WHERE (answer IS NULL) <> (kept_by IS NULL) OR (answer IS NULL) <> (attempt IS NULL)", 0),
        ("FROM state", sum(|session| session.state().len())),
        ("FROM node", model.nodes.len()),
        ("FROM presence WHERE session NOT IN (SELECT key FROM session)", 0),
        ("FROM tally WHERE sessions < 1", 0),
    ] {
        same(what, ask(&format!("SELECT count(*) {what}"))?, expected)?;
    }
    let events = ask("SELECT (SELECT count(*) FROM event) + (SELECT count(answer) FROM stream)")?;
    same(
        "events",
        events,
        sum(|session| session.streams().values().map(|stream| stream.events.len()).sum()),
    )?;
    same("integrity", ask("SELECT integrity_check <> 'ok' FROM pragma_integrity_check")?, 0)
}

fn kept_answers(session: &Session) -> usize {
    session.server_requests().values().filter(|ask| ask.answer.is_some()).count()
}

/// Checks that each session is in the sweep schedule at most once. Returns the number of entries.
fn check_schedule(ask: &impl Fn(&str) -> Result<i64, String>) -> Result<usize, String> {
    same(
        "agenda",
        ask("SELECT count(*) FROM agenda")?,
        usize::try_from(ask("SELECT count(check_at) FROM meta")?).unwrap_or(0),
    )?;
    Ok(usize::try_from(ask("SELECT count(*) FROM agenda")?).unwrap_or(0))
}

fn same(what: &str, got: i64, expected: usize) -> Result<(), String> {
    if usize::try_from(got) == Ok(expected) {
        return Ok(());
    }
    Err(format!("{what}: the file has {got}, expected {expected}"))
}
