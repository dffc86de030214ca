//! SSE event ids of a stateless request that its client can resume: the token of the request's job,
//! the position in its stream, and the JSON-RPC id of the request.
//!
//! The stateless revision has no session header, so the event id alone must lead to the job. It
//! carries the JSON-RPC id so that a node can answer the request with an error even if the job is
//! gone.

use std::fmt;

use data_encoding::BASE64URL_NOPAD;

use crate::event_id::parse_canonical;
use crate::id::{MAX_ID_BYTES, RequestId};

/// Marks an id that is a string. A number has no mark.
const STRING_MARK: char = '~';

/// The id of one event of a resumable stateless request.
#[derive(Clone, PartialEq, Eq)]
pub struct JobEventId {
    /// The text of the job's token. It is a secret of the client; this module does not look inside.
    pub token: String,
    pub seq: u64,
    /// The id that the client gave its request.
    pub request: RequestId,
}

impl JobEventId {
    /// Parses an id that [`fmt::Display`] has written. Every other spelling is refused, so that an
    /// event has one id.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let (token, seq, request) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() || token.is_empty() {
            return None;
        }
        let request = match request.strip_prefix(STRING_MARK) {
            Some(encoded) => {
                let bytes = BASE64URL_NOPAD.decode(encoded.as_bytes()).ok()?;
                let text = String::from_utf8(bytes).ok().filter(|text| text.len() <= MAX_ID_BYTES)?;
                RequestId::text(text)
            }
            None => {
                let number: i64 = request.parse().ok()?;
                (number.to_string() == request).then_some(RequestId::Number(number))?
            }
        };
        Some(Self { token: token.to_owned(), seq: parse_canonical(seq)?, request })
    }
}

impl fmt::Display for JobEventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.", self.token, self.seq)?;
        match &self.request {
            RequestId::Number(number) => write!(f, "{number}"),
            RequestId::Text(text) => {
                write!(f, "{STRING_MARK}{}", BASE64URL_NOPAD.encode_display(text.as_bytes()))
            }
        }
    }
}

/// Leaves out the token.
impl fmt::Debug for JobEventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { token: _, seq, request } = self;
        f.debug_struct("JobEventId").field("seq", seq).field("request", request).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_does_not_show_the_token() {
        let id = JobEventId::parse("secret.7.1").unwrap();
        assert_eq!(format!("{id:?}"), "JobEventId { seq: 7, request: Number(1), .. }");
    }

    #[test]
    fn an_id_has_one_spelling() {
        let longest = "x".repeat(MAX_ID_BYTES);
        for (request, text) in [
            (RequestId::Number(1), "T.7.1"),
            (RequestId::Number(-7), "T.7.-7"),
            (RequestId::Number(i64::MIN), "T.7.-9223372036854775808"),
            (RequestId::text("1"), "T.7.~MQ"),
            (RequestId::text(""), "T.7.~"),
            (RequestId::text("a\n.ü"), "T.7.~YQouw7w"),
            (
                RequestId::text(longest.clone()),
                &format!("T.7.~{}", BASE64URL_NOPAD.encode(longest.as_bytes())),
            ),
        ] {
            let id = JobEventId { token: "T".to_owned(), seq: 7, request };
            assert_eq!(id.to_string(), text);
            assert_eq!(JobEventId::parse(text), Some(id));
        }
        let too_long = format!("T.7.~{}", BASE64URL_NOPAD.encode("x".repeat(MAX_ID_BYTES + 1).as_bytes()));
        for bad in [
            "",
            "T",
            "T.7",
            "T.7.",
            ".7.1",
            "T.7.1.",
            "T.07.1",
            "T.+7.1",
            "T.7.01",
            "T.7.+1",
            "T.7.-0",
            "T.7.1.0",
            "T.7.x",
            "T.7.~MQ==",
            "T.7.~MR",
            "T.7.~_w",
            "T.7.9223372036854775808",
            &too_long,
            "1-0-0000beef",
        ] {
            assert_eq!(JobEventId::parse(bad), None, "{bad:?}");
        }
    }
}
