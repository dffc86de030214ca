//! Decodes the framing of an HTTP/1.1 response piece by piece.

use std::io::{Error, ErrorKind};

use memchr::{memchr, memmem};

/// The part of a response that the next byte belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    Head,
    ChunkSize,
    Chunk {
        left: usize,
    },
    /// The line end after a chunk. `last` is true after the empty chunk.
    ChunkEnd {
        last: bool,
    },
    Sized {
        left: usize,
    },
    Done,
}

impl Body {
    /// Appends the bytes of the body in `input` to `text`. Returns how many bytes of `input` were
    /// used. The caller passes the rest again, with the bytes that follow it.
    pub(super) fn take(&mut self, input: &[u8], text: &mut Vec<u8>) -> Result<usize, Error> {
        let mut at = 0;
        while let Some((next, used)) = self.step(&input[at..], text)? {
            *self = next;
            at += used;
        }
        if *self == Self::Done && at < input.len() {
            return Err(wrong("bytes after the response"));
        }
        Ok(at)
    }

    fn step(self, input: &[u8], text: &mut Vec<u8>) -> Result<Option<(Self, usize)>, Error> {
        Ok(match self {
            Self::Head => match memmem::find(input, b"\r\n\r\n") {
                Some(end) => Some((Self::after_head(&input[..end])?, end + 4)),
                None => None,
            },
            Self::ChunkSize => match memchr(b'\n', input) {
                Some(end) => Some((Self::after_size(&input[..end])?, end + 1)),
                None => None,
            },
            Self::ChunkEnd { last } => {
                let next = if last { Self::Done } else { Self::ChunkSize };
                (input.len() >= 2).then_some((next, 2))
            }
            Self::Sized { left: 0 } => Some((Self::Done, 0)),
            Self::Chunk { .. } | Self::Sized { .. } if input.is_empty() => None,
            Self::Chunk { left } => {
                let used = left.min(input.len());
                text.extend_from_slice(&input[..used]);
                let next = if used == left {
                    Self::ChunkEnd { last: false }
                } else {
                    Self::Chunk { left: left - used }
                };
                Some((next, used))
            }
            Self::Sized { left } => {
                let used = left.min(input.len());
                text.extend_from_slice(&input[..used]);
                Some((Self::Sized { left: left - used }, used))
            }
            Self::Done => None,
        })
    }

    fn after_head(head: &[u8]) -> Result<Self, Error> {
        let head = String::from_utf8_lossy(head).to_ascii_lowercase();
        if !head.starts_with("http/1.1 200 ") {
            return Err(wrong(&format!("refused: {head}")));
        }
        let value = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        if value("transfer-encoding:") == Some("chunked") {
            return Ok(Self::ChunkSize);
        }
        let left = value("content-length:").and_then(|digits| digits.parse().ok());
        left.map(|left| Self::Sized { left }).ok_or_else(|| wrong("a body without an end"))
    }

    fn after_size(line: &[u8]) -> Result<Self, Error> {
        let digits = std::str::from_utf8(line).ok().map(str::trim);
        match digits.and_then(|digits| usize::from_str_radix(digits, 16).ok()) {
            Some(0) => Ok(Self::ChunkEnd { last: true }),
            Some(left) => Ok(Self::Chunk { left }),
            None => Err(wrong("a chunk without a size")),
        }
    }
}

pub(super) fn wrong(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("not the response that was expected: {what}"))
}

#[cfg(test)]
mod tests {
    use super::Body;

    /// Reads `response` in pieces of every length.
    fn check(response: &str, expected: Result<&str, &str>) {
        for step in 1..=response.len() {
            let (mut body, mut input, mut text) = (Body::Head, Vec::new(), Vec::new());
            let mut outcome = Ok(());
            for piece in response.as_bytes().chunks(step) {
                input.extend_from_slice(piece);
                match body.take(&input, &mut text) {
                    Ok(used) => drop(input.drain(..used)),
                    Err(error) => outcome = Err(error.to_string()),
                }
            }
            match expected {
                Ok(expected) => {
                    assert_eq!((outcome, body), (Ok(()), Body::Done), "in pieces of {step}");
                    assert_eq!(String::from_utf8_lossy(&text), expected, "in pieces of {step}");
                }
                Err(part) => assert!(outcome.is_err_and(|error| error.contains(part)), "in pieces of {step}"),
            }
        }
    }

    #[test]
    fn bodies_come_out_whole() {
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        check(&format!("{chunked}3\r\nhel\r\nA\r\nlo, chunks\r\n0\r\n\r\n"), Ok("hello, chunks"));
        check("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", Ok("hello"));
        check("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Ok(""));
        check("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", Err("refused: http/1.1 404"));
        check("HTTP/1.1 200 OK\r\n\r\n", Err("without an end"));
        check(&format!("{chunked}x\r\n"), Err("without a size"));
    }
}
