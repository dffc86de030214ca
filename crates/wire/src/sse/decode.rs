//! Decodes SSE streams of any server, in chunks of any size.

use std::mem;

use bytes::{Buf, Bytes};

use super::find_line_end;

/// A line buffer that has grown beyond this many bytes is freed. A smaller one is reused for the
/// next line.
const KEEP_CAPACITY: usize = 16 * 1024;

/// How many bytes a decoder buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest line, without its line end. A byte order mark counts as part of the first line.
    pub max_line_bytes: usize,
    /// The longest [`Event::data`]. Event names and ids are one line each, so the line limit bounds
    /// them.
    pub max_event_bytes: usize,
}

/// Why decoding has failed. In every case the peer sent more than the limits allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The peer sent a line longer than [`Limits::max_line_bytes`]. The error comes before the end
    /// of the line.
    #[error("the peer sent an event-stream line of more than {limit} bytes")]
    LineTooLong { limit: usize },
    /// The peer sent an event whose data lines, joined, exceed [`Limits::max_event_bytes`].
    #[error("the peer sent an event of more than {limit} bytes")]
    EventTooLarge { limit: usize },
}

/// One event of the stream.
///
/// A browser ignores a block without a `data` field. This decoder returns it as an event with empty
/// data if it has an id or a retry time, because a client needs these to resume. So an event with
/// empty data is never a message: it is a priming event, a `retry`, or a block with an empty `data`
/// field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The name of the event.
    pub kind: Kind,
    /// The `data` lines joined by LF, as raw bytes. They may be invalid UTF-8.
    pub data: Bytes,
    /// The id field of this event, with invalid UTF-8 replaced. [`Decoder::last_event_id`] also
    /// covers events without an id field.
    pub id: Option<String>,
    /// The retry field of this event, in milliseconds. The peer can send any number, so the caller
    /// must clamp it.
    pub retry_ms: Option<u64>,
}

/// The name of an event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Kind {
    /// `message`, or no name.
    #[default]
    Message,
    /// Any other name, such as the `endpoint` of 2024-11-05, with invalid UTF-8 replaced.
    Other(String),
}

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Between events: the stream is complete.
    Clean,
    /// Inside an event, which is discarded, or after a [`DecodeError`].
    Truncated,
}

/// The decoder of one SSE stream.
///
/// For each chunk call [`decode`](Self::decode) until it returns `None`. At the end of the stream
/// call [`finish`](Self::finish). The chunk boundaries do not change the result.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    /// The received part of an incomplete line, at most `max_line_bytes`.
    line: Vec<u8>,
    /// The fields since the last blank line.
    block: Block,
    /// No line is complete yet, so the next one may begin with a byte order mark.
    at_start: bool,
    /// The last line ended with CR. An LF directly after it belongs to the same line end.
    after_cr: bool,
    last_event_id: String,
    failed: Option<DecodeError>,
}

impl Decoder {
    /// Creates a decoder for a new stream.
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

    /// Consumes bytes from `input` until an event is complete. Returns `None` when all of `input`
    /// is consumed and no event is complete.
    ///
    /// An error is final: every later call returns it again and consumes nothing.
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
            // One byte more than fits, so that the end of a line of exactly the limit is found.
            let free = self.limits.max_line_bytes - self.line.len();
            let window = &chunk[..chunk.len().min(free.saturating_add(1))];
            let Some(end) = find_line_end(window) else {
                let consumed = window.len();
                if consumed > free {
                    return Err(DecodeError::LineTooLong { limit: self.limits.max_line_bytes });
                }
                self.line.extend_from_slice(window);
                input.advance(consumed);
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

    /// Completes the current line with its last part. Earlier chunks may contain its first part.
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

    /// Returns the last id of a complete event. Later events without an id field do not change it.
    ///
    /// The id is empty before the first id field, and after an empty id field.
    #[must_use]
    pub fn last_event_id(&self) -> &str {
        &self.last_event_id
    }

    /// Returns how many bytes of an incomplete event are buffered.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.line.len() + self.block.len()
    }

    /// Returns how the stream ended. An event without its closing blank line is incomplete.
    #[must_use]
    pub fn finish(&self) -> Ending {
        let whole = self.failed.is_none() && self.line.is_empty() && self.block == Block::default();
        if whole { Ending::Clean } else { Ending::Truncated }
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Block {
    /// `None` until there is an `event` field. `Some(Message)` differs from `None`, because it
    /// means that an event has begun.
    kind: Option<Kind>,
    /// `None` until there is a `data` field. An empty `data` field also makes an event.
    data: Option<Vec<u8>>,
    id: Option<String>,
    retry_ms: Option<u64>,
}

impl Block {
    /// Stores one field. Unknown fields are ignored. A comment is a field with an empty name.
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
            // Most events have one data line, so an allocation of its exact size is usually the
            // only one.
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

/// Parses a number of ASCII digits. A number that is too large becomes `u64::MAX`.
fn parse_digits(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(value.iter().fold(0u64, |n, digit| n.saturating_mul(10).saturating_add(u64::from(digit - b'0'))))
}
