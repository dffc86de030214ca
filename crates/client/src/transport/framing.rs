//! Decodes the body of an HTTP/1.1 response: finds its end and removes chunk framing.

use bytes::{Buf as _, Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, StatusCode};

/// The longest chunk-size line, in bytes. Chunk extensions are ignored.
const MAX_SIZE_LINE: usize = 4 << 10;
/// The longest trailer section, in bytes. Trailers are ignored.
const MAX_TRAILERS: usize = 16 << 10;

/// How a body is framed, and how much of it was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// This many bytes are still missing.
    Length(u64),
    Chunked(Chunked),
    UntilClosed,
}

/// Which part of a chunked body comes next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Chunked {
    /// The line with the size of a chunk.
    Size,
    /// This many bytes of the chunk are still missing.
    Data(u64),
    /// The line break after the data of a chunk.
    DataEnd,
    /// This many bytes of the trailers were read.
    Trailers(usize),
    Done,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    Data(Bytes),
    /// The buffer holds too little to decode.
    NeedMore,
    End,
}

/// What is wrong with a response. The server or a proxy is to blame.
pub(super) type Malformed = &'static str;

impl Framing {
    pub(super) fn from_head(status: StatusCode, headers: &HeaderMap) -> Result<Self, Malformed> {
        if matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
            return Ok(Self::Length(0));
        }
        // The last encoding in the list was applied last.
        if let Some(value) = headers.get_all(TRANSFER_ENCODING).iter().next_back() {
            let last = value.as_bytes().rsplit(|byte| *byte == b',').next().unwrap_or_default();
            let is_chunked = last.trim_ascii().eq_ignore_ascii_case(b"chunked");
            return Ok(if is_chunked { Self::Chunked(Chunked::Size) } else { Self::UntilClosed });
        }
        let mut length = None;
        for value in headers.get_all(CONTENT_LENGTH) {
            let value = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            let value: u64 = value
                .and_then(|text| text.parse().ok())
                .ok_or("the Content-Length of the response is not a number")?;
            if length.replace(value).is_some_and(|before| before != value) {
                return Err("the response has several different Content-Length values");
            }
        }
        Ok(length.map_or(Self::UntilClosed, Self::Length))
    }

    /// Decodes as much as possible from the buffer.
    pub(super) fn decode(&mut self, buffer: &mut BytesMut) -> Result<Decoded, Malformed> {
        match self {
            Self::Length(0) => Ok(Decoded::End),
            Self::Length(remaining) => Ok(content(remaining, buffer)),
            Self::UntilClosed => Ok(content(&mut { u64::MAX }, buffer)),
            Self::Chunked(chunked) => chunked.decode(buffer),
        }
    }

    /// The number of missing bytes, if it is known.
    pub(super) fn remaining(&self) -> Option<u64> {
        match self {
            Self::Length(remaining) => Some(*remaining),
            Self::Chunked(_) | Self::UntilClosed => None,
        }
    }

    /// Returns true if the body is complete when the server closes the connection.
    pub(super) fn ends_at_close(&self) -> bool {
        matches!(self, Self::UntilClosed)
    }
}

impl Chunked {
    fn decode(&mut self, buffer: &mut BytesMut) -> Result<Decoded, Malformed> {
        loop {
            match self {
                Self::Size => match httparse::parse_chunk_size(buffer) {
                    Ok(httparse::Status::Complete((line_bytes, size))) => {
                        buffer.advance(line_bytes);
                        *self = if size == 0 { Self::Trailers(0) } else { Self::Data(size) };
                    }
                    Ok(httparse::Status::Partial) if buffer.len() <= MAX_SIZE_LINE => {
                        return Ok(Decoded::NeedMore);
                    }
                    Ok(httparse::Status::Partial) | Err(_) => {
                        return Err("a chunk size in the response is not a number or too long");
                    }
                },
                Self::Data(0) => *self = Self::DataEnd,
                Self::Data(remaining) => return Ok(content(remaining, buffer)),
                Self::DataEnd => {
                    if buffer.len() < 2 {
                        return Ok(Decoded::NeedMore);
                    }
                    if *buffer.split_to(2) != *b"\r\n" {
                        return Err("a chunk of the response is longer than its size");
                    }
                    *self = Self::Size;
                }
                Self::Trailers(read) => {
                    let Some(line_end) = buffer.iter().position(|byte| *byte == b'\n') else {
                        if *read + buffer.len() > MAX_TRAILERS {
                            return Err("the trailers of the response are too long");
                        }
                        return Ok(Decoded::NeedMore);
                    };
                    *read += line_end + 1;
                    if matches!(&buffer.split_to(line_end + 1)[..], b"\r\n" | b"\n") {
                        *self = Self::Done;
                    }
                }
                Self::Done => return Ok(Decoded::End),
            }
        }
    }
}

/// Takes content from the buffer, at most `remaining` bytes.
fn content(remaining: &mut u64, buffer: &mut BytesMut) -> Decoded {
    if buffer.is_empty() {
        return Decoded::NeedMore;
    }
    let size = usize::try_from(*remaining).unwrap_or(usize::MAX).min(buffer.len());
    *remaining -= size as u64;
    Decoded::Data(buffer.split_to(size).freeze())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn framing(fields: &[(http::HeaderName, &'static str)]) -> Result<Framing, Malformed> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name, HeaderValue::from_static(value));
        }
        Framing::from_head(StatusCode::OK, &headers)
    }

    /// Decodes these pieces. Returns the content, and whether the end was reached.
    fn read(mut framing: Framing, pieces: &[&[u8]]) -> Result<(Vec<u8>, bool), Malformed> {
        let (mut buffer, mut all) = (BytesMut::new(), Vec::new());
        for piece in pieces {
            buffer.extend_from_slice(piece);
            loop {
                match framing.decode(&mut buffer)? {
                    Decoded::Data(data) => all.extend_from_slice(&data),
                    Decoded::NeedMore => break,
                    Decoded::End => return Ok((all, true)),
                }
            }
        }
        Ok((all, false))
    }

    fn chunked() -> Framing {
        Framing::Chunked(Chunked::Size)
    }

    #[test]
    fn the_head_says_where_the_body_ends() {
        assert_eq!(framing(&[]), Ok(Framing::UntilClosed));
        assert_eq!(framing(&[(CONTENT_LENGTH, "12")]), Ok(Framing::Length(12)));
        assert_eq!(framing(&[(CONTENT_LENGTH, "12"), (CONTENT_LENGTH, "12")]), Ok(Framing::Length(12)));
        assert_eq!(framing(&[(TRANSFER_ENCODING, "Chunked")]), Ok(chunked()));
        assert_eq!(framing(&[(TRANSFER_ENCODING, "gzip, chunked"), (CONTENT_LENGTH, "1")]), Ok(chunked()));
        assert_eq!(framing(&[(TRANSFER_ENCODING, "gzip")]), Ok(Framing::UntilClosed));
        for bad in ["-1", "+1", "1 2", "x", ""] {
            assert!(framing(&[(CONTENT_LENGTH, bad)]).is_err(), "{bad}");
        }
        assert!(framing(&[(CONTENT_LENGTH, "1"), (CONTENT_LENGTH, "2")]).is_err());
        let length = HeaderMap::from_iter([(CONTENT_LENGTH, HeaderValue::from_static("5"))]);
        assert_eq!(Framing::from_head(StatusCode::NO_CONTENT, &length), Ok(Framing::Length(0)));
    }

    #[test]
    fn content_does_not_depend_on_how_it_is_split() {
        let bytes = b"5\r\nhello\r\n00c;ext=\"1\"\r\n, wide\nworld\r\n0\r\nx-trailer: 1\r\n\r\n";
        for cut in 0..bytes.len() {
            let (first, second) = bytes.split_at(cut);
            assert_eq!(
                read(chunked(), &[first, second]),
                Ok((b"hello, wide\nworld".to_vec(), true)),
                "{cut}"
            );
            // The body is incomplete until its last byte.
            assert!(!read(chunked(), &[first]).unwrap().1, "{cut}");
        }
        assert_eq!(read(Framing::Length(4), &[b"ab", b"cdef"]), Ok((b"abcd".to_vec(), true)));
        assert_eq!(read(Framing::UntilClosed, &[b"ab", b"cd"]), Ok((b"abcd".to_vec(), false)));
    }

    #[test]
    fn malformed_or_oversized_framing_is_refused() {
        assert!(read(chunked(), &[b"zz\r\n"]).is_err());
        assert!(read(chunked(), &[b"2\r\nabc\r\n"]).is_err());
        assert!(read(chunked(), &[b"fffffffffffffffff\r\n"]).is_err());
        let endless = [b"1;".to_vec(), vec![b'x'; MAX_SIZE_LINE]].concat();
        assert!(read(chunked(), &[&endless]).is_err());
        let trailers = [b"0\r\n".to_vec(), vec![b'x'; MAX_TRAILERS + 1]].concat();
        assert!(read(chunked(), &[&trailers]).is_err());
        let lines = [b"0\r\n".to_vec(), b"x: 1\r\n".repeat(MAX_TRAILERS / 6 + 1), b"x".to_vec()].concat();
        assert!(read(chunked(), &[&lines]).is_err());
    }
}
