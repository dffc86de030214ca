//! What is in the server after everybody has gone, compared with what should be.

use std::collections::BTreeSet;

use redis::Commands;
use steadfast_session::{Class, Session, SessionId, StreamKind};
use steadfast_store::testing::model::Model;
use steadfast_store::testing::server::RedisServer;

use crate::database::connect;

pub(crate) fn audit(server: &RedisServer, prefix: &str, model: &Model) -> Result<(), String> {
    let mut server = connect(server).map_err(|error| error.to_string())?;
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
        let key = format!("{prefix}:{{{}}}", id.text());
        let rows: BTreeSet<String> = server.hkeys(&key).expect("the server answers");
        same("rows", rows, row_names(session))?;
        let logged: BTreeSet<String> = server.hkeys(format!("{key}:log")).expect("the server answers");
        let places: BTreeSet<String> = logged.iter().map(|name| place(name)).collect();
        let (all, surely) = (events(session, |_| true), events(session, |is_small| !is_small));
        check(places.is_subset(&all) && places.is_superset(&surely), || {
            format!("events: {places:?} are there, {surely:?} should be and {all:?} may be")
        })?;
        if !logged.is_empty() {
            expected.insert(format!("{key}:log"));
        }
        expected.insert(key);
    }
    let sessions: BTreeSet<String> = all.iter().filter(|key| !key.starts_with('{')).cloned().collect();
    same("keys of sessions", sessions, expected)?;
    let members = |ids: &mut dyn Iterator<Item = (&SessionId, &Session)>| -> BTreeSet<Vec<u8>> {
        ids.map(|(id, session)| [id.as_bytes(), session.facts().principal.as_str().as_bytes()].concat())
            .collect()
    };
    let agenda: BTreeSet<Vec<u8>> = server.zrange(format!("{{{prefix}}}:agenda"), 0, -1).expect("an answer");
    same("the agenda", agenda, members(&mut model.sessions.iter()))?;
    let closed: BTreeSet<Vec<u8>> = server.smembers(format!("{{{prefix}}}:closed")).expect("an answer");
    let are_closed = &mut model.sessions.iter().filter(|(_, session)| !session.is_open());
    same("closed sessions", closed, members(are_closed))
}

fn row_names(session: &Session) -> BTreeSet<String> {
    let fixed = ["=", "f", "m"].map(str::to_owned);
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

/// The events that a session has. Whether it is a small answer that ends the stream of a POST decides: such may be in a row.
fn events(session: &Session, wanted: impl Fn(bool) -> bool) -> BTreeSet<String> {
    let mut events = BTreeSet::new();
    for (no, stream) in session.streams() {
        for (i, entry) in stream.entries.iter().enumerate() {
            let ends = i + 1 == stream.entries.len() && !stream.is_open();
            let is_post = stream.kind != StreamKind::Standalone;
            if wanted(ends && is_post && entry.class == Class::Response && entry.size <= 768) {
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
