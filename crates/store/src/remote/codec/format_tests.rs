//! Checks the row formats against examples that releases have written, in the folder `formats/`.
//!
//! Every later release reads the rows of earlier ones, and processes of two consecutive releases
//! use one database side by side. A new field that an older release can ignore goes to the end of
//! its row, and the format number stays. Any other change needs a new format number; the codec
//! continues to read the older formats, and each format has its file. A file never changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use steadfast_session::{
    Call, CallNo, Class, CloseReason, ConnNo, Facts, ForwardedBegin, Meta, NodeId, Principal, Request,
    ServerRequest, ServerRequestNo, Session, SessionId, StateEntry, StoredAnswer, StoredEvent, Stream,
    StreamKind, StreamNo, Time,
};
use steadfast_wire::{RequestId, Revision};

use super::{FORMAT, OLDEST};
use crate::remote::cached_session::IndexEntries;
use crate::remote::database::{EventKey, Snapshot, VersionStamp};

/// The rows of the session below in each format, from the oldest on.
const WRITTEN: &[&str] = &[include_str!("formats/format-2.txt")];

const ID: SessionId = SessionId::from_random([7; SessionId::BYTES]);

/// Returns a session with a value in every field that a row has.
fn session() -> (Session, IndexEntries) {
    let facts = Facts {
        id: ID,
        // The recorded formats have this name.
        principal: Principal::new(concat!("some", "body")),
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
        next_server_request: 5,
        next_connection: 6,
        next_version: 7,
        revoked_calls: vec![CallNo(8), CallNo(9)],
        forwarded_begins: vec![ForwardedBegin { node: NodeId(10), attempt: u64::MAX, stream: StreamNo(1) }],
    };
    let call = |id: RequestId, request| Call {
        id,
        stream: StreamNo(2),
        owner: NodeId(u64::MAX),
        assigned_by: NodeId(10),
        attempt: 11,
        response_only: true,
        request,
    };
    let request = Request { text: Bytes::from_static(b"do"), reassignable: true };
    let calls = BTreeMap::from([
        (CallNo(298), call(RequestId::Number(-2), Some(Box::new(request)))),
        (CallNo(299), call(RequestId::text("two"), None)),
    ]);
    let answer = StoredAnswer { by: (NodeId(10), 12), message: Bytes::from_static(b"yes") };
    let server_requests = BTreeMap::from([
        (
            ServerRequestNo(3),
            ServerRequest { call: None, stream: StreamNo(0), seq: 1, owner: NodeId(10), answer: None },
        ),
        (
            ServerRequestNo(4),
            ServerRequest {
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
        Box::new(StateEntry { version: 6, bytes: Bytes::from_static(b"value") }),
    )]);
    let index_entries =
        IndexEntries { check_at: Time(1_700_000_000_004), present: vec![NodeId(10), NodeId(11)] };
    (Session::restore(Arc::new(facts), meta, calls, server_requests, streams(), state), index_entries)
}

fn streams() -> BTreeMap<StreamNo, Box<Stream>> {
    let entry = |seq, class, payload: Option<&'static [u8]>| StoredEvent {
        seq,
        class,
        size: 70,
        payload: payload.map(Bytes::from_static),
    };
    let log = Stream {
        next_seq: 3,
        attached: Some((ConnNo(5), NodeId(10))),
        delivered: 1,
        events: [entry(1, Class::ServerRequest, None), entry(2, Class::Notification, None)].into(),
        bytes: 140,
        ..Stream::new(StreamKind::Standalone)
    };
    let answered = Stream {
        next_seq: 2,
        finished_at: Some(Time(1_700_000_000_005)),
        events: [entry(1, Class::Response, Some(b"answer"))].into(),
        bytes: 70,
        ..Stream::new(StreamKind::Post { open: 0 })
    };
    let open = Stream {
        next_seq: 2,
        events: [entry(1, Class::ServerRequest, None)].into(),
        bytes: 70,
        ..Stream::new(StreamKind::Post { open: 2 })
    };
    [log, answered, open].into_iter().zip(0..).map(|(stream, no)| (StreamNo(no), Box::new(stream))).collect()
}

/// Returns the events that are not in rows. Each database stores them in its own way.
fn events(session: &Session) -> Vec<EventKey> {
    let mut events = Vec::new();
    for (no, stream) in session.streams() {
        for entry in stream.events.iter().filter(|entry| entry.payload.is_none()) {
            events.push(EventKey { stream: *no, seq: entry.seq, class: entry.class, size: entry.size });
        }
    }
    events
}

/// Returns the rows as this release writes them, one per line: its name and its bytes.
fn written(session: &Session, index_entries: &IndexEntries) -> String {
    let mut rows = vec![
        (Bytes::from_static(super::FACTS), super::facts(session.facts())),
        (Bytes::from_static(super::META), super::meta(session, index_entries)),
    ];
    rows.extend(session.calls().iter().map(|(no, call)| (super::name('c', no.0), super::call(call))));
    rows.extend(
        session
            .server_requests()
            .iter()
            .map(|(no, server_request)| (super::name('a', no.0), super::server_request(server_request))),
    );
    rows.extend(session.streams().iter().map(|(no, stream)| (super::name('s', no.0), super::stream(stream))));
    rows.extend(session.state().iter().map(|(key, value)| (super::state_name(key), super::value(value))));
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
fn rows_are_written_in_the_current_format() {
    let (session, index_entries) = session();
    let now = written(&session, &index_entries);
    assert_eq!(
        now,
        WRITTEN[WRITTEN.len() - 1],
        "the bytes of format {FORMAT} have changed, but processes of the previous release read these rows, too. Raise `FORMAT` \
         in codec/mod.rs, continue to read the older format, and add a file with the rows as they are now:\n{now}"
    );
}

#[test]
fn rows_of_every_supported_format_are_read() {
    assert_eq!((OLDEST..=FORMAT).count(), WRITTEN.len(), "every format that is read must have its file");
    let (session, index_entries) = session();
    for (format, text) in (OLDEST..).zip(WRITTEN) {
        let snapshot =
            Snapshot { stamp: VersionStamp::default(), rows: rows(text), events: events(&session) };
        let (read, stands) = super::restore(ID, snapshot).unwrap_or_else(|error| panic!("{format}: {error}"));
        assert_eq!(stands, index_entries, "{format}");
        assert_eq!((read.facts(), read.meta()), (session.facts(), session.meta()), "{format}");
        assert_eq!(
            (read.calls(), read.server_requests()),
            (session.calls(), session.server_requests()),
            "{format}"
        );
        assert_eq!((read.streams(), read.state()), (session.streams(), session.state()), "{format}");
    }
}

#[test]
fn rows_of_other_formats_are_refused() {
    for format in [OLDEST - 1, FORMAT + 1] {
        let number = u8::try_from(format).expect("a small number");
        let other_rows =
            rows(WRITTEN[0]).into_iter().map(|(name, row)| (name, [&[number], &row[1..]].concat().into()));
        let snapshot =
            Snapshot { stamp: VersionStamp::default(), rows: other_rows.collect(), events: Vec::new() };
        let refused = super::restore(ID, snapshot).expect_err("an unknown format").to_string();
        assert!(refused.contains(&format!("format {format}, which this release does not know")), "{refused}");
    }
}
