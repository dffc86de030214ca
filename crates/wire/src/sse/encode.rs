//! Writes SSE frames.
//!
//! Every function appends one complete frame to a growable buffer (`Vec<u8>`, `BytesMut`) and
//! allocates nothing else. No input can break out of its frame: payloads and comments are split
//! into lines, and characters that the format cannot carry are removed from ids.

use bytes::BufMut;

use super::{find_line_end, is_line_end};

// `message` is the default name of an event. Some clients ignore events without an explicit name,
// so it is written.
const NAME: &[u8] = b"event: message\n";

/// Writes a message with an id that a client can resume from.
///
/// CR, LF and NUL are removed from the id. The reader receives line ends inside `data` as LF.
pub fn event(out: &mut impl BufMut, id: &str, data: &[u8]) {
    out.put_slice(NAME);
    put_id(out, id);
    put_lines(out, b"data: ", data);
    out.put_u8(b'\n');
}

/// Writes a message of a stream that cannot be resumed.
pub fn event_without_id(out: &mut impl BufMut, data: &[u8]) {
    out.put_slice(NAME);
    put_lines(out, b"data: ", data);
    out.put_u8(b'\n');
}

/// Writes the priming event, the first frame of a resumable stream: no message, only the id to
/// resume from and the time to wait before.
///
/// It has no event name, because a client that dispatches by name would treat it as a message.
pub fn priming(out: &mut impl BufMut, id: &str, retry_ms: u64) {
    put_id(out, id);
    put_retry(out, retry_ms);
    out.put_slice(b"data: \n\n");
}

/// Writes the time that the client should wait before it reconnects.
pub fn retry(out: &mut impl BufMut, ms: u64) {
    put_retry(out, ms);
    out.put_u8(b'\n');
}

/// Writes a comment, which clients ignore. It prevents proxies from closing an idle connection.
pub fn comment(out: &mut impl BufMut, text: &str) {
    put_lines(out, b": ", text.as_bytes());
    out.put_u8(b'\n');
}

/// Returns how many bytes [`event`] writes, given the length of the id.
///
/// The result is exact for payloads of one line. For several lines it is an upper bound, because
/// CRLF counts as two line ends.
#[must_use]
pub fn event_len(id_len: usize, data: &[u8]) -> usize {
    let line_ends = data.iter().filter(|b| is_line_end(**b)).count();
    NAME.len() + "id: \n".len() + id_len + "data: \n".len() + data.len() + line_ends * "data: ".len() + 1
}

/// Writes the id without the characters that would end the line or make a reader ignore the id.
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

/// Writes each line of `text` with the prefix. Empty text is one empty line.
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
