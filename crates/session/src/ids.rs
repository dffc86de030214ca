//! Identifiers: session ids and tokens, principals, and numbers of calls, streams, connections and
//! nodes. Each has its own type, so that the compiler rejects a mix-up.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

/// Each hash starts with a label of its kind, so that a token and a derived id never result in the
/// same session id. Label and token fit into one block of SHA-256.
const TOKEN_LABEL: &[u8] = b"steadfast session token\0";
const DERIVED_LABEL: &[u8] = b"steadfast derived session id\0";

/// The length of a token, and of the part of its hash that is the session id.
const BYTES: usize = 24;

/// Separates the name of a principal from a subject. The names that `auth` makes do not contain it,
/// because JSON escapes it. The application that uses the library may make names that do.
const SUBJECT_SEPARATOR: char = '\u{1f}';

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Milliseconds since the Unix epoch. The caller of the session reads the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    pub fn plus(self, span: std::time::Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// The secret that a client sends to address its session: 192 random bits, sent as 32 characters in
/// `Mcp-Session-Id` or as the id of a task.
///
/// A token works like a password. The endpoint that receives one turns it into a [`SessionId`] at
/// once; no store, hint or log holds a token, and `Debug` does not show it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SessionToken([u8; Self::BYTES]);

impl SessionToken {
    pub const BYTES: usize = BYTES;

    pub const fn from_random(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Parses a text that [`SessionToken::expose`] has written. Returns `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        from_text(text).map(Self)
    }

    /// Returns the token as the client sends it. Give it to that client only, and never write it to
    /// a log.
    pub fn expose(&self) -> String {
        to_text(&self.0)
    }

    /// Returns the id of the session that this token addresses.
    pub fn id(&self) -> SessionId {
        SessionId::from_hash(Sha256::new_with_prefix(TOKEN_LABEL).chain_update(self.0))
    }
}

impl fmt::Debug for SessionToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionToken(hidden)")
    }
}

/// The id of a session inside this software: the first 24 bytes of the SHA-256 of its token.
///
/// It is no secret, because it cannot be turned back into the token. `Debug` and
/// [`SessionId::short`] show a fingerprint, since the whole id is too long for a log line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId([u8; Self::BYTES]);

impl SessionId {
    pub const BYTES: usize = BYTES;

    pub const fn from_random(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Creates the id of a record that no client can address: a hash of `domain` and `parts`.
    ///
    /// Equal arguments give equal ids on every node and in every release. Each part is hashed with
    /// its length, so `["ab", "c"]` and `["a", "bc"]` give different ids.
    pub fn derived(domain: &str, parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new_with_prefix(DERIVED_LABEL);
        for part in std::iter::once(domain.as_bytes()).chain(parts.iter().copied()) {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self::from_hash(hash)
    }

    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// Returns the id as stores write it in keys and hints.
    pub fn text(&self) -> String {
        to_text(&self.0)
    }

    /// Parses a text that [`SessionId::text`] has written.
    pub fn parse(text: &str) -> Option<Self> {
        from_text(text).map(Self)
    }

    /// Returns a short fingerprint for logs.
    pub fn short(&self) -> String {
        format!("{:08x}", self.tag())
    }

    /// Returns a 32-bit fingerprint (FNV-1a, folded). Equal ids have equal tags on every node and
    /// in every release.
    pub fn tag(&self) -> u32 {
        let hash = self.0.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        (hash ^ hash >> 32) as u32
    }

    fn from_hash(hash: Sha256) -> Self {
        let mut bytes = [0; Self::BYTES];
        bytes.copy_from_slice(&hash.finalize()[..Self::BYTES]);
        Self(bytes)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({})", self.short())
    }
}

fn to_text(bytes: &[u8; BYTES]) -> String {
    let mut text = String::with_capacity(32);
    for group in bytes.chunks_exact(3) {
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for shift in [18, 12, 6, 0] {
            text.push(char::from(ALPHABET[(bits >> shift) as usize & 63]));
        }
    }
    text
}

fn from_text(text: &str) -> Option<[u8; BYTES]> {
    let text = text.as_bytes();
    if text.len() != 32 {
        return None;
    }
    let mut bytes = [0; BYTES];
    for (group, out) in text.chunks_exact(4).zip(bytes.chunks_exact_mut(3)) {
        let mut bits = 0u32;
        for &letter in group {
            bits = bits << 6 | sextet(letter)?;
        }
        out.copy_from_slice(&bits.to_be_bytes()[1..]);
    }
    Some(bytes)
}

fn sextet(letter: u8) -> Option<u32> {
    let value = match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'-' => 62,
        b'_' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

/// The identity of a caller. A session belongs to the principal that opened it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Principal(Arc<str>);

impl Principal {
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// Stands in front of the hash in the name of a principal that is derived from credentials.
    pub const CREDENTIAL_MARK: &str = "sha256:";

    /// Returns the part of the name in front of the hash, if the principal is derived from
    /// credentials. It identifies the endpoint.
    pub fn endpoint_of_credential(&self) -> Option<&str> {
        self.0.rsplit_once(Self::CREDENTIAL_MARK).map(|(endpoint, _)| endpoint)
    }

    /// The principal of all callers at an endpoint without authentication.
    pub fn anonymous() -> Self {
        Self::new("")
    }

    /// Returns the principal of the server's own sessions about `subject`, which it keeps for this
    /// principal. It is another principal, so the client cannot name these sessions.
    #[must_use]
    pub fn about(&self, subject: &str) -> Self {
        Self::new(format!("{}{SUBJECT_SEPARATOR}{subject}", self.0))
    }

    /// Returns the subject, if [`about`](Self::about) has made this principal.
    pub fn subject(&self) -> Option<&str> {
        self.0.rsplit_once(SUBJECT_SEPARATOR).map(|(_, subject)| subject)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// The number of a call within its session.
    CallNo
}
number! {
    /// The number of a server request within its session.
    ServerRequestNo
}
number! {
    /// The number of a stream within its session. Number 0 is the first standalone stream.
    StreamNo
}
number! {
    /// The number of a connection within its session. A newer connection has a higher number, which
    /// fences off the older one.
    ConnNo
}
number! {
    /// The random id of a running process. A restarted process is a new node.
    NodeId
}

impl StreamNo {
    pub const FIRST_STANDALONE: Self = Self(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> SessionToken {
        SessionToken::from_random(std::array::from_fn(|i| (i as u8).wrapping_mul(37)))
    }

    #[test]
    fn a_token_round_trips_and_is_hidden_in_debug_output() {
        let token = token();
        assert_eq!(SessionToken::parse(&token.expose()), Some(token));
        assert!(token.expose().bytes().all(|b| (0x21..=0x7e).contains(&b)));
        assert_eq!(format!("{token:?}"), "SessionToken(hidden)");
    }

    /// Stores persist ids, so every release must compute the same id: the first 24 bytes that
    /// `sha256sum` prints for the label and the bytes of the token.
    #[test]
    fn a_session_id_is_the_hash_of_its_token() {
        let id = token().id();
        assert_eq!(id.text(), "GPV2uOPRdy8ZUbPB-k1kTeVD-YKfMuxR");
        assert_eq!(SessionId::parse(&id.text()), Some(id));
        assert_ne!(SessionId::derived("", &[&token().0]), id);
    }

    /// Stores persist derived ids, so every release must compute the same id: the first 24 bytes
    /// that `sha256sum` prints for the label and then each part, preceded by its length in eight
    /// bytes.
    #[test]
    fn a_derived_id_depends_on_each_part_and_its_length() {
        let id = SessionId::derived("tools", &[b"ab", b"c"]);
        assert_eq!(id.text(), "FHlxeDsooQHLazdI_0xlAg96Ulwk1gy4");
        let others: [(&str, &[&[u8]]); 6] = [
            ("tools", &[b"a", b"bc"]),
            ("tools", &[b"abc"]),
            ("tools", &[b"ab", b"c", b""]),
            ("tools", &[b"c", b"ab"]),
            ("toolsa", &[b"b", b"c"]),
            ("other", &[b"ab", b"c"]),
        ];
        for (domain, parts) in others {
            assert_ne!(SessionId::derived(domain, parts), id, "{domain} {parts:?}");
        }
    }

    #[test]
    fn malformed_texts_are_rejected() {
        let good = SessionToken::from_random([0; 24]).expose();
        for bad in [
            "",
            "x",
            &good[1..],
            &format!("{good}A"),
            &good.replacen('A', "+", 1),
            &good.replacen('A', "é", 1),
        ] {
            assert_eq!(SessionToken::parse(bad), None, "{bad}");
            assert_eq!(SessionId::parse(bad), None, "{bad}");
        }
    }
}
