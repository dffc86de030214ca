//! Finds the bearer token of a request and parses it (RFC 7515, compact form), before its signature
//! is verified.

use std::str;

use data_encoding::BASE64URL_NOPAD;
use http::header::AUTHORIZATION;
use http::request::Parts;
use serde::Deserialize;

use crate::algorithm::Algorithm;
use crate::claims::TokenError;

/// Returns the bearer token of a request, or `None` if the request has no `Authorization` header or
/// one with another scheme.
pub(crate) fn of_request(parts: &Parts, max_bytes: usize) -> Result<Option<&str>, TokenError> {
    let mut values = parts.headers.get_all(AUTHORIZATION).iter();
    let value = match (values.next(), values.next()) {
        (None, _) => return Ok(None),
        (Some(value), None) => value,
        (Some(_), Some(_)) => return Err(TokenError::Several),
    };
    // The scheme is compared as bytes: a header with another scheme need not be text.
    let Some((scheme, rest)) = value.as_bytes().split_at_checked("Bearer ".len()) else { return Ok(None) };
    if !scheme.eq_ignore_ascii_case(b"Bearer ") {
        return Ok(None);
    }
    if rest.len() > max_bytes {
        return Err(TokenError::TooLong { max_bytes });
    }
    let token = str::from_utf8(rest).map_err(|_| TokenError::Malformed)?.trim_matches(' ');
    if token.is_empty() { Err(TokenError::Malformed) } else { Ok(Some(token)) }
}

/// A parsed token. Nothing in it is trusted before the signature is verified.
#[derive(Debug)]
pub(crate) struct Token<'a> {
    pub(crate) algorithm: Algorithm,
    pub(crate) key_id: Option<String>,
    /// The part of the token that the signature covers.
    pub(crate) signed: &'a str,
    pub(crate) signature: Vec<u8>,
    /// The claims as JSON. Parse them only after the signature is verified.
    pub(crate) claims: Vec<u8>,
}

impl<'a> Token<'a> {
    /// Parses the header, decodes the signature and the claims.
    pub(crate) fn parse(text: &'a str) -> Result<Self, TokenError> {
        #[derive(Deserialize)]
        struct Header {
            alg: String,
            kid: Option<String>,
            typ: Option<String>,
            crit: Option<serde::de::IgnoredAny>,
        }
        let (signed, signature) = text.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenError::Malformed)?;
        let header: Header = serde_json::from_slice(&decode(header)?).map_err(|_| TokenError::Malformed)?;
        if header.crit.is_some() {
            return Err(TokenError::Critical);
        }
        if header.typ.is_some_and(|kind| !is_access_token(&kind)) {
            return Err(TokenError::OtherKind);
        }
        let algorithm = header.alg.parse().map_err(|_| TokenError::Algorithm)?;
        let (signature, claims) = (decode(signature)?, decode(claims)?);
        Ok(Self { algorithm, key_id: header.kid, signed, signature, claims })
    }
}

/// Returns true if `typ` is the type of an access token. Other kinds of tokens, such as logout
/// tokens, may be signed with the same keys.
fn is_access_token(kind: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    matches!(kind.strip_prefix("application/").unwrap_or(&kind), "jwt" | "at+jwt")
}

/// Decodes base64url. The alphabet has no dot, so decoding fails for a token with more than three
/// parts.
fn decode(part: &str) -> Result<Vec<u8>, TokenError> {
    BASE64URL_NOPAD.decode(part.as_bytes()).map_err(|_| TokenError::Malformed)
}
