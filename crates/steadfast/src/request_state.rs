//! Encrypts and authenticates `requestState`, which clients of 2026-07-28 hold for the server.
//!
//! A handler that needs input gives the client a `requestState`, and the client sends it back with
//! the answers. The server keeps no copy and does not trust the client, so it seals the state: the
//! client cannot read or change it, and the server accepts it only from the same principal, for the
//! same request and until it expires. A client may send a valid state more than once.
//!
//! Format: base64url of a 24-byte nonce and the XChaCha20-Poly1305 ciphertext of the expiry time (8
//! bytes) and the state. Principal, method and parameters are the associated data.

use std::sync::Arc;
use std::time::Duration;

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{Key, KeyInit, XChaCha20Poly1305, XNonce};
use data_encoding::BASE64URL_NOPAD;
use steadfast_engine::{Clock, Entropy, Principal};

/// The maximum length of a sealed state, in characters.
const MAX_SEALED: usize = 256 << 10;
const NONCE: usize = 24;
const EXPIRY: usize = 8;

/// A 256-bit key for [`Builder::state_keys`](crate::Builder::state_keys).
#[derive(Clone)]
pub struct StateKey([u8; 32]);

impl StateKey {
    /// `bytes` must be secret and random.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl std::fmt::Debug for StateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StateKey(..)")
    }
}

/// The request that a state is valid for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Binding<'a> {
    pub(crate) principal: &'a Principal,
    pub(crate) method: &'a str,
    /// The parameters in a canonical form, which does not depend on how the client writes JSON.
    pub(crate) params: &'a str,
}

impl Binding<'_> {
    /// Returns the associated data. Each part has its length in front, so that different requests
    /// have different associated data.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in [self.principal.as_str(), self.method, self.params] {
            bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part.as_bytes());
        }
        bytes
    }
}

/// Error of sealing or opening a state. [`SealError::NotOurs`] covers every kind of forgery, so
/// that a client that tampers with states learns nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SealError {
    #[error("it was not issued for this request, or was modified")]
    NotOurs,
    #[error("it has expired")]
    Expired,
    #[error("it is larger than {MAX_SEALED} bytes")]
    TooLarge,
}

/// Seals and opens states with the configured keys.
pub(crate) struct Seal {
    /// The first one encrypts; each one can decrypt.
    ciphers: Vec<XChaCha20Poly1305>,
    lifetime: Duration,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
}

impl Seal {
    /// Without `keys`, uses a random key, which no other process has.
    pub(crate) fn new(
        keys: &[StateKey],
        lifetime: Duration,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Self {
        let mut ciphers: Vec<_> = keys.iter().map(|key| XChaCha20Poly1305::new(&Key::from(key.0))).collect();
        if ciphers.is_empty() {
            let mut key = [0; 32];
            entropy.fill(&mut key);
            ciphers.push(XChaCha20Poly1305::new(&Key::from(key)));
        }
        Self { ciphers, lifetime, clock, entropy }
    }

    /// Returns the sealed state. Fails with [`SealError::TooLarge`] if it is longer than
    /// [`MAX_SEALED`].
    pub(crate) fn seal(&self, state: &str, binding: Binding<'_>) -> Result<String, SealError> {
        let mut nonce = [0; NONCE];
        self.entropy.fill(&mut nonce);
        let expiry = self.clock.now().plus(self.lifetime);
        let mut plain = expiry.0.to_be_bytes().to_vec();
        plain.extend_from_slice(state.as_bytes());
        let aad = binding.bytes();
        let payload = Payload { msg: &plain, aad: &aad };
        // Encryption fails only for messages of many gigabytes.
        let sealed =
            self.ciphers[0].encrypt(&XNonce::from(nonce), payload).map_err(|_| SealError::TooLarge)?;
        let text = BASE64URL_NOPAD.encode(&[&nonce[..], &sealed].concat());
        if text.len() > MAX_SEALED { Err(SealError::TooLarge) } else { Ok(text) }
    }

    /// Returns the state if it was sealed with one of the keys for this request and has not
    /// expired.
    pub(crate) fn open(&self, sealed: &str, binding: Binding<'_>) -> Result<String, SealError> {
        if sealed.len() > MAX_SEALED {
            return Err(SealError::TooLarge);
        }
        let bytes = BASE64URL_NOPAD.decode(sealed.as_bytes()).map_err(|_| SealError::NotOurs)?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE>().ok_or(SealError::NotOurs)?;
        let nonce = XNonce::from(*nonce);
        let aad = binding.bytes();
        let opened = self
            .ciphers
            .iter()
            .find_map(|cipher| cipher.decrypt(&nonce, Payload { msg: sealed, aad: &aad }).ok());
        let opened = opened.ok_or(SealError::NotOurs)?;
        let (expiry, state) = opened.split_first_chunk::<EXPIRY>().ok_or(SealError::NotOurs)?;
        if self.clock.now().0 > u64::from_be_bytes(*expiry) {
            return Err(SealError::Expired);
        }
        String::from_utf8(state.to_vec()).map_err(|_| SealError::NotOurs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_engine::{ManualClock, SystemEntropy, Time};

    const A: StateKey = StateKey::new([1; 32]);
    const B: StateKey = StateKey::new([2; 32]);

    fn seal_at(keys: &[StateKey], now: u64) -> Seal {
        let clock = Arc::new(ManualClock::new(Time(now)));
        Seal::new(keys, Duration::from_millis(100), clock, Arc::new(SystemEntropy))
    }

    fn binding<'a>(principal: &'a Principal, method: &'a str, params: &'a str) -> Binding<'a> {
        Binding { principal, method, params }
    }

    #[test]
    fn a_state_is_valid_for_its_request_only() {
        let (me, you) = (Principal::new("me"), Principal::new("you"));
        let seal = seal_at(&[A], 1000);
        let sealed = seal.seal("secret", binding(&me, "tools/call", "{}")).unwrap();
        assert!(!sealed.contains("secret"));
        for (principal, method, params, expect) in [
            (&me, "tools/call", "{}", Ok("secret".to_owned())),
            (&you, "tools/call", "{}", Err(SealError::NotOurs)),
            (&me, "prompts/get", "{}", Err(SealError::NotOurs)),
            (&me, "tools/call", "{\"a\":1}", Err(SealError::NotOurs)),
        ] {
            assert_eq!(seal.open(&sealed, binding(principal, method, params)), expect, "{method} {params}");
        }
    }

    #[test]
    fn every_modification_is_detected() {
        let me = Principal::anonymous();
        let seal = seal_at(&[A], 1000);
        let request = || binding(&me, "tools/call", "{}");
        let sealed = seal.seal("x", request()).unwrap();
        for at in 0..sealed.len() {
            let mut changed = sealed.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(seal.open(&changed, request()).is_err(), "byte {at}");
        }
        for bad in ["", "A", "-TAMPERED", &format!("{sealed}-TAMPERED"), &"A".repeat(MAX_SEALED + 1)] {
            assert!(seal.open(bad, request()).is_err());
        }
    }

    #[test]
    fn states_expire() {
        let me = Principal::anonymous();
        let request = || binding(&me, "tools/call", "{}");
        let sealed = seal_at(&[A], 1000).seal("x", request()).unwrap();
        assert_eq!(seal_at(&[A], 1100).open(&sealed, request()), Ok("x".into()));
        assert_eq!(seal_at(&[A], 1101).open(&sealed, request()), Err(SealError::Expired));
    }

    #[test]
    fn states_survive_key_rotation() {
        let me = Principal::anonymous();
        let request = || binding(&me, "tools/call", "{}");
        let old = seal_at(&[A], 1000).seal("x", request()).unwrap();
        assert_eq!(seal_at(&[B, A], 1000).open(&old, request()), Ok("x".into()));
        let new = seal_at(&[B, A], 1000).seal("y", request()).unwrap();
        assert_eq!(seal_at(&[A], 1000).open(&new, request()), Err(SealError::NotOurs));
        assert_eq!(seal_at(&[], 1000).open(&new, request()), Err(SealError::NotOurs));
    }
}
