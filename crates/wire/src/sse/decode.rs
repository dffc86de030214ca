//! Reading event streams, whatever their chunks and whoever wrote them.

use std::mem;

use bytes::{Buf, Bytes};

use super::find_line_end;

/// A buffer that grew beyond this for one long line is given back instead of kept for the next.
const KEEP_CAPACITY: usize = 16 * 1024;

/// How much a decoder is willing to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest line, without its line end. The first line counts with its byte order mark.
    pub max_line_bytes: usize,
    /// The longest [`Event::data`]. Event names and ids are one line each, so the line limit bounds them.
    pub max_event_bytes: usize,
}

/// Why a stream cannot be read on. The peer is to blame in every case: it sent more than the limits allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The peer sent a line over [`Limits::max_line_bytes`]; it was refused before it ended.
    #[error("the peer sent an event-stream line of more than {limit} bytes")]
    LineTooLong {
        /// The limit in force.
        limit: usize,
    },
    /// The peer sent an event whose data lines, joined, exceed [`Limits::max_event_bytes`].
    #[error("the peer sent an event of more than {limit} bytes")]
    EventTooLarge {
        /// The limit in force.
        limit: usize,
    },
}

/// One block of the stream.
///
/// A browser is silent about a block without a `data` field. Here it is an event with empty data if it
/// carried an id or a retry time, because these alone tell a client where and when to resume. So empty data
/// is never a message: it is a priming event, a `retry`, or a block with an empty `data` field, which a
/// browser would dispatch too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What the peer called the event.
    pub kind: Kind,
    /// The `data` lines joined by LF, as raw bytes: whoever parses them judges their UTF-8.
    pub data: Bytes,
    /// The id given in this very block, with invalid UTF-8 replaced; [`Decoder::last_event_id`] has the one
    /// in force.
    pub id: Option<String>,
    /// The reconnection time given in this block, in milliseconds. The peer may say any number: clamp it.
    pub retry_ms: Option<u64>,
}

/// The name of an event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Kind {
    /// `message`, by name or because there was none.
    #[default]
    Message,
    /// Any other name, such as the `endpoint` of 2024-11-05, with invalid UTF-8 replaced.
    Other(String),
}

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Between events: nothing was lost.
    Clean,
    /// Inside an event or a line, which is discarded; or the stream was refused by a [`DecodeError`].
    Cut,
}

/// The state of one connection's event stream.
///
/// For each chunk received, call [`decode`](Self::decode) until it gives `None`; at the end of the stream ask
/// [`finish`](Self::finish). How the stream is cut into chunks never changes what comes out.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    /// The start of a line whose end has not arrived; at most `max_line_bytes`.
    line: Vec<u8>,
    /// Fields since the last blank line.
    block: Block,
    /// No line is complete yet, so the next one may begin with a byte order mark.
    at_start: bool,
    /// The last line ended with CR, which has ended it already: an LF right after belongs to that line end.
    after_cr: bool,
    last_event_id: String,
    failed: Option<DecodeError>,
}

impl Decoder {
    /// A decoder for a new connection.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            line: Vec::new(),
            block: Block::default(),
            at_start: true,
            after_cr: false,
            last_event_id: String::new(),
            failed: None,
        }
    }

    /// Takes bytes off the front of `input` until an event is complete. `None` means that all of `input` was
    /// taken.
    ///
    /// An error is final: every later call gives it again and takes nothing.
    pub fn decode(&mut self, input: &mut impl Buf) -> Result<Option<Event>, DecodeError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.advance(input).inspect_err(|error| {
            self.failed = Some(*error);
            self.line = Vec::new();
            self.block = Block::default();
        })
    }

    fn advance(&mut self, input: &mut impl Buf) -> Result<Option<Event>, DecodeError> {
        while input.has_remaining() {
            let chunk = input.chunk();
            if mem::take(&mut self.after_cr) && chunk[0] == b'\n' {
                input.advance(1);
                continue;
            }
            // One byte more than fits, so that a line of exactly the limit still shows its end.
            let room = self.limits.max_line_bytes - self.line.len();
            let window = &chunk[..chunk.len().min(room.saturating_add(1))];
            let Some(end) = find_line_end(window) else {
                let taken = window.len();
                if taken > room {
                    return Err(DecodeError::LineTooLong { limit: self.limits.max_line_bytes });
                }
                self.line.extend_from_slice(window);
                input.advance(taken);
                continue;
            };
            self.after_cr = window[end] == b'\r';
            let event = self.end_line(&window[..end])?;
            input.advance(end + 1);
            if event.is_some() {
                return Ok(event);
            }
        }
        Ok(None)
    }

    /// Completes the current line with its last part, which is all of it unless an earlier chunk held its
    /// start.
    fn end_line(&mut self, tail: &[u8]) -> Result<Option<Event>, DecodeError> {
        if self.line.is_empty() {
            return self.process(tail);
        }
        let mut line = mem::take(&mut self.line);
        line.extend_from_slice(tail);
        let event = self.process(&line)?;
        if line.capacity() <= KEEP_CAPACITY {
            line.clear();
            self.line = line;
        }
        Ok(event)
    }

    fn process(&mut self, mut line: &[u8]) -> Result<Option<Event>, DecodeError> {
        if mem::take(&mut self.at_start) {
            line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        }
        if line.is_empty() {
            return Ok(self.end_block());
        }
        let (name, value) = match line.iter().position(|b| *b == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        self.block.set(name, value, self.limits.max_event_bytes)?;
        Ok(None)
    }

    fn end_block(&mut self) -> Option<Event> {
        let block = mem::take(&mut self.block);
        if let Some(id) = &block.id {
            self.last_event_id.clone_from(id);
        }
        block.into_event()
    }

    /// The id in force: the last one given by a complete block, whether or not later events repeated it.
    ///
    /// Empty before the first id, and after the peer has taken its id back with an empty `id` field.
    #[must_use]
    pub fn last_event_id(&self) -> &str {
        &self.last_event_id
    }

    /// How many bytes of the stream are held for an event that is not complete.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.line.len() + self.block.len()
    }

    /// To be asked when the stream has ended: an event without its closing blank line is no event.
    #[must_use]
    pub fn finish(&self) -> Ending {
        let whole = self.failed.is_none() && self.line.is_empty() && self.block == Block::default();
        if whole { Ending::Clean } else { Ending::Cut }
    }
}

/// The fields of an event that is not complete.
#[derive(Debug, Default, PartialEq, Eq)]
struct Block {
    /// `None` until there is an `event` field, even one that says what is understood without it: a block has
    /// begun.
    kind: Option<Kind>,
    /// `None` until there is a `data` field: one that is empty still makes an event.
    data: Option<Vec<u8>>,
    id: Option<String>,
    retry_ms: Option<u64>,
}

impl Block {
    /// Takes one field. Comments come here too, as fields without a name, and are ignored as any unknown
    /// field is.
    fn set(&mut self, name: &[u8], value: &[u8], max_data: usize) -> Result<(), DecodeError> {
        match name {
            b"data" => self.push_data(value, max_data)?,
            b"event" => self.kind = Some(Kind::from_value(value)),
            b"id" if !value.contains(&0) => self.id = Some(lossy(value)),
            b"retry" => self.retry_ms = parse_digits(value).or(self.retry_ms),
            _ => {}
        }
        Ok(())
    }

    fn push_data(&mut self, value: &[u8], max: usize) -> Result<(), DecodeError> {
        let held = self.data.as_ref().map_or(0, |data| data.len() + 1);
        if held + value.len() > max {
            return Err(DecodeError::EventTooLarge { limit: max });
        }
        match &mut self.data {
            Some(data) => {
                data.push(b'\n');
                data.extend_from_slice(value);
            }
            // Most events are one line: its exact size is then the only allocation that the data ever needs.
            None => self.data = Some(value.to_vec()),
        }
        Ok(())
    }

    fn len(&self) -> usize {
        let name = match &self.kind {
            Some(Kind::Other(name)) => name.len(),
            Some(Kind::Message) | None => 0,
        };
        name + self.data.as_ref().map_or(0, Vec::len) + self.id.as_ref().map_or(0, String::len)
    }

    fn into_event(self) -> Option<Event> {
        let Self { kind, data, id, retry_ms } = self;
        if data.is_none() && id.is_none() && retry_ms.is_none() {
            return None;
        }
        Some(Event { kind: kind.unwrap_or_default(), data: data.unwrap_or_default().into(), id, retry_ms })
    }
}

impl Kind {
    fn from_value(value: &[u8]) -> Self {
        match value {
            b"" | b"message" => Self::Message,
            other => Self::Other(lossy(other)),
        }
    }
}

fn lossy(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

/// A number of ASCII digits and nothing else; one too large to hold is the largest.
fn parse_digits(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(value.iter().fold(0u64, |n, digit| n.saturating_mul(10).saturating_add(u64::from(digit - b'0'))))
}
