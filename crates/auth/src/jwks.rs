//! Parses JSON Web Key Sets (RFC 7517) and finds the key for a token.
//!
//! A key set comes from the network, so its size is bounded, and keys that this crate cannot use
//! safely are skipped.

use data_encoding::BASE64URL_NOPAD;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::algorithm::{Algorithm, PublicKey};

/// The maximum number of keys of one set; further keys are skipped.
const MAX_KEYS: usize = 256;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeySet(Vec<Key>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    id: Option<String>,
    /// The only algorithm that the key may be used with, if the set says so.
    only: Option<Algorithm>,
    key: PublicKey,
}

/// Why a key set cannot be used. The publisher of the set is to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeySetError {
    #[error("it is not a JSON Web Key Set")]
    NoSet,
    #[error("it has no key that can be used to verify tokens")]
    NoKey,
}

/// Why there is no key for a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoKey {
    /// The set has no such key. A newer set may have it.
    Unknown,
    /// The token names no key, and several keys fit.
    Ambiguous,
}

impl KeySet {
    /// Parses a set. Skips keys that are not for signatures, and keys of unsupported types.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, KeySetError> {
        #[derive(Deserialize)]
        struct Set<'a> {
            #[serde(borrow)]
            keys: Vec<&'a RawValue>,
        }
        let set: Set<'_> = serde_json::from_slice(text).map_err(|_| KeySetError::NoSet)?;
        let keys: Vec<Key> =
            set.keys.into_iter().filter_map(|key| Key::parse(key.get())).take(MAX_KEYS).collect();
        if keys.is_empty() { Err(KeySetError::NoKey) } else { Ok(Self(keys)) }
    }

    /// Returns the key that the header of a token refers to.
    pub(crate) fn find(&self, algorithm: Algorithm, id: Option<&str>) -> Result<&PublicKey, NoKey> {
        let fits = |key: &&Key| {
            key.key.fits(algorithm)
                && key.only.is_none_or(|only| only == algorithm)
                && id.is_none_or(|id| key.id.as_deref() == Some(id))
        };
        let mut fitting = self.0.iter().filter(fits);
        match (fitting.next(), id, fitting.next()) {
            (None, ..) => Err(NoKey::Unknown),
            (Some(key), Some(_), _) | (Some(key), None, None) => Ok(&key.key),
            (Some(_), None, Some(_)) => Err(NoKey::Ambiguous),
        }
    }
}

impl Key {
    fn parse(text: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct Jwk {
            kty: String,
            crv: Option<String>,
            kid: Option<String>,
            alg: Option<String>,
            #[serde(rename = "use")]
            purpose: Option<String>,
            key_ops: Option<Vec<String>>,
            n: Option<String>,
            e: Option<String>,
            x: Option<String>,
            y: Option<String>,
        }
        let jwk: Jwk = serde_json::from_str(text).ok()?;
        let is_for_signatures = jwk.purpose.is_none_or(|purpose| purpose == "sig")
            && jwk.key_ops.is_none_or(|operations| operations.iter().any(|one| one == "verify"));
        if !is_for_signatures {
            return None;
        }
        let only = jwk.alg.map(|alg| alg.parse()).transpose().ok()?;
        let key = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("RSA", _) => PublicKey::Rsa { modulus: number(&jwk.n?)?, exponent: number(&jwk.e?)? },
            ("EC", Some("P-256")) => PublicKey::P256(point(&jwk.x?, &jwk.y?, 32)?),
            ("EC", Some("P-384")) => PublicKey::P384(point(&jwk.x?, &jwk.y?, 48)?),
            ("OKP", Some("Ed25519")) => PublicKey::Ed25519(bytes(&jwk.x?).filter(|key| key.len() == 32)?),
            _ => return None,
        };
        Some(Self { id: jwk.kid, only, key })
    }
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    BASE64URL_NOPAD.decode(text.trim_end_matches('=').as_bytes()).ok()
}

/// Decodes an integer and removes leading zeros, which some publishers add against the
/// specification.
fn number(text: &str) -> Option<Vec<u8>> {
    let bytes = bytes(text)?;
    let first = bytes.iter().position(|byte| *byte != 0)?;
    Some(bytes[first..].to_vec())
}

/// Returns an uncompressed point of a curve whose coordinates have `length` bytes.
fn point(x: &str, y: &str, length: usize) -> Option<Vec<u8>> {
    let (x, y) = (bytes(x)?, bytes(y)?);
    if x.len() != length || y.len() != length {
        return None;
    }
    Some([&[4], x.as_slice(), y.as_slice()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

    fn key(id: &str, rest: &str) -> String {
        let id = if id.is_empty() { String::new() } else { format!(r#""kid":"{id}","#) };
        format!(r#"{{{id}"kty":"OKP","crv":"Ed25519","x":"{X}"{rest}}}"#)
    }

    fn rsa(id: &str, rest: &str) -> String {
        format!(r#"{{"kid":"{id}","kty":"RSA","n":"AAEC","e":"AQAB"{rest}}}"#)
    }

    fn set(keys: &[String]) -> Result<KeySet, KeySetError> {
        KeySet::parse(format!(r#"{{"keys":[{}]}}"#, keys.join(",")).as_bytes())
    }

    #[test]
    fn only_keys_for_signatures_are_used() {
        let octet = r#"{"kty":"oct","kid":"a","k":"c2VjcmV0"}"#.to_owned();
        for (what, bad) in [
            ("a secret", octet.clone()),
            ("for encryption", key("a", r#","use":"enc""#)),
            ("to sign with", key("a", r#","key_ops":["sign"]"#)),
            ("of an algorithm with secrets", key("a", r#","alg":"HS256""#)),
            ("of no algorithm", key("a", r#","alg":"none""#)),
            ("of a curve unknown", r#"{"kty":"EC","crv":"secp256k1","x":"AA","y":"AA"}"#.to_owned()),
            ("a short point", r#"{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}"#.to_owned()),
            ("without an exponent", r#"{"kty":"RSA","n":"AQAB"}"#.to_owned()),
            ("of zero", r#"{"kty":"RSA","n":"AAAA","e":"AQAB"}"#.to_owned()),
            ("no object", "7".to_owned()),
            ("without a kind", "{}".to_owned()),
        ] {
            assert_eq!(set(std::slice::from_ref(&bad)), Err(KeySetError::NoKey), "{what}");
            // The other keys of the set stay usable.
            assert_eq!(set(&[bad, key("b", "")]).unwrap().0.len(), 1, "{what}");
        }
        for text in ["", "[]", "{}", r#"{"keys":{}}"#, "<html>", r#"{"keys":[],"keys":[]}"#] {
            assert_eq!(KeySet::parse(text.as_bytes()), Err(KeySetError::NoSet), "{text}");
        }
        let many: Vec<String> = (0..MAX_KEYS + 1).map(|n| key(&n.to_string(), "")).collect();
        assert_eq!(set(&many).unwrap().0.len(), MAX_KEYS);
        assert_eq!(set(&many[1..]).unwrap().0.len(), MAX_KEYS);
    }

    #[test]
    fn a_token_refers_to_one_key() {
        let found = |keys: &[String], algorithm, id: Option<&str>| {
            let set = set(keys).unwrap();
            set.find(algorithm, id).map(|key| matches!(key, PublicKey::Rsa { .. }))
        };
        let keys = [key("a", ""), rsa("a", ""), rsa("b", r#","alg":"PS256""#)];
        assert_eq!(found(&keys, Algorithm::EdDsa, Some("a")), Ok(false));
        assert_eq!(found(&keys, Algorithm::Rs256, Some("a")), Ok(true));
        assert_eq!(found(&keys, Algorithm::Ps256, Some("b")), Ok(true));
        // A key with an algorithm is not used for other algorithms.
        assert_eq!(found(&keys, Algorithm::Rs256, Some("b")), Err(NoKey::Unknown));
        assert_eq!(found(&keys, Algorithm::Es256, Some("a")), Err(NoKey::Unknown));
        assert_eq!(found(&keys, Algorithm::EdDsa, Some("c")), Err(NoKey::Unknown));
        assert_eq!(found(&keys, Algorithm::EdDsa, Some("")), Err(NoKey::Unknown));
        // Without an id, exactly one key must fit.
        assert_eq!(found(&keys, Algorithm::EdDsa, None), Ok(false));
        assert_eq!(found(&keys, Algorithm::Rs256, None), Ok(true));
        assert_eq!(found(&keys, Algorithm::Ps256, None), Err(NoKey::Ambiguous));
        assert_eq!(found(&[key("", "")], Algorithm::EdDsa, Some("a")), Err(NoKey::Unknown));
        assert_eq!(found(&[key("", "")], Algorithm::EdDsa, None), Ok(false));
    }
}
