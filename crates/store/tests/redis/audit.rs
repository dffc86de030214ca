//! Compares the keys with the model after all stores were closed.

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
        let positions: BTreeSet<String> = logged.iter().map(|name| position(name)).collect();
        let (all, surely) = (events(session, |_| true), events(session, |is_small| !is_small));
        check(positions.is_subset(&all) && positions.is_superset(&surely), || {
            format!("events: {positions:?} are there, {surely:?} should be and {all:?} may be")
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
    let server_requests = session.server_requests().keys().map(|no| format!("a{no}"));
    let streams = session.streams().keys().map(|no| format!("s{no}"));
    let state = session.state().keys().map(|name| format!("v{name}"));
    fixed.into_iter().chain(calls).chain(server_requests).chain(streams).chain(state).collect()
}

/// Returns stream and number of an event.
fn position(name: &str) -> String {
    name.split('.').take(2).collect::<Vec<_>>().join(".")
}

/// Returns the events of a session that `wanted` selects by whether they may be stored in a row:
/// the small response that ends the stream of a POST.
fn events(session: &Session, wanted: impl Fn(bool) -> bool) -> BTreeSet<String> {
    let mut events = BTreeSet::new();
    for (no, stream) in session.streams() {
        for (i, entry) in stream.events.iter().enumerate() {
            let ends = i + 1 == stream.events.len() && !stream.is_open();
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
