//! Reads HTTP/1.1 requests with a `Content-Length`, as the proxy and the control endpoint need
//! them.

use std::io::{self, Read};

/// Far more than any request of a test.
const MAX_REQUEST: usize = 4 << 20;

/// One request and its bytes.
#[derive(Debug)]
pub(crate) struct Request {
    raw: Vec<u8>,
    body_at: usize,
}

impl Request {
    /// Reads one request. Returns `None` if the connection ended before the first byte. Bytes after
    /// the request stay in `ahead`.
    pub(crate) fn read(from: &mut impl Read, ahead: &mut Vec<u8>) -> io::Result<Option<Self>> {
        let body_at = loop {
            if let Some(at) = ahead.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break at + 4;
            }
            if !read_more(from, ahead)? {
                return if ahead.is_empty() { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        };
        let mut request = Self { raw: ahead[..body_at].to_vec(), body_at };
        if request.header("transfer-encoding").is_some() {
            return Err(io::Error::other("chunked requests are not supported"));
        }
        let length = request.header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        while ahead.len() - body_at < length {
            if !read_more(from, ahead)? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        request.raw = ahead.drain(..body_at + length).collect();
        Ok(Some(request))
    }

    pub(crate) fn raw(&self) -> &[u8] {
        &self.raw
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.raw[self.body_at..]
    }

    pub(crate) fn verb(&self) -> &str {
        self.word(0)
    }

    pub(crate) fn target(&self) -> &str {
        self.word(1)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head().lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    fn word(&self, nth: usize) -> &str {
        self.head().split_ascii_whitespace().nth(nth).unwrap_or_default()
    }

    fn head(&self) -> &str {
        str::from_utf8(&self.raw[..self.body_at]).unwrap_or_default()
    }
}

/// Returns false at the end of the connection.
fn read_more(from: &mut impl Read, ahead: &mut Vec<u8>) -> io::Result<bool> {
    if ahead.len() > MAX_REQUEST {
        return Err(io::Error::other("the request is too large"));
    }
    let mut bytes = [0; 16 << 10];
    let count = from.read(&mut bytes)?;
    ahead.extend_from_slice(&bytes[..count]);
    Ok(count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_one_by_one() {
        let text = b"POST /x?y HTTP/1.1\r\nContent-Length: 3\r\nX: 1\r\n\r\nabcGET /z HTTP/1.1\r\n\r\n";
        let (mut from, mut ahead) = (&text[..], Vec::new());
        let first = Request::read(&mut from, &mut ahead).unwrap().unwrap();
        assert_eq!((first.verb(), first.target(), first.body()), ("POST", "/x?y", &b"abc"[..]));
        assert_eq!((first.header("x"), first.header("y")), (Some("1"), None));
        let second = Request::read(&mut from, &mut ahead).unwrap().unwrap();
        assert_eq!((second.verb(), second.target(), second.raw().len()), ("GET", "/z", 19));
        assert!(Request::read(&mut from, &mut ahead).unwrap().is_none());
    }

    #[test]
    fn half_a_request_is_an_error() {
        for text in ["GET", "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nab"] {
            let result = Request::read(&mut text.as_bytes(), &mut Vec::new());
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "{text}");
        }
    }
}
