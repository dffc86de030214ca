//! What is in the server after everybody has gone, compared with what should be.

use std::collections::BTreeSet;

use redis::Commands;
use steadfast_session::{Session, SessionId};
use steadfast_store::testing::model::Model;

use crate::server::Server;

pub(crate) fn audit(server: &Server, prefix: &str, model: &Model) -> Result<(), String> {
    let mut server = server.connect().map_err(|error| error.to_string())?;
    let all: Vec<String> = [format!("{prefix}:*"), format!("{{{prefix}}}:*")]
        .iter()
        .flat_map(|pattern| server.keys::<_, Vec<String>>(pattern).expect("the server answers"))
        .collect();
    for key in &all {
        let ttl: i64 = server.pttl(key).expect("the server answers");
        check(ttl > 0, || format!("{key} stays for ever"))?;
    }
    let mut expected = BTreeSet::new();
    for (id, session) in &model.sessions {
        let key = format!("{prefix}:{{{}}}", id.expose());
        let rows: BTreeSet<String> = server.hkeys(&key).expect("the server answers");
        same("rows", rows, row_names(session))?;
        let logged: BTreeSet<String> = server.hkeys(format!("{key}:log")).expect("the server answers");
        same("events", logged.iter().map(|name| place(name)).collect(), logged_events(session))?;
        if !logged.is_empty() {
            expected.insert(format!("{key}:log"));
        }
        expected.insert(key);
    }
    let sessions: BTreeSet<String> = all.iter().filter(|key| !key.starts_with('{')).cloned().collect();
    same("keys of sessions", sessions, expected)?;
    let names = |ids: &mut dyn Iterator<Item = &SessionId>| ids.map(SessionId::expose).collect::<BTreeSet<_>>();
    let agenda: BTreeSet<String> = server.zrange(format!("{{{prefix}}}:agenda"), 0, -1).expect("an answer");
    same("the agenda", agenda, names(&mut model.sessions.keys()))?;
    let open: BTreeSet<String> = server.hkeys(format!("{{{prefix}}}:open")).expect("an answer");
    let are_open = model.sessions.iter().filter(|(_, session)| session.is_open());
    same("open sessions", open, names(&mut are_open.map(|(id, _)| id)))
}

fn row_names(session: &Session) -> BTreeSet<String> {
    let fixed = ["=", "+", "f", "m"].map(str::to_owned);
    let calls = session.calls().keys().map(|no| format!("c{no}"));
    let asks = session.asks().keys().map(|no| format!("a{no}"));
    let streams = session.streams().keys().map(|no| format!("s{no}"));
    let state = session.state().keys().map(|name| format!("v{name}"));
    fixed.into_iter().chain(calls).chain(asks).chain(streams).chain(state).collect()
}

/// Stream and number of an event.
fn place(name: &str) -> String {
    name.split('.').take(2).collect::<Vec<_>>().join(".")
}

/// All but small answers that end the stream of a POST, unless others had been there first: those may be in either place.
fn logged_events(session: &Session) -> BTreeSet<String> {
    let mut events = BTreeSet::new();
    for (no, stream) in session.streams() {
        for (i, entry) in stream.entries.iter().enumerate() {
            let ends = i + 1 == stream.entries.len() && !stream.is_open();
            let is_post = stream.kind != steadfast_session::StreamKind::Standalone;
            let is_small = entry.class == steadfast_session::Class::Response && entry.size <= 768;
            if !(ends && is_post && is_small) {
                events.insert(format!("{no}.{}", entry.seq));
            }
        }
    }
    events
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: T, expected: T) -> Result<(), String> {
    check(got == expected, || format!("{what}:\n     got {got:?}\nexpected {expected:?}"))
}

fn check(holds: bool, complaint: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(complaint()) }
}
