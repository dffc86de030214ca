//! Idempotency keys: a client that repeats a call with the same key gets the outcome of the first
//! one; the call is not executed again.
//!
//! The key is in the header `Idempotency-Key`, or in `_meta` for clients that cannot set headers.
//! MCP has no key of its own.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::RawObject;

/// The key in `_meta`.
pub const META_IDEMPOTENCY_KEY: &str = "dev.steadfast/idempotencyKey";

/// The longest key.
pub const MAX_KEY_BYTES: usize = 255;

/// How many hexadecimal digits 128 bits have.
const MIN_HEX_DIGITS: usize = 32;
/// How many characters of base64 128 bits have.
const MIN_CHARACTERS: usize = 22;
/// Random text of that length has more different characters; a counter with zeros in front has not.
const MIN_DIFFERENT: usize = 9;

/// A key that no other client can guess.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey(String);

/// Why a key was refused. Every case is an error of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("the idempotency key is longer than {MAX_KEY_BYTES} bytes")]
    TooLong,
    #[error("the idempotency key has characters other than visible ASCII")]
    NotVisible,
    #[error(
        "the idempotency key must have 128 random bits, because it leads to the answer: use a UUID, \
         {MIN_HEX_DIGITS} hexadecimal digits or {MIN_CHARACTERS} characters of base64"
    )]
    TooWeak,
    #[error("the idempotency key in _meta is not a string")]
    NotText,
    #[error("the header Idempotency-Key and _meta have different keys")]
    Different,
}

impl IdempotencyKey {
    /// Reads the key of a request from its header and the JSON text of its parameters. Returns
    /// `None` if there is none.
    pub fn read(header: Option<&str>, params: Option<&str>) -> Result<Option<Self>, KeyError> {
        let of_header = header.map(Self::parse).transpose()?;
        let of_meta = in_meta(params)?.map(|text| Self::parse(&text)).transpose()?;
        match (of_header, of_meta) {
            (Some(header), Some(meta)) if header != meta => Err(KeyError::Different),
            (header, meta) => Ok(header.or(meta)),
        }
    }

    /// Checks a key. The quotes that a structured header field has around it do not count.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let text = text.trim();
        let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
        if inner.len() > MAX_KEY_BYTES {
            return Err(KeyError::TooLong);
        }
        if !inner.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(KeyError::NotVisible);
        }
        let hex = inner.bytes().filter(u8::is_ascii_hexdigit).count();
        let is_hex = inner.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        let is_long = if is_hex { hex >= MIN_HEX_DIGITS } else { inner.len() >= MIN_CHARACTERS };
        let different: BTreeSet<u8> = inner.bytes().collect();
        if !is_long || different.len() < MIN_DIFFERENT {
            return Err(KeyError::TooWeak);
        }
        Ok(Self(inner.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn in_meta(params: Option<&str>) -> Result<Option<String>, KeyError> {
    // Most requests have no key, and need not be parsed.
    let Some(params) = params.filter(|params| params.contains(META_IDEMPOTENCY_KEY)) else { return Ok(None) };
    let Ok(params) = RawObject::parse(params) else { return Ok(None) };
    let Some(Ok(meta)) = params.get("_meta").map(RawObject::parse) else { return Ok(None) };
    match (meta.get(META_IDEMPOTENCY_KEY), meta.text(META_IDEMPOTENCY_KEY)) {
        (None, _) => Ok(None),
        (Some(_), Some(text)) => Ok(Some(text)),
        (Some(_), None) => Err(KeyError::NotText),
    }
}

/// The parameters of a request in one spelling, so that a repeated request is recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CanonicalParams {
    /// The parameters without `_meta` and without those of the round.
    pub request: String,
    /// What differs between the rounds of a request that needs input of the client. Each round is
    /// executed.
    pub round: String,
}

impl CanonicalParams {
    pub fn of(params: Option<&str>) -> Self {
        let mut request: Value =
            params.and_then(|params| serde_json::from_str(params).ok()).unwrap_or_default();
        // Needed if another crate of the build enables serde_json's `preserve_order`.
        request.sort_all_objects();
        let mut round = Vec::new();
        if let Value::Object(members) = &mut request {
            members.remove("_meta");
            round.extend(["inputResponses", "requestState"].map(|own| members.remove(own)));
        }
        Self {
            request: request.to_string(),
            round: Value::from_iter(round.into_iter().flatten()).to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_128_bits() {
        for good in [
            "8e03978e-40d5-43dd-bc93-6894a57f9324",
            "8e03978e40d543ddbc936894a57f9324",
            "jgOXjkDVQ927k2iUpX-TJA",
            "order-17/8e03978e40d543ddbc936894a57f9324",
        ] {
            assert_eq!(IdempotencyKey::parse(good).unwrap().as_str(), good);
            assert_eq!(IdempotencyKey::parse(&format!(" \"{good}\" ")).unwrap().as_str(), good);
        }
        for (bad, why) in [
            ("", KeyError::TooWeak),
            ("17", KeyError::TooWeak),
            ("8e03978e40d543ddbc936894a57f932", KeyError::TooWeak),
            ("jgOXjkDVQ927k2iUpX-TJ", KeyError::TooWeak),
            ("order-000000000000000000000017", KeyError::TooWeak),
            ("jgOXjkDVQ927k2iUpX TJA", KeyError::NotVisible),
            ("jgOXjkDVQ927k2iUpXüTJA", KeyError::NotVisible),
            (&"jgOXjkDVQ9".repeat(26), KeyError::TooLong),
        ] {
            assert_eq!(IdempotencyKey::parse(bad), Err(why), "{bad}");
        }
    }

    #[test]
    fn a_key_is_in_the_header_or_in_meta() {
        const KEY: &str = "jgOXjkDVQ927k2iUpX-TJA";
        let meta = |value: &str| format!(r#"{{"name":"x","_meta":{{"{META_IDEMPOTENCY_KEY}":{value}}}}}"#);
        let quoted = meta(&format!("\"{KEY}\""));
        fn read(header: Option<&str>, params: Option<&str>) -> Result<Option<String>, KeyError> {
            IdempotencyKey::read(header, params).map(|key| key.map(|key| key.as_str().to_owned()))
        }
        assert_eq!(read(None, None), Ok(None));
        assert_eq!(read(None, Some("{}")), Ok(None));
        for (header, params) in [(Some(KEY), None), (None, Some(&*quoted)), (Some(KEY), Some(&*quoted))] {
            assert_eq!(read(header, params), Ok(Some(KEY.to_owned())));
        }
        assert_eq!(read(Some("other-jgOXjkDVQ927k2iUpX"), Some(&quoted)), Err(KeyError::Different));
        assert_eq!(read(None, Some(&meta("17"))), Err(KeyError::NotText));
        assert_eq!(read(None, Some(&meta("\"17\""))), Err(KeyError::TooWeak));
        // The name of the key in an argument is not a key.
        assert_eq!(read(None, Some(&format!(r#"{{"a":"{META_IDEMPOTENCY_KEY}"}}"#))), Ok(None));
    }

    #[test]
    fn the_order_of_members_and_meta_do_not_matter() {
        let of = |params| CanonicalParams::of(Some(params));
        let one = of(r#"{"name":"x","arguments":{"b":[1,2],"a":1},"_meta":{"t":1}}"#);
        assert_eq!(one, of(r#"{ "arguments":{"a":1,"b":[1,2]}, "name":"x" }"#));
        assert_ne!(one, of(r#"{"arguments":{"a":1,"b":[2,1]},"name":"x"}"#));
        let round = of(r#"{"name":"x","requestState":"s","arguments":{"b":[1,2],"a":1}}"#);
        assert_eq!((&round.request, &*round.round), (&one.request, r#"["s"]"#));
        assert_eq!((&*one.round, &*CanonicalParams::of(None).request), ("[]", "null"));
    }
}
