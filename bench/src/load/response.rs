//! A minimal reader of HTTP/1.1 responses: one response at a time, sized or chunked, buffers
//! reused.

use std::io::{Error, ErrorKind};

use memchr::{memchr, memmem};

/// Enough for a whole small response, so that one read usually suffices.
const ROOM: usize = 8 * 1024;

#[derive(Debug)]
pub(crate) struct Response {
    buffer: Vec<u8>,
    end: usize,
    state: State,
    status: u16,
    head: usize,
    body: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Head,
    Sized { from: usize, length: usize },
    Chunks { at: usize },
    Done,
}

impl Response {
    pub(super) fn new() -> Self {
        Self { buffer: vec![0; ROOM], end: 0, state: State::Head, status: 0, head: 0, body: Vec::new() }
    }

    /// Removes the last response and keeps the memory.
    pub(super) fn reset(&mut self) {
        self.end = 0;
        self.state = State::Head;
        self.body.clear();
    }

    /// Returns the buffer for the next read of the socket.
    pub(super) fn spare(&mut self) -> &mut [u8] {
        if self.end == self.buffer.len() {
            self.buffer.resize(self.end * 2, 0);
        }
        &mut self.buffer[self.end..]
    }

    /// Processes `count` bytes that were read into [`Self::spare`]. Returns true if the response is
    /// complete.
    pub(super) fn filled(&mut self, count: usize) -> Result<bool, Error> {
        self.end += count;
        loop {
            let next = match self.state {
                State::Head => self.take_head()?,
                State::Sized { from, length } => self.take_sized(from, length)?,
                State::Chunks { at } => self.take_chunk(at)?,
                State::Done => return Ok(true),
            };
            let Some(next) = next else { return Ok(false) };
            self.state = next;
        }
    }

    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Returns the value of a header by its lower-case name.
    pub(super) fn header(&self, name: &str) -> Option<&[u8]> {
        lines(&self.buffer[..self.head]).find_map(|line| value_of(line, name.as_bytes()))
    }

    fn take_head(&mut self) -> Result<Option<State>, Error> {
        let Some(found) = memmem::find(&self.buffer[..self.end], b"\r\n\r\n") else { return Ok(None) };
        self.head = found + 2;
        let from = found + 4;
        let head = &self.buffer[..self.head];
        let status = head.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok());
        self.status =
            status.and_then(|digits| digits.parse().ok()).ok_or_else(|| malformed("status line"))?;
        for line in lines(head) {
            // Only two names matter, and they differ in the first letter: most lines need one
            // comparison.
            match line.first().map(u8::to_ascii_lowercase) {
                Some(b'c') => {
                    if let Some(value) = value_of(line, b"content-length") {
                        let length = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                        let length = length.ok_or_else(|| malformed("content-length"))?;
                        return Ok(Some(State::Sized { from, length }));
                    }
                }
                Some(b't') if value_of(line, b"transfer-encoding").is_some() => {
                    return Ok(Some(State::Chunks { at: from }));
                }
                _ => {}
            }
        }
        if self.status == 204 {
            return Ok(Some(State::Sized { from, length: 0 }));
        }
        Err(malformed("a body that ends with the connection"))
    }

    fn take_sized(&mut self, from: usize, length: usize) -> Result<Option<State>, Error> {
        let Some(body) = self.buffer[..self.end].get(from..from + length) else { return Ok(None) };
        self.body.extend_from_slice(body);
        self.finish(from + length).map(Some)
    }

    fn take_chunk(&mut self, at: usize) -> Result<Option<State>, Error> {
        let data = &self.buffer[at..self.end];
        let Some(newline) = memchr(b'\n', data) else { return Ok(None) };
        let size = data[..newline].split(|byte| matches!(byte, b'\r' | b';')).next().unwrap_or_default();
        let size =
            std::str::from_utf8(size).ok().and_then(|text| usize::from_str_radix(text.trim(), 16).ok());
        let size = size.ok_or_else(|| malformed("chunk size"))?;
        let from = newline + 1;
        if size == 0 {
            // None of the measured servers sends trailers.
            return match data.get(from..from + 2) {
                Some(b"\r\n") => self.finish(at + from + 2).map(Some),
                Some(_) => Err(malformed("trailers")),
                None => Ok(None),
            };
        }
        if data.len() < from + size + 2 {
            return Ok(None);
        }
        self.body.extend_from_slice(&data[from..from + size]);
        Ok(Some(State::Chunks { at: at + from + size + 2 }))
    }

    /// Only one request is in flight per connection, so no bytes may follow its response.
    fn finish(&self, at: usize) -> Result<State, Error> {
        if at == self.end { Ok(State::Done) } else { Err(malformed("bytes after the response")) }
    }
}

fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = head;
    std::iter::from_fn(move || {
        let newline = memchr(b'\n', rest)?;
        let line = &rest[..newline];
        rest = &rest[newline + 1..];
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    })
}

fn value_of<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (found, value) = line.split_at_checked(name.len())?;
    if found.eq_ignore_ascii_case(name) { value.strip_prefix(b":").map(<[u8]>::trim_ascii) } else { None }
}

fn malformed(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("cannot read the response: {what}"))
}

#[cfg(test)]
mod tests {
    use super::Response;

    /// Feeds `bytes` in pieces of `step` and returns status and body.
    fn read(bytes: &[u8], step: usize) -> (u16, String) {
        let mut response = Response::new();
        let mut complete = false;
        for piece in bytes.chunks(step) {
            assert!(!complete, "complete before its last byte");
            response.spare()[..piece.len()].copy_from_slice(piece);
            complete = response.filled(piece.len()).unwrap();
        }
        assert!(complete, "never complete");
        (response.status(), String::from_utf8(response.body().to_vec()).unwrap())
    }

    #[test]
    fn reads_a_sized_body_however_it_is_cut() {
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Type: x\r\ncontent-length: 5\r\n\r\nhello";
        for step in 1..=bytes.len() {
            assert_eq!(read(bytes, step), (200, "hello".to_owned()));
        }
    }

    #[test]
    fn reads_a_chunked_body_however_it_is_cut() {
        let bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\nA;x=y\r\nlo, chunks\r\n0\r\n\r\n";
        for step in 1..=bytes.len() {
            assert_eq!(read(bytes, step), (200, "hello, chunks".to_owned()));
        }
    }

    #[test]
    fn finds_headers_and_can_be_used_again() {
        let mut response = Response::new();
        for status in [202_u16, 404] {
            let text = format!("HTTP/1.1 {status} X\r\nMcp-Session-Id:  abc \r\nContent-Length: 0\r\n\r\n");
            response.reset();
            response.spare()[..text.len()].copy_from_slice(text.as_bytes());
            assert!(response.filled(text.len()).unwrap());
            assert_eq!(response.status(), status);
            assert_eq!(response.header("mcp-session-id"), Some(&b"abc"[..]));
        }
    }

    #[test]
    fn refuses_what_it_cannot_delimit() {
        for bytes in ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab"] {
            let mut response = Response::new();
            response.spare()[..bytes.len()].copy_from_slice(bytes.as_bytes());
            assert!(response.filled(bytes.len()).is_err());
        }
    }
}
