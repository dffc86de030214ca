//! Writing event-stream frames.
//!
//! Every function appends one whole frame to a growable buffer (`Vec<u8>`, `BytesMut`) and allocates nothing
//! else. No input can break out of its frame: payloads and comments are split into lines, and ids lose the
//! characters that the format cannot carry.

use bytes::BufMut;

use super::{find_line_end, is_line_end};

// Absent, the name means the same; but some clients dispatch on the literal field and drop what has none.
const NAME: &[u8] = b"event: message\n";

/// A message with its place in the stream, from which a client may resume.
///
/// CR, LF and NUL are left out of the id. Line ends inside `data` arrive as LF.
pub fn event(out: &mut impl BufMut, id: &str, data: &[u8]) {
    out.put_slice(NAME);
    put_id(out, id);
    put_lines(out, b"data: ", data);
    out.put_u8(b'\n');
}

/// A message of a stream that cannot be resumed.
pub fn event_without_id(out: &mut impl BufMut, data: &[u8]) {
    out.put_slice(NAME);
    put_lines(out, b"data: ", data);
    out.put_u8(b'\n');
}

/// The first frame of a resumable stream: no message, only the id to come back with and how long to wait
/// before.
///
/// It has no event name, for it must not look like a message to those who read the name first.
pub fn priming(out: &mut impl BufMut, id: &str, retry_ms: u64) {
    put_id(out, id);
    put_retry(out, retry_ms);
    out.put_slice(b"data: \n\n");
}

/// Tells the client how long to wait before it comes back.
pub fn retry(out: &mut impl BufMut, ms: u64) {
    put_retry(out, ms);
    out.put_u8(b'\n');
}

/// A frame that clients ignore; it keeps intermediaries from closing a quiet connection.
pub fn comment(out: &mut impl BufMut, text: &str) {
    put_lines(out, b": ", text.as_bytes());
    out.put_u8(b'\n');
}

/// How many bytes [`event`] writes, given the length of the id's text.
///
/// Exact for payloads of one line; an upper bound when there are line ends, each of which starts a `data:`
/// line.
#[must_use]
pub fn event_len(id_len: usize, data: &[u8]) -> usize {
    let line_ends = data.iter().filter(|b| is_line_end(**b)).count();
    NAME.len() + "id: \n".len() + id_len + "data: \n".len() + data.len() + line_ends * "data: ".len() + 1
}

/// Without what would end the line or make a reader ignore the id.
fn put_id(out: &mut impl BufMut, id: &str) {
    out.put_slice(b"id: ");
    for part in id.as_bytes().split(|byte| matches!(byte, b'\r' | b'\n' | b'\0')) {
        out.put_slice(part);
    }
    out.put_u8(b'\n');
}

fn put_retry(out: &mut impl BufMut, ms: u64) {
    out.put_slice(b"retry: ");
    out.put_slice(ms.to_string().as_bytes());
    out.put_u8(b'\n');
}

/// Writes each line of `text` as a line of its own, all with the same prefix. Empty text is one empty line.
fn put_lines(out: &mut impl BufMut, prefix: &[u8], mut text: &[u8]) {
    while let Some(end) = find_line_end(text) {
        put_line(out, prefix, &text[..end]);
        let width = if text[end..].starts_with(b"\r\n") { 2 } else { 1 };
        text = &text[end + width..];
    }
    put_line(out, prefix, text);
}

fn put_line(out: &mut impl BufMut, prefix: &[u8], line: &[u8]) {
    out.put_slice(prefix);
    out.put_slice(line);
    out.put_u8(b'\n');
}
