//! Where the body of an answer ends, and what of its bytes is content.

use bytes::{Buf as _, Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, StatusCode};

/// A line that says how long a chunk is may have extensions that nobody reads, up to this.
const MAX_SIZE_LINE: usize = 4 << 10;
/// Fields after the last chunk. Nobody reads them either.
const MAX_TRAILERS: usize = 16 << 10;

/// How a body is framed, and how far it was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// As many bytes are to come.
    Length(u64),
    Chunked(Chunked),
    UntilClosed,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Chunked {
    Size,
    /// As many bytes of this chunk are to come.
    Data(u64),
    DataEnd,
    /// As many bytes of them were read.
    Trailers(usize),
    Done,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Data(Bytes),
    /// More has to be read first.
    More,
    End,
}

/// What a server must not send. It is to blame, or whoever is between.
pub(super) type Malformed = &'static str;

impl Framing {
    pub(super) fn of(status: StatusCode, headers: &HeaderMap) -> Result<Self, Malformed> {
        if matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
            return Ok(Self::Length(0));
        }
        // The encoding that was applied last is named last.
        if let Some(value) = headers.get_all(TRANSFER_ENCODING).iter().next_back() {
            let last = value.as_bytes().rsplit(|byte| *byte == b',').next().unwrap_or_default();
            let is_chunked = last.trim_ascii().eq_ignore_ascii_case(b"chunked");
            return Ok(if is_chunked { Self::Chunked(Chunked::Size) } else { Self::UntilClosed });
        }
        let mut length = None;
        for value in headers.get_all(CONTENT_LENGTH) {
            let value = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            let value: u64 =
                value.and_then(|text| text.parse().ok()).ok_or("its Content-Length is no number")?;
            if length.replace(value).is_some_and(|before| before != value) {
                return Err("its Content-Length is several numbers");
            }
        }
        Ok(length.map_or(Self::UntilClosed, Self::Length))
    }

    /// Takes what can be had of the buffer.
    pub(super) fn step(&mut self, buffer: &mut BytesMut) -> Result<Step, Malformed> {
        match self {
            Self::Length(0) => Ok(Step::End),
            Self::Length(left) => Ok(content(left, buffer)),
            Self::UntilClosed => Ok(content(&mut { u64::MAX }, buffer)),
            Self::Chunked(chunked) => chunked.step(buffer),
        }
    }

    /// How much content is to come, if that is known.
    pub(super) fn left(&self) -> Option<u64> {
        match self {
            Self::Length(left) => Some(*left),
            Self::Chunked(_) | Self::UntilClosed => None,
        }
    }

    /// Whether it is complete if the connection is closed now.
    pub(super) fn may_end(&self) -> bool {
        matches!(self, Self::UntilClosed)
    }
}

impl Chunked {
    fn step(&mut self, buffer: &mut BytesMut) -> Result<Step, Malformed> {
        loop {
            match self {
                Self::Size => match httparse::parse_chunk_size(buffer) {
                    Ok(httparse::Status::Complete((line, size))) => {
                        buffer.advance(line);
                        *self = if size == 0 { Self::Trailers(0) } else { Self::Data(size) };
                    }
                    Ok(httparse::Status::Partial) if buffer.len() <= MAX_SIZE_LINE => return Ok(Step::More),
                    Ok(httparse::Status::Partial) | Err(_) => return Err("the size of a chunk is no number"),
                },
                Self::Data(0) => *self = Self::DataEnd,
                Self::Data(left) => return Ok(content(left, buffer)),
                Self::DataEnd => {
                    if buffer.len() < 2 {
                        return Ok(Step::More);
                    }
                    if *buffer.split_to(2) != *b"\r\n" {
                        return Err("a chunk is longer than it said");
                    }
                    *self = Self::Size;
                }
                Self::Trailers(read) => {
                    let Some(line) = buffer.iter().position(|byte| *byte == b'\n') else {
                        if *read + buffer.len() > MAX_TRAILERS {
                            return Err("it has too much after its last chunk");
                        }
                        return Ok(Step::More);
                    };
                    *read += line + 1;
                    if matches!(&buffer.split_to(line + 1)[..], b"\r\n" | b"\n") {
                        *self = Self::Done;
                    }
                }
                Self::Done => return Ok(Step::End),
            }
        }
    }
}

/// As much content as is there, up to what is left.
fn content(left: &mut u64, buffer: &mut BytesMut) -> Step {
    if buffer.is_empty() {
        return Step::More;
    }
    let size = usize::try_from(*left).unwrap_or(usize::MAX).min(buffer.len());
    *left -= size as u64;
    Step::Data(buffer.split_to(size).freeze())
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
        Framing::of(StatusCode::OK, &headers)
    }

    /// All content of these bytes, given in pieces; whether the end was seen.
    fn read(mut framing: Framing, pieces: &[&[u8]]) -> Result<(Vec<u8>, bool), Malformed> {
        let (mut buffer, mut all) = (BytesMut::new(), Vec::new());
        for piece in pieces {
            buffer.extend_from_slice(piece);
            loop {
                match framing.step(&mut buffer)? {
                    Step::Data(data) => all.extend_from_slice(&data),
                    Step::More => break,
                    Step::End => return Ok((all, true)),
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
        assert_eq!(Framing::of(StatusCode::NO_CONTENT, &length), Ok(Framing::Length(0)));
    }

    #[test]
    fn content_is_the_same_wherever_it_is_cut() {
        let bytes = b"5\r\nhello\r\n00c;ext=\"1\"\r\n, wide\nworld\r\n0\r\nx-trailer: 1\r\n\r\n";
        for cut in 0..bytes.len() {
            let (first, second) = bytes.split_at(cut);
            assert_eq!(
                read(chunked(), &[first, second]),
                Ok((b"hello, wide\nworld".to_vec(), true)),
                "{cut}"
            );
            // Nothing of it is complete before its last byte.
            assert!(!read(chunked(), &[first]).unwrap().1, "{cut}");
        }
        assert_eq!(read(Framing::Length(4), &[b"ab", b"cdef"]), Ok((b"abcd".to_vec(), true)));
        assert_eq!(read(Framing::UntilClosed, &[b"ab", b"cd"]), Ok((b"abcd".to_vec(), false)));
    }

    #[test]
    fn what_is_malformed_or_too_much_is_refused() {
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
