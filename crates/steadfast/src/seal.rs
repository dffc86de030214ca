//! Sealing what a client keeps for the server.
//!
//! A handler of 2026-07-28 that needs input gives the client a `requestState` to bring back with its answers. The client
//! may be anybody and may have kept it for any time, so it gets a sealed one: unreadable, unchangeable, and good only for
//! the same principal, the same request and a limited time.

use std::sync::Arc;
use std::time::Duration;

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{Key, KeyInit, XChaCha20Poly1305, XNonce};
use data_encoding::BASE64URL_NOPAD;
use steadfast_engine::{Clock, Entropy, Principal};

/// How large a sealed state may be.
const MAX_SEALED: usize = 256 << 10;
const NONCE: usize = 24;
const EXPIRY: usize = 8;

/// A key to seal with.
#[derive(Clone)]
pub struct StateKey([u8; 32]);

impl StateKey {
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl std::fmt::Debug for StateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StateKey(..)")
    }
}

/// The request that a state belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound<'a> {
    pub(crate) principal: &'a Principal,
    pub(crate) method: &'a str,
    /// The parameters in a form that does not depend on how the client writes JSON.
    pub(crate) params: &'a str,
}

impl Bound<'_> {
    /// Each part with its length, so that no two requests look alike.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in [self.principal.as_str(), self.method, self.params] {
            bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part.as_bytes());
        }
        bytes
    }
}

/// Why a state is not taken back. Who has tampered with one learns no more than that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SealError {
    #[error("it was not given out for this request, or has been changed")]
    NotOurs,
    #[error("it has expired")]
    Expired,
    #[error("it is larger than {MAX_SEALED} bytes")]
    TooLarge,
}

pub(crate) struct Seal {
    /// The first seals; all open.
    ciphers: Vec<XChaCha20Poly1305>,
    lifetime: Duration,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
}

impl Seal {
    /// Without keys of its own a process makes one up, which nobody else can open.
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

    pub(crate) fn seal(&self, state: &str, bound: Bound<'_>) -> Result<String, SealError> {
        let mut nonce = [0; NONCE];
        self.entropy.fill(&mut nonce);
        let expiry = self.clock.now().plus(self.lifetime);
        let mut plain = expiry.0.to_be_bytes().to_vec();
        plain.extend_from_slice(state.as_bytes());
        let aad = bound.bytes();
        let payload = Payload { msg: &plain, aad: &aad };
        // Encryption fails only for messages of many gigabytes.
        let sealed =
            self.ciphers[0].encrypt(&XNonce::from(nonce), payload).map_err(|_| SealError::TooLarge)?;
        let text = BASE64URL_NOPAD.encode(&[&nonce[..], &sealed].concat());
        if text.len() > MAX_SEALED { Err(SealError::TooLarge) } else { Ok(text) }
    }

    pub(crate) fn open(&self, sealed: &str, bound: Bound<'_>) -> Result<String, SealError> {
        if sealed.len() > MAX_SEALED {
            return Err(SealError::TooLarge);
        }
        let bytes = BASE64URL_NOPAD.decode(sealed.as_bytes()).map_err(|_| SealError::NotOurs)?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE>().ok_or(SealError::NotOurs)?;
        let nonce = XNonce::from(*nonce);
        let aad = bound.bytes();
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

    fn bound<'a>(principal: &'a Principal, method: &'a str, params: &'a str) -> Bound<'a> {
        Bound { principal, method, params }
    }

    #[test]
    fn a_state_is_good_for_its_request_alone() {
        let (me, you) = (Principal::new("me"), Principal::new("you"));
        let seal = seal_at(&[A], 1000);
        let sealed = seal.seal("secret", bound(&me, "tools/call", "{}")).unwrap();
        assert!(!sealed.contains("secret"));
        for (principal, method, params, expect) in [
            (&me, "tools/call", "{}", Ok("secret".to_owned())),
            (&you, "tools/call", "{}", Err(SealError::NotOurs)),
            (&me, "prompts/get", "{}", Err(SealError::NotOurs)),
            (&me, "tools/call", "{\"a\":1}", Err(SealError::NotOurs)),
        ] {
            assert_eq!(seal.open(&sealed, bound(principal, method, params)), expect, "{method} {params}");
        }
    }

    #[test]
    fn every_change_is_noticed() {
        let me = Principal::anonymous();
        let seal = seal_at(&[A], 1000);
        let request = || bound(&me, "tools/call", "{}");
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
        let request = || bound(&me, "tools/call", "{}");
        let sealed = seal_at(&[A], 1000).seal("x", request()).unwrap();
        assert_eq!(seal_at(&[A], 1100).open(&sealed, request()), Ok("x".into()));
        assert_eq!(seal_at(&[A], 1101).open(&sealed, request()), Err(SealError::Expired));
    }

    #[test]
    fn keys_are_changed_without_losing_anybody() {
        let me = Principal::anonymous();
        let request = || bound(&me, "tools/call", "{}");
        let old = seal_at(&[A], 1000).seal("x", request()).unwrap();
        assert_eq!(seal_at(&[B, A], 1000).open(&old, request()), Ok("x".into()));
        let new = seal_at(&[B, A], 1000).seal("y", request()).unwrap();
        assert_eq!(seal_at(&[A], 1000).open(&new, request()), Err(SealError::NotOurs));
        assert_eq!(seal_at(&[], 1000).open(&new, request()), Err(SealError::NotOurs));
    }
}
