//! Rows as bytes.
//!
//! A row's name says what it is (`m`, `c12`, `s0`, …); its value is its fields one after the other: numbers in groups of
//! seven bits, texts and bytes with their length in front. A value begins with the number of its format, so that a later
//! release can read what this one wrote. What each format looks like is in `golden/`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use steadfast_session::{
    Ask, AskNo, Call, CallNo, Class, CloseReason, ConnNo, Entry, Facts, Kept, Mailed, Meta, NodeId,
    Principal, Request, Session, SessionId, Stream, StreamKind, StreamNo, Time, Value,
};
use steadfast_wire::{RequestId, Revision};

use super::backing::{EventKey, Snapshot};
use super::slot::Standing;
use crate::error::StoreError;

/// The format that is written, and the oldest one that is read.
pub(super) const FORMAT: u64 = 2;
pub(super) const OLDEST: u64 = 2;

pub(crate) const FACTS: &[u8] = b"f";
pub(crate) const META: &[u8] = b"m";

pub(crate) fn name(kind: char, no: u64) -> Bytes {
    Bytes::from(format!("{kind}{no}"))
}

pub(crate) fn state_name(key: &str) -> Bytes {
    Bytes::from(format!("v{key}"))
}

const CLASSES: [Class; 5] = [Class::Chatter, Class::Notice, Class::Ask, Class::Response, Class::Withdrawal];

pub(crate) fn class_code(class: Class) -> u64 {
    match class {
        Class::Chatter => 0,
        Class::Notice => 1,
        Class::Ask => 2,
        Class::Response => 3,
        Class::Withdrawal => 4,
    }
}

pub(crate) fn class_of(code: u64) -> Option<Class> {
    CLASSES.into_iter().find(|class| class_code(*class) == code)
}

/// A row that is being written.
struct Row(BytesMut);

impl Row {
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
            // The sign goes to the lowest bit, so that small numbers stay short.
            RequestId::Number(n) => self.number(0).number(((n << 1) ^ (n >> 63)).cast_unsigned()),
            RequestId::Text(text) => self.number(1).bytes(text.as_bytes()),
        }
    }

    fn done(self) -> Bytes {
        self.0.freeze()
    }
}

pub(crate) fn facts(facts: &Facts) -> Bytes {
    Row::new()
        .bytes(facts.principal.as_str().as_bytes())
        .bytes(facts.revision.as_str().as_bytes())
        .bytes(&facts.initialize)
        .number(facts.opened_at.0)
        .done()
}

/// What changes about a session as a whole, and where it stands in the lists beside it.
pub(crate) fn meta(session: &Session, standing: &Standing) -> Bytes {
    let meta = session.meta();
    let row = Row::new()
        .number(session.held_bytes())
        .number(meta.last_active.0)
        .optional(meta.detached_at, |row, at| row.number(at.0))
        .optional(meta.closed, |row, (reason, at)| row.bytes(reason.as_str().as_bytes()).number(at.0))
        .number(meta.next_call)
        .number(meta.next_stream)
        .number(meta.next_ask)
        .number(meta.next_connection)
        .number(meta.next_version)
        .number(standing.check_at.0)
        .numbers(standing.present.iter().map(|node| node.0))
        .numbers(meta.taken.iter().map(|call| call.0));
    // Last and most often absent: whoever does not know of it, reads the row without it.
    let mailed = meta.mailed.iter().flat_map(|mailed| [mailed.node.0, mailed.attempt, mailed.stream.0]);
    mailed.fold(row, Row::number).done()
}

pub(crate) fn call(call: &Call) -> Bytes {
    Row::new()
        .id(&call.id)
        .number(call.stream.0)
        .number(call.owner.0)
        .number(call.from.0)
        .number(call.attempt)
        .number(u64::from(call.answer_only))
        .optional(call.request.as_deref(), |row, Request { text, again }| {
            row.number(u64::from(*again)).bytes(text)
        })
        .done()
}

pub(crate) fn ask(ask: &Ask) -> Bytes {
    Row::new()
        .optional(ask.call, |row, call| row.number(call.0))
        .number(ask.stream.0)
        .number(ask.seq)
        .number(ask.owner.0)
        .optional(ask.answer.as_ref(), |row, kept| {
            row.number(kept.by.0.0).number(kept.by.1).bytes(&kept.message)
        })
        .done()
}

/// A stream without its events, but for an answer that is kept in its row.
pub(crate) fn stream(stream: &Stream) -> Bytes {
    let open_calls = match stream.kind {
        StreamKind::Post { open } => Some(open),
        StreamKind::Standalone => None,
    };
    let answer = stream.entries.back().and_then(|entry| Some((entry, entry.payload.as_ref()?)));
    Row::new()
        .optional(open_calls, |row, open| row.number(u64::from(open)))
        .number(stream.next_seq)
        .optional(stream.attached, |row, (connection, node)| row.number(connection.0).number(node.0))
        .number(stream.delivered)
        .optional(stream.finished_at, |row, at| row.number(at.0))
        .optional(answer, |row, (entry, payload)| row.number(u64::from(entry.size)).bytes(payload))
        .done()
}

pub(crate) fn value(value: &Value) -> Bytes {
    Row::new().number(value.version).bytes(&value.bytes).done()
}

/// A row that is being read.
struct Cells(Bytes);

type Cell<T> = Result<T, StoreError>;

fn unreadable(what: &str) -> StoreError {
    StoreError::Corrupt(format!("a session row with {what}"))
}

impl Cells {
    fn open(row: Bytes) -> Cell<Self> {
        let mut cells = Self(row);
        match cells.number()? {
            OLDEST..=FORMAT => Ok(cells),
            other => Err(unreadable(&format!("format {other}, which this release does not know"))),
        }
    }

    fn number(&mut self) -> Cell<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.0.try_get_u8().map_err(|_| unreadable("too few bytes"))?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(unreadable("an endless number"))
    }

    fn bytes(&mut self) -> Cell<Bytes> {
        let length = usize::try_from(self.number()?).map_err(|_| unreadable("a length beyond all bounds"))?;
        if length > self.0.len() {
            return Err(unreadable("too few bytes"));
        }
        Ok(self.0.split_to(length))
    }

    fn text(&mut self) -> Cell<String> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| unreadable("a text that is none"))
    }

    fn optional<T>(&mut self, get: impl FnOnce(&mut Self) -> Cell<T>) -> Cell<Option<T>> {
        if self.number()? == 0 { Ok(None) } else { get(self).map(Some) }
    }

    fn time(&mut self) -> Cell<Time> {
        self.number().map(Time)
    }

    fn id(&mut self) -> Cell<RequestId> {
        if self.number()? == 1 {
            return self.text().map(RequestId::text);
        }
        let n = self.number()?;
        Ok(RequestId::Number((n >> 1).cast_signed() ^ -(n & 1).cast_signed()))
    }

    fn facts(mut self, id: SessionId) -> Cell<Facts> {
        Ok(Facts {
            id,
            principal: Principal::new(self.text()?),
            revision: Revision::parse(&self.text()?).ok_or_else(|| unreadable("an unknown revision"))?,
            initialize: self.bytes()?,
            opened_at: self.time()?,
        })
    }

    fn meta(mut self) -> Cell<(Meta, Standing)> {
        let _bytes = self.number()?;
        let meta = Meta {
            last_active: self.time()?,
            detached_at: self.optional(Self::time)?,
            closed: self.optional(|cells| Ok((cells.reason()?, cells.time()?)))?,
            next_call: self.number()?,
            next_stream: self.number()?,
            next_ask: self.number()?,
            next_connection: self.number()?,
            next_version: self.number()?,
            taken: Vec::new(),
            mailed: Vec::new(),
        };
        let check_at = self.time()?;
        let present = self.numbers()?.into_iter().map(NodeId).collect();
        let taken = self.numbers()?.into_iter().map(CallNo).collect();
        let mut mailed = Vec::new();
        while !self.0.is_empty() {
            let (node, attempt) = (NodeId(self.number()?), self.number()?);
            mailed.push(Mailed { node, attempt, stream: StreamNo(self.number()?) });
        }
        Ok((Meta { taken, mailed, ..meta }, Standing { check_at, present }))
    }

    fn numbers(&mut self) -> Cell<Vec<u64>> {
        let count = self.number()?;
        (0..count).map(|_| self.number()).collect()
    }

    fn reason(&mut self) -> Cell<CloseReason> {
        let text = self.text()?;
        let known = CloseReason::ALL.into_iter().find(|reason| reason.as_str() == text);
        known.ok_or_else(|| unreadable("an unknown reason for closing"))
    }

    fn call(mut self) -> Cell<Call> {
        Ok(Call {
            id: self.id()?,
            stream: StreamNo(self.number()?),
            owner: NodeId(self.number()?),
            from: NodeId(self.number()?),
            attempt: self.number()?,
            answer_only: self.number()? == 1,
            request: self.optional(|cells| {
                let again = cells.number()? == 1;
                Ok(Box::new(Request { text: cells.bytes()?, again }))
            })?,
        })
    }

    fn ask(mut self) -> Cell<Ask> {
        Ok(Ask {
            call: self.optional(Self::number)?.map(CallNo),
            stream: StreamNo(self.number()?),
            seq: self.number()?,
            owner: NodeId(self.number()?),
            answer: self.optional(|cells| {
                Ok(Kept { by: (NodeId(cells.number()?), cells.number()?), message: cells.bytes()? })
            })?,
        })
    }

    fn stream(mut self) -> Cell<(Stream, Option<Entry>)> {
        let kind = match self.optional(Self::number)? {
            None => StreamKind::Standalone,
            Some(open) => StreamKind::Post { open: u32::try_from(open).unwrap_or(u32::MAX) },
        };
        let mut stream = Stream::new(kind);
        stream.next_seq = self.number()?.max(1);
        stream.attached = self.optional(|cells| Ok((ConnNo(cells.number()?), NodeId(cells.number()?))))?;
        stream.delivered = self.number()?;
        stream.finished_at = self.optional(Self::time)?;
        let answer = self.optional(|cells| {
            let size = u32::try_from(cells.number()?).unwrap_or(u32::MAX);
            Ok((size, cells.bytes()?))
        })?;
        let answer = answer.map(|(size, payload)| Entry {
            seq: stream.last_seq(),
            class: Class::Response,
            size,
            payload: Some(payload),
        });
        Ok((stream, answer))
    }

    fn value(mut self) -> Cell<Value> {
        Ok(Value { version: self.number()?, bytes: self.bytes()? })
    }
}

/// The bytes that a session holds, from its row.
pub(crate) fn bytes_of(meta: Bytes) -> Result<u64, StoreError> {
    Cells::open(meta)?.number()
}

/// A session from everything that a database holds of it.
pub(crate) fn restore(id: SessionId, snapshot: Snapshot) -> Result<(Session, Standing), StoreError> {
    let (mut facts, mut whole) = (None, None);
    let (mut calls, mut asks) = (BTreeMap::new(), BTreeMap::new());
    let (mut streams, mut state, mut answers) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    for (name, row) in snapshot.rows {
        let cells = Cells::open(row)?;
        let (kind, rest) = name.split_at_checked(1).ok_or_else(|| unreadable("no name"))?;
        let rest = std::str::from_utf8(rest).map_err(|_| unreadable("a name that is no text"))?;
        let no = || rest.parse::<u64>().map_err(|_| unreadable("a name without its number"));
        match kind {
            b"f" => facts = Some(cells.facts(id)?),
            b"m" => whole = Some(cells.meta()?),
            b"c" => drop(calls.insert(CallNo(no()?), cells.call()?)),
            b"a" => drop(asks.insert(AskNo(no()?), cells.ask()?)),
            b"v" => drop(state.insert(Box::from(rest), Box::new(cells.value()?))),
            b"s" => {
                let (no, (stream, answer)) = (StreamNo(no()?), cells.stream()?);
                answers.extend(answer.map(|answer| (no, answer)));
                streams.insert(no, Box::new(stream));
            }
            _ => return Err(unreadable("an unknown name")),
        }
    }
    let (Some(facts), Some((meta, standing))) = (facts, whole) else {
        return Err(StoreError::Corrupt("a session without its first rows".into()));
    };
    let mut events = snapshot.events;
    events.sort_unstable();
    let logged = events
        .into_iter()
        .map(|EventKey { stream, seq, class, size }| (stream, Entry { seq, class, size, payload: None }));
    // Answers that are kept in a stream's row are its last event.
    for (no, entry) in logged.chain(answers) {
        let Some(stream) = streams.get_mut(&no) else { continue };
        stream.bytes += u64::from(entry.size);
        stream.entries.push_back(entry);
    }
    Ok((Session::restore(Arc::new(facts), meta, calls, asks, streams, state), standing))
}

#[cfg(test)]
mod tests {
    use steadfast_session::command::Begin;
    use steadfast_session::{Changes, Rules, Step};

    use super::*;

    /// Processes of the release before read and write the same rows.
    #[test]
    fn calls_that_were_mailed_follow_what_every_release_reads() {
        let facts = Facts {
            id: SessionId::from_random([1; SessionId::BYTES]),
            principal: Principal::anonymous(),
            revision: Revision::LATEST_LEGACY,
            initialize: Bytes::new(),
            opened_at: Time(0),
        };
        let mut session = Session::open(Arc::new(facts));
        let standing = Standing { check_at: Time(7), present: vec![NodeId(u64::MAX), NodeId(3)] };
        let begin = Begin { owner: NodeId(3), ..Begin::here(NodeId(u64::MAX), 300, vec![1.into()]) };
        session.apply(begin.into_command(), Time(0), &Rules::default(), &mut Changes::default());
        let whole = meta(&session, &standing);
        let (read, _) = Cells::open(whole.clone()).unwrap().meta().unwrap();
        assert_eq!((read.mailed.len(), &read), (1, session.meta()));

        let facts = Arc::clone(session.facts());
        let without = Meta { mailed: Vec::new(), ..read };
        let tables = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (calls, asks, streams, state) = tables;
        let before = Session::restore(facts, without.clone(), calls, asks, streams, state);
        let row = meta(&before, &standing);
        assert!(whole.starts_with(&row), "what is new comes last");
        let (read, _) = Cells::open(row).unwrap().meta().unwrap();
        assert_eq!(read, without);
    }
}
