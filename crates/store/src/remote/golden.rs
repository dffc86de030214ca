//! Rows as releases have written them, in files beside this one: every later release reads them, and a process of the release
//! before goes on beside one of this.
//!
//! A field that others may do without goes to the end of its row, and the format stays what it is. If they may not, the format
//! gets a new number, `codec.rs` goes on reading the older ones, and each has its file here. A file never changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use steadfast_session::{
    Ask, AskNo, Call, CallNo, Class, CloseReason, ConnNo, Entry, Facts, Kept, Mailed, Meta, NodeId,
    Principal, Request, Session, SessionId, Stream, StreamKind, StreamNo, Time, Value,
};
use steadfast_wire::{RequestId, Revision};

use super::backing::{EventKey, Snapshot, Stamp};
use super::codec::{self, FORMAT, OLDEST};
use super::slot::Standing;

/// What each format wrote of the session below, from the oldest on.
const WRITTEN: &[&str] = &[include_str!("golden/format-2.txt")];

const ID: SessionId = SessionId::from_random([7; SessionId::BYTES]);

/// A session with something in every field that a row has.
fn session() -> (Session, Standing) {
    let facts = Facts {
        id: ID,
        principal: Principal::new("somebody"),
        revision: Revision::LATEST_LEGACY,
        initialize: Bytes::from_static(b"{}"),
        opened_at: Time(1_700_000_000_000),
    };
    let meta = Meta {
        last_active: Time(1_700_000_000_001),
        detached_at: Some(Time(1_700_000_000_002)),
        closed: Some((CloseReason::Deleted, Time(1_700_000_000_003))),
        next_call: 300,
        next_stream: 4,
        next_ask: 5,
        next_connection: 6,
        next_version: 7,
        taken: vec![CallNo(8), CallNo(9)],
        mailed: vec![Mailed { node: NodeId(10), attempt: u64::MAX, stream: StreamNo(1) }],
    };
    let call = |id: RequestId, request| Call {
        id,
        stream: StreamNo(2),
        owner: NodeId(u64::MAX),
        from: NodeId(10),
        attempt: 11,
        answer_only: true,
        request,
    };
    let request = Request { text: Bytes::from_static(b"do"), again: true };
    let calls = BTreeMap::from([
        (CallNo(298), call(RequestId::Number(-2), Some(Box::new(request)))),
        (CallNo(299), call(RequestId::text("two"), None)),
    ]);
    let answer = Kept { by: (NodeId(10), 12), message: Bytes::from_static(b"yes") };
    let asks = BTreeMap::from([
        (AskNo(3), Ask { call: None, stream: StreamNo(0), seq: 1, owner: NodeId(10), answer: None }),
        (
            AskNo(4),
            Ask {
                call: Some(CallNo(298)),
                stream: StreamNo(2),
                seq: 1,
                owner: NodeId(10),
                answer: Some(answer),
            },
        ),
    ]);
    let state = BTreeMap::from([(
        Box::from("name"),
        Box::new(Value { version: 6, bytes: Bytes::from_static(b"value") }),
    )]);
    let standing = Standing { check_at: Time(1_700_000_000_004), present: vec![NodeId(10), NodeId(11)] };
    (Session::restore(Arc::new(facts), meta, calls, asks, streams(), state), standing)
}

fn streams() -> BTreeMap<StreamNo, Box<Stream>> {
    let entry = |seq, class, payload: Option<&'static [u8]>| Entry {
        seq,
        class,
        size: 70,
        payload: payload.map(Bytes::from_static),
    };
    let log = Stream {
        next_seq: 3,
        attached: Some((ConnNo(5), NodeId(10))),
        delivered: 1,
        entries: [entry(1, Class::Ask, None), entry(2, Class::Notice, None)].into(),
        bytes: 140,
        ..Stream::new(StreamKind::Standalone)
    };
    let answered = Stream {
        next_seq: 2,
        finished_at: Some(Time(1_700_000_000_005)),
        entries: [entry(1, Class::Response, Some(b"answer"))].into(),
        bytes: 70,
        ..Stream::new(StreamKind::Post { open: 0 })
    };
    let open = Stream {
        next_seq: 2,
        entries: [entry(1, Class::Ask, None)].into(),
        bytes: 70,
        ..Stream::new(StreamKind::Post { open: 2 })
    };
    [log, answered, open].into_iter().zip(0..).map(|(stream, no)| (StreamNo(no), Box::new(stream))).collect()
}

/// Its events that are not in rows. Databases write these down each in its own way.
fn events(session: &Session) -> Vec<EventKey> {
    let mut events = Vec::new();
    for (no, stream) in session.streams() {
        for entry in stream.entries.iter().filter(|entry| entry.payload.is_none()) {
            events.push(EventKey { stream: *no, seq: entry.seq, class: entry.class, size: entry.size });
        }
    }
    events
}

/// The rows as this release writes them: a line each, its name and its bytes.
fn written(session: &Session, standing: &Standing) -> String {
    let mut rows = vec![
        (Bytes::from_static(codec::FACTS), codec::facts(session.facts())),
        (Bytes::from_static(codec::META), codec::meta(session, standing)),
    ];
    rows.extend(session.calls().iter().map(|(no, call)| (codec::name('c', no.0), codec::call(call))));
    rows.extend(session.asks().iter().map(|(no, ask)| (codec::name('a', no.0), codec::ask(ask))));
    rows.extend(session.streams().iter().map(|(no, stream)| (codec::name('s', no.0), codec::stream(stream))));
    rows.extend(session.state().iter().map(|(key, value)| (codec::state_name(key), codec::value(value))));
    let line = |(name, row): &(Bytes, Bytes)| {
        let hex: String = row.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{} {hex}\n", String::from_utf8_lossy(name))
    };
    rows.iter().map(line).collect()
}

fn rows(text: &str) -> Vec<(Bytes, Bytes)> {
    let row = |line: &str| {
        let (name, hex) = line.split_once(' ').expect("a name and bytes");
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("a byte");
        (Bytes::copy_from_slice(name.as_bytes()), (0..hex.len()).step_by(2).map(byte).collect())
    };
    text.lines().map(row).collect()
}

#[test]
fn rows_are_written_as_the_format_says() {
    let (session, standing) = session();
    let now = written(&session, &standing);
    assert_eq!(
        now,
        WRITTEN[WRITTEN.len() - 1],
        "format {FORMAT} is written in another way than before. Processes of the release before read these rows, too: raise \
         `FORMAT` in codec.rs, go on reading the older one, and put what is written now beside the file for that one. It is\n{now}"
    );
}

#[test]
fn rows_of_every_format_are_read() {
    assert_eq!((OLDEST..=FORMAT).count(), WRITTEN.len(), "each format that is read has its file");
    let (session, standing) = session();
    for (format, text) in (OLDEST..).zip(WRITTEN) {
        let snapshot = Snapshot { stamp: Stamp::default(), rows: rows(text), events: events(&session) };
        let (read, stands) = codec::restore(ID, snapshot).unwrap_or_else(|error| panic!("{format}: {error}"));
        assert_eq!(stands, standing, "{format}");
        assert_eq!((read.facts(), read.meta()), (session.facts(), session.meta()), "{format}");
        assert_eq!((read.calls(), read.asks()), (session.calls(), session.asks()), "{format}");
        assert_eq!((read.streams(), read.state()), (session.streams(), session.state()), "{format}");
    }
}

#[test]
fn rows_of_other_formats_are_refused() {
    for format in [OLDEST - 1, FORMAT + 1] {
        let number = u8::try_from(format).expect("a small number");
        let strange =
            rows(WRITTEN[0]).into_iter().map(|(name, row)| (name, [&[number], &row[1..]].concat().into()));
        let snapshot = Snapshot { stamp: Stamp::default(), rows: strange.collect(), events: Vec::new() };
        let refused = codec::restore(ID, snapshot).expect_err("an unknown format").to_string();
        assert!(refused.contains(&format!("format {format}, which this release does not know")), "{refused}");
    }
}
