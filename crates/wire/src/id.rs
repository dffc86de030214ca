//! JSON-RPC request ids. They keep their JSON type: `1` is not `"1"`.

use std::fmt;

use serde_json::value::RawValue;

/// The longest accepted id. An id is stored with its call and repeated in the answer, so a client
/// must not make it arbitrarily large.
pub const MAX_ID_BYTES: usize = 256;

/// The id of a request, or a progress token: a string or an integer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestId {
    Number(i64),
    Text(Box<str>),
}

/// Why an id was refused. Every case is an error of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    #[error("the id must not be null")]
    Null,
    #[error("the id must be a string or an integer")]
    WrongType,
    #[error("the id must be an integer without fraction or exponent, within 64 bits")]
    NotAnInteger,
    #[error("the id is longer than {MAX_ID_BYTES} bytes")]
    TooLong,
}

impl RequestId {
    /// Parses the JSON text of an id.
    pub fn from_json(text: &str) -> Result<Self, IdError> {
        if text.len() > MAX_ID_BYTES + 2 {
            return Err(IdError::TooLong);
        }
        match text.as_bytes().first() {
            Some(b'"') => {
                let text: String = serde_json::from_str(text).map_err(|_| IdError::WrongType)?;
                Ok(Self::Text(text.into_boxed_str()))
            }
            Some(b'-' | b'0'..=b'9') => text.parse().map(Self::Number).map_err(|_| IdError::NotAnInteger),
            Some(b'n') => Err(IdError::Null),
            _ => Err(IdError::WrongType),
        }
    }

    pub(crate) fn from_raw(raw: &RawValue) -> Result<Self, IdError> {
        Self::from_json(raw.get())
    }

    pub fn text(text: impl Into<Box<str>>) -> Self {
        Self::Text(text.into())
    }
}

/// Writes the id as JSON, so that `Display` is also its encoding.
impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(n) => write!(f, "{n}"),
            Self::Text(text) => f.write_str(&crate::rpc::json_string(text)),
        }
    }
}

impl From<i64> for RequestId {
    fn from(n: i64) -> Self {
        Self::Number(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, expect: Result<&str, IdError>) {
        assert_eq!(RequestId::from_json(json).map(|id| id.to_string()), expect.map(str::to_owned), "{json}");
    }

    #[test]
    fn ids_keep_their_type() {
        check("1", Ok("1"));
        check("-7", Ok("-7"));
        check("\"1\"", Ok("\"1\""));
        check("\"\"", Ok("\"\""));
        check("\"a\\u0022b\"", Ok("\"a\\\"b\""));
        check("9223372036854775807", Ok("9223372036854775807"));
        assert_ne!(RequestId::from_json("1"), RequestId::from_json("\"1\""));
        assert_eq!(RequestId::from_json("\"\\u0031\""), RequestId::from_json("\"1\""));
    }

    #[test]
    fn invalid_ids_are_refused() {
        check("null", Err(IdError::Null));
        check("true", Err(IdError::WrongType));
        check("{}", Err(IdError::WrongType));
        check("[1]", Err(IdError::WrongType));
        check("1.0", Err(IdError::NotAnInteger));
        check("1e3", Err(IdError::NotAnInteger));
        check("9223372036854775808", Err(IdError::NotAnInteger));
        check(&format!("\"{}\"", "x".repeat(MAX_ID_BYTES + 1)), Err(IdError::TooLong));
    }
}
