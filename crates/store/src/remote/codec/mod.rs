//! Encodes the rows of a session as bytes, and decodes them.
//!
//! The name of a row says what it contains: `f` facts, `m` meta data, `s0` stream 0, `c12` call 12,
//! `a3` server request 3, `vNAME` state entry NAME. The value is the sequence of its fields:
//! numbers as variable-length integers (LEB128), texts and bytes with their length in front. A
//! value begins with the number of its format, so that a later release can read what this one
//! wrote. The folder `formats/` has examples of each format.

#[cfg(test)]
mod format_tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use steadfast_session::{
    Call, CallNo, Class, CloseReason, ConnNo, Facts, ForwardedBegin, LastUse, Meta, NodeId, Principal,
    Request, ServerRequest, ServerRequestNo, Session, SessionId, StateEntry, StoredAnswer, StoredEvent,
    Stream, StreamKind, StreamNo, Time,
};
use steadfast_wire::{RequestId, Revision};

use crate::error::StoreError;
use crate::remote::cached_session::IndexEntries;
use crate::remote::database::{EventKey, Snapshot};

/// The format that this release writes.
const FORMAT: u64 = 2;
/// The oldest format that this release reads.
const OLDEST: u64 = 2;

pub(crate) const FACTS: &[u8] = b"f";
pub(crate) const META: &[u8] = b"m";

/// Returns the name of a row that is numbered.
pub(crate) fn name(kind: char, no: u64) -> Bytes {
    Bytes::from(format!("{kind}{no}"))
}

/// Returns the name of the row of a state entry.
pub(crate) fn state_name(key: &str) -> Bytes {
    Bytes::from(format!("v{key}"))
}

struct RowWriter(BytesMut);

impl RowWriter {
    fn new() -> Self {
        Self(BytesMut::with_capacity(64)).number(FORMAT)
    }

    fn number(mut self, mut number: u64) -> Self {
        while number >= 0x80 {
            self.0.put_u8((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.0.put_u8((number & 0x7f) as u8);
        self
    }

    fn numbers(self, numbers: impl ExactSizeIterator<Item = u64>) -> Self {
        let row = self.number(numbers.len() as u64);
        numbers.fold(row, Self::number)
    }

    fn bytes(self, bytes: &[u8]) -> Self {
        let mut row = self.number(bytes.len() as u64);
        row.0.put_slice(bytes);
        row
    }

    fn optional<T>(self, value: Option<T>, put: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            None => self.number(0),
            Some(value) => put(self.number(1), value),
        }
    }

    fn id(self, id: &RequestId) -> Self {
        match id {
            // Zigzag encoding: the sign is the lowest bit, so that small numbers stay short.
            RequestId::Number(n) => self.number(0).number(((n << 1) ^ (n >> 63)).cast_unsigned()),
            RequestId::Text(text) => self.number(1).bytes(text.as_bytes()),
        }
    }

    fn done(self) -> Bytes {
        self.0.freeze()
    }
}

pub(crate) fn facts(facts: &Facts) -> Bytes {
    RowWriter::new()
        .bytes(facts.principal.as_str().as_bytes())
        .bytes(facts.revision.as_str().as_bytes())
        .bytes(&facts.initialize)
        .number(facts.opened_at.0)
        .done()
}

/// Encodes what changes about a session as a whole, and its index entries.
pub(crate) fn meta(session: &Session, index_entries: &IndexEntries) -> Bytes {
    let meta = session.meta();
    let row = RowWriter::new()
        .number(session.held_bytes())
        .number(meta.last_active.0)
        .optional(meta.detached_at, |row, at| row.number(at.0))
        .optional(meta.closed, |row, (reason, at)| row.bytes(reason.as_str().as_bytes()).number(at.0))
        .number(meta.next_call)
        .number(meta.next_stream)
        .number(meta.next_server_request)
        .number(meta.next_connection)
        .number(meta.next_version)
        .number(index_entries.check_at.0)
        .numbers(index_entries.present.iter().map(|node| node.0))
        .numbers(meta.revoked_calls.iter().map(|call| call.0));
    // Last, and absent in most rows, so that a release that does not know this field can read the
    // row.
    let forwarded_begins =
        meta.forwarded_begins.iter().flat_map(|begin| [begin.node.0, begin.attempt, begin.stream.0]);
    forwarded_begins.fold(row, RowWriter::number).done()
}

pub(crate) fn call(call: &Call) -> Bytes {
    RowWriter::new()
        .id(&call.id)
        .number(call.stream.0)
        .number(call.owner.0)
        .number(call.assigned_by.0)
        .number(call.attempt)
        .number(u64::from(call.response_only))
        .optional(call.request.as_deref(), |row, Request { text, reassignable }| {
            row.number(u64::from(*reassignable)).bytes(text)
        })
        .done()
}

pub(crate) fn server_request(server_request: &ServerRequest) -> Bytes {
    RowWriter::new()
        .optional(server_request.call, |row, call| row.number(call.0))
        .number(server_request.stream.0)
        .number(server_request.seq)
        .number(server_request.owner.0)
        .optional(server_request.answer.as_ref(), |row, kept| {
            row.number(kept.by.0.0).number(kept.by.1).bytes(&kept.message)
        })
        .done()
}

/// Encodes a stream without its events, except for an answer that is stored in its row.
pub(crate) fn stream(stream: &Stream) -> Bytes {
    let open_calls = match stream.kind {
        StreamKind::Post { open } => Some(open),
        StreamKind::Standalone => None,
    };
    let answer = stream.events.back().and_then(|entry| Some((entry, entry.payload.as_ref()?)));
    RowWriter::new()
        .optional(open_calls, |row, open| row.number(u64::from(open)))
        .number(stream.next_seq)
        .optional(stream.attached, |row, (connection, node)| row.number(connection.0).number(node.0))
        .number(stream.delivered)
        .optional(stream.finished_at, |row, at| row.number(at.0))
        .optional(answer, |row, (entry, payload)| row.number(u64::from(entry.size)).bytes(payload))
        .done()
}

pub(crate) fn value(value: &StateEntry) -> Bytes {
    RowWriter::new().number(value.version).bytes(&value.bytes).done()
}

struct RowReader(Bytes);

type Decoded<T> = Result<T, StoreError>;

fn unreadable(what: &str) -> StoreError {
    StoreError::Corrupt(format!("a session row has {what}"))
}

impl RowReader {
    fn open(row: Bytes) -> Decoded<Self> {
        let mut row = Self(row);
        match row.number()? {
            OLDEST..=FORMAT => Ok(row),
            other => Err(unreadable(&format!("format {other}, which this release does not know"))),
        }
    }

    fn number(&mut self) -> Decoded<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.0.try_get_u8().map_err(|_| unreadable("too few bytes"))?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(unreadable("a number that is too long"))
    }

    fn bytes(&mut self) -> Decoded<Bytes> {
        let length = usize::try_from(self.number()?).map_err(|_| unreadable("a length that is too large"))?;
        if length > self.0.len() {
            return Err(unreadable("too few bytes"));
        }
        Ok(self.0.split_to(length))
    }

    fn text(&mut self) -> Decoded<String> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| unreadable("text that is not UTF-8"))
    }

    fn optional<T>(&mut self, get: impl FnOnce(&mut Self) -> Decoded<T>) -> Decoded<Option<T>> {
        if self.number()? == 0 { Ok(None) } else { get(self).map(Some) }
    }

    fn time(&mut self) -> Decoded<Time> {
        self.number().map(Time)
    }

    fn id(&mut self) -> Decoded<RequestId> {
        if self.number()? == 1 {
            return self.text().map(RequestId::text);
        }
        let n = self.number()?;
        Ok(RequestId::Number((n >> 1).cast_signed() ^ -(n & 1).cast_signed()))
    }

    fn facts(mut self, id: SessionId) -> Decoded<Facts> {
        Ok(Facts {
            id,
            principal: Principal::new(self.text()?),
            revision: Revision::parse(&self.text()?).ok_or_else(|| unreadable("an unknown revision"))?,
            initialize: self.bytes()?,
            opened_at: self.time()?,
        })
    }

    fn meta(mut self) -> Decoded<(Meta, IndexEntries)> {
        let _bytes = self.number()?;
        let meta = Meta {
            last_active: self.time()?,
            detached_at: self.optional(Self::time)?,
            closed: self.optional(|row| Ok((row.reason()?, row.time()?)))?,
            next_call: self.number()?,
            next_stream: self.number()?,
            next_server_request: self.number()?,
            next_connection: self.number()?,
            next_version: self.number()?,
            revoked_calls: Vec::new(),
            forwarded_begins: Vec::new(),
        };
        let check_at = self.time()?;
        let present = self.numbers()?.into_iter().map(NodeId).collect();
        let revoked_calls = self.numbers()?.into_iter().map(CallNo).collect();
        let mut forwarded_begins = Vec::new();
        while !self.0.is_empty() {
            let (node, attempt) = (NodeId(self.number()?), self.number()?);
            forwarded_begins.push(ForwardedBegin { node, attempt, stream: StreamNo(self.number()?) });
        }
        Ok((Meta { revoked_calls, forwarded_begins, ..meta }, IndexEntries { check_at, present }))
    }

    fn numbers(&mut self) -> Decoded<Vec<u64>> {
        let count = self.number()?;
        (0..count).map(|_| self.number()).collect()
    }

    fn reason(&mut self) -> Decoded<CloseReason> {
        CloseReason::parse(&self.text()?).ok_or_else(|| unreadable("an unknown close reason"))
    }

    fn call(mut self) -> Decoded<Call> {
        Ok(Call {
            id: self.id()?,
            stream: StreamNo(self.number()?),
            owner: NodeId(self.number()?),
            assigned_by: NodeId(self.number()?),
            attempt: self.number()?,
            response_only: self.number()? == 1,
            request: self.optional(|row| {
                let reassignable = row.number()? == 1;
                Ok(Box::new(Request { text: row.bytes()?, reassignable }))
            })?,
        })
    }

    fn server_request(mut self) -> Decoded<ServerRequest> {
        Ok(ServerRequest {
            call: self.optional(Self::number)?.map(CallNo),
            stream: StreamNo(self.number()?),
            seq: self.number()?,
            owner: NodeId(self.number()?),
            answer: self.optional(|row| {
                Ok(StoredAnswer { by: (NodeId(row.number()?), row.number()?), message: row.bytes()? })
            })?,
        })
    }

    fn stream(mut self) -> Decoded<(Stream, Option<StoredEvent>)> {
        let kind = match self.optional(Self::number)? {
            None => StreamKind::Standalone,
            Some(open) => StreamKind::Post { open: u32::try_from(open).unwrap_or(u32::MAX) },
        };
        let mut stream = Stream::new(kind);
        stream.next_seq = self.number()?.max(1);
        stream.attached = self.optional(|row| Ok((ConnNo(row.number()?), NodeId(row.number()?))))?;
        stream.delivered = self.number()?;
        stream.finished_at = self.optional(Self::time)?;
        let answer = self.optional(|row| {
            let size = u32::try_from(row.number()?).unwrap_or(u32::MAX);
            Ok((size, row.bytes()?))
        })?;
        let answer = answer.map(|(size, payload)| StoredEvent {
            seq: stream.last_seq(),
            class: Class::Response,
            size,
            payload: Some(payload),
        });
        Ok((stream, answer))
    }

    fn value(mut self) -> Decoded<StateEntry> {
        Ok(StateEntry { version: self.number()?, bytes: self.bytes()? })
    }
}

/// Decodes how many bytes a session holds from its `meta` row.
pub(crate) fn bytes_of(meta: Bytes) -> Result<u64, StoreError> {
    RowReader::open(meta)?.number()
}

/// Decodes the last use of a session from its `meta` row. Returns `None` if the session has closed.
pub(crate) fn last_use_of(meta: Bytes) -> Result<Option<LastUse>, StoreError> {
    let (meta, _) = RowReader::open(meta)?.meta()?;
    Ok(meta.closed.is_none().then(|| meta.last_use()))
}

/// Builds a session from a snapshot. Fails with [`StoreError::Corrupt`] if a row is unreadable.
pub(crate) fn restore(id: SessionId, snapshot: Snapshot) -> Result<(Session, IndexEntries), StoreError> {
    let (mut facts, mut meta) = (None, None);
    let (mut calls, mut server_requests) = (BTreeMap::new(), BTreeMap::new());
    let (mut streams, mut state, mut answers) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    for (name, row) in snapshot.rows {
        let row = RowReader::open(row)?;
        let (kind, rest) = name.split_at_checked(1).ok_or_else(|| unreadable("no name"))?;
        let rest = std::str::from_utf8(rest).map_err(|_| unreadable("a name that is not UTF-8"))?;
        let no = || rest.parse::<u64>().map_err(|_| unreadable("a name without its number"));
        match kind {
            b"f" => facts = Some(row.facts(id)?),
            b"m" => meta = Some(row.meta()?),
            b"c" => drop(calls.insert(CallNo(no()?), row.call()?)),
            b"a" => drop(server_requests.insert(ServerRequestNo(no()?), row.server_request()?)),
            b"v" => drop(state.insert(Box::from(rest), Box::new(row.value()?))),
            b"s" => {
                let (no, (stream, answer)) = (StreamNo(no()?), row.stream()?);
                answers.extend(answer.map(|answer| (no, answer)));
                streams.insert(no, Box::new(stream));
            }
            _ => return Err(unreadable("an unknown name")),
        }
    }
    let (Some(facts), Some((meta, index_entries))) = (facts, meta) else {
        return Err(StoreError::Corrupt("a session lacks its facts or its meta data".into()));
    };
    let mut events = snapshot.events;
    events.sort_unstable();
    let logged = events.into_iter().map(|EventKey { stream, seq, class, size }| {
        (stream, StoredEvent { seq, class, size, payload: None })
    });
    // An answer in a stream's row is the last event of the stream.
    for (no, entry) in logged.chain(answers) {
        let Some(stream) = streams.get_mut(&no) else { continue };
        stream.bytes += u64::from(entry.size);
        stream.events.push_back(entry);
    }
    Ok((Session::restore(Arc::new(facts), meta, calls, server_requests, streams, state), index_entries))
}

#[cfg(test)]
mod tests {
    use steadfast_session::command::Begin;
    use steadfast_session::{Changes, Rules, Step};

    use super::*;

    /// Processes of the previous release read and write the same rows.
    #[test]
    fn forwarded_begins_come_after_the_fields_that_every_release_reads() {
        let facts = Facts {
            id: SessionId::from_random([1; SessionId::BYTES]),
            principal: Principal::anonymous(),
            revision: Revision::LATEST_LEGACY,
            initialize: Bytes::new(),
            opened_at: Time(0),
        };
        let mut session = Session::open(Arc::new(facts));
        let index_entries = IndexEntries { check_at: Time(7), present: vec![NodeId(u64::MAX), NodeId(3)] };
        let begin = Begin { owner: NodeId(3), ..Begin::local(NodeId(u64::MAX), 300, vec![1.into()]) };
        session.apply(begin.into_command(), Time(0), &Rules::default(), &mut Changes::default());
        let whole = meta(&session, &index_entries);
        let (read, _) = RowReader::open(whole.clone()).unwrap().meta().unwrap();
        assert_eq!((read.forwarded_begins.len(), &read), (1, session.meta()));

        let facts = Arc::clone(session.facts());
        let without = Meta { forwarded_begins: Vec::new(), ..read };
        let tables = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (calls, server_requests, streams, state) = tables;
        let before = Session::restore(facts, without.clone(), calls, server_requests, streams, state);
        let row = meta(&before, &index_entries);
        assert!(whole.starts_with(&row), "a new field comes last");
        let (read, _) = RowReader::open(row).unwrap().meta().unwrap();
        assert_eq!(read, without);
    }
}
