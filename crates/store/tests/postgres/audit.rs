//! Compares the tables with the model after all stores were closed.

use std::collections::{BTreeMap, BTreeSet};

use steadfast_session::{Class, Session, StreamKind};
use steadfast_store::testing::model::Model;

use crate::database::Server;

pub(crate) fn audit(server: &Server, schema: &str, model: &Model) -> Result<(), String> {
    let lines = |sql: &str| -> BTreeSet<String> {
        let sql = sql.replace("FROM ", &format!("FROM \"{schema}\"."));
        server.ask(&sql).lines().map(str::to_owned).collect()
    };
    let sessions = model.sessions.iter().map(|(id, session)| {
        let stands = if session.is_open() { "f" } else { "t" };
        format!("{}|{}|{stands}", hex(id.as_bytes()), hex(session.facts().principal.as_str().as_bytes()))
    });
    let found =
        lines("SELECT encode(id, 'hex'), encode(principal, 'hex'), closed FROM session WHERE stamp <> ''");
    same("sessions", found, sessions.collect())?;
    same("rows of nothing", lines("SELECT count(*) FROM session WHERE stamp = ''"), set(["0"]))?;

    let parts = model.sessions.iter().flat_map(|(id, session)| {
        part_names(session)
            .into_iter()
            .map(move |name| format!("{}|{}", hex(id.as_bytes()), hex(name.as_bytes())))
    });
    same("parts", lines("SELECT encode(session, 'hex'), encode(name, 'hex') FROM part"), parts.collect())?;

    let found = lines("SELECT encode(session, 'hex'), stream, seq FROM event");
    let events = |wanted: &dyn Fn(bool) -> bool| -> BTreeSet<String> {
        let of = |(id, session): (&steadfast_session::SessionId, &Session)| {
            let id = hex(id.as_bytes());
            events(session, wanted).into_iter().map(move |event| format!("{id}|{event}")).collect::<Vec<_>>()
        };
        model.sessions.iter().flat_map(of).collect()
    };
    let (all, surely) = (events(&|_| true), events(&|is_small| !is_small));
    check(found.is_subset(&all) && found.is_superset(&surely), || {
        format!("events: {found:?} are there, {surely:?} should be and {all:?} may be")
    })?;

    let mut tally: BTreeMap<String, u64> = BTreeMap::new();
    for session in model.sessions.values().filter(|session| session.is_open()) {
        *tally.entry(hex(session.facts().principal.as_str().as_bytes())).or_default() += 1;
    }
    let total = format!("{}|{}", model.sessions.len(), tally.values().sum::<u64>());
    same("the total", lines("SELECT listed, open FROM total"), set([&*total]))?;
    let tally = tally.into_iter().map(|(principal, open)| format!("{principal}|{open}")).collect();
    same("the tally", lines("SELECT encode(principal, 'hex'), open FROM tally"), tally)
}

fn part_names(session: &Session) -> Vec<String> {
    let calls = session.calls().keys().map(|no| format!("c{no}"));
    let server_requests = session.server_requests().keys().map(|no| format!("a{no}"));
    let streams = session.streams().keys().map(|no| format!("s{no}"));
    let state = session.state().keys().map(|name| format!("v{name}"));
    ["f".to_owned()].into_iter().chain(calls).chain(server_requests).chain(streams).chain(state).collect()
}

/// Returns the events of a session that `wanted` selects by whether they may be stored in a row of
/// `part`: the small response that ends the stream of a POST.
fn events(session: &Session, wanted: impl Fn(bool) -> bool) -> Vec<String> {
    let mut events = Vec::new();
    for (no, stream) in session.streams() {
        for (i, entry) in stream.events.iter().enumerate() {
            let ends = i + 1 == stream.events.len() && !stream.is_open();
            let is_post = stream.kind != StreamKind::Standalone;
            if wanted(ends && is_post && entry.class == Class::Response && entry.size <= 768) {
                events.push(format!("{no}|{}", entry.seq));
            }
        }
    }
    events
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn set<const N: usize>(lines: [&str; N]) -> BTreeSet<String> {
    lines.map(str::to_owned).into()
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: T, expected: T) -> Result<(), String> {
    check(got == expected, || format!("{what}:\n     got {got:?}\nexpected {expected:?}"))
}

fn check(holds: bool, complaint: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(complaint()) }
}
