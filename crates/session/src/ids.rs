//! Names of things, each a type of its own so that none is taken for another.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

/// [`SessionId::derived`] hashes this in front of its arguments, so that its ids differ from ids of
/// other origin.
const DERIVED_LABEL: &[u8] = b"steadfast derived session id\0";

/// Milliseconds since the Unix epoch, by the clock of whoever runs the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    pub fn plus(self, span: std::time::Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// The id of a session: 192 random bits, chosen by the caller, sent as 32 characters.
///
/// It works like a password, so `Debug` and [`SessionId::short`] show a fingerprint and only
/// [`SessionId::expose`] the id itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId([u8; Self::BYTES]);

impl SessionId {
    pub const BYTES: usize = 24;
    const ALPHABET: &'static [u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

    pub const fn from_random(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// The id of a record that no client can address: a hash of `domain` and `parts`.
    ///
    /// Equal arguments give equal ids on every node and in every release. Each part is hashed with its
    /// length, so `["ab", "c"]` and `["a", "bc"]` give different ids.
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

    /// The id as it travels in `Mcp-Session-Id`. Never write it to a log.
    pub fn expose(&self) -> String {
        let mut text = String::with_capacity(32);
        for group in self.0.chunks_exact(3) {
            let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
            for shift in [18, 12, 6, 0] {
                text.push(char::from(Self::ALPHABET[(bits >> shift) as usize & 63]));
            }
        }
        text
    }

    /// Reads what [`SessionId::expose`] wrote. Anything else is the id of no session.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.as_bytes();
        if text.len() != 32 {
            return None;
        }
        let mut bytes = [0; Self::BYTES];
        for (group, out) in text.chunks_exact(4).zip(bytes.chunks_exact_mut(3)) {
            let mut bits = 0u32;
            for &letter in group {
                bits = bits << 6 | sextet(letter)?;
            }
            out.copy_from_slice(&bits.to_be_bytes()[1..]);
        }
        Some(Self(bytes))
    }

    /// A name for logs: tells sessions apart, cannot be turned back into the id.
    pub fn short(&self) -> String {
        format!("{:08x}", self.tag())
    }

    /// A 32-bit fingerprint (FNV-1a, folded). Equal ids have equal tags on every node and in every release.
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

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({})", self.short())
    }
}

/// Who is calling. A session belongs to the principal that opened it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Principal(Arc<str>);

impl Principal {
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// Nobody in particular: the endpoint asks for no credentials.
    pub fn anonymous() -> Self {
        Self::new("")
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
    /// A client's request in flight, numbered within its session.
    CallNo
}
number! {
    /// A server's request in flight, numbered within its session.
    AskNo
}
number! {
    /// A log of server messages, numbered within its session. Number 0 is the first standalone stream.
    StreamNo
}
number! {
    /// One attachment of an HTTP response to a stream, numbered within its session: the fencing epoch.
    ConnNo
}
number! {
    /// A running process. Random, so that a restarted process is another node.
    NodeId
}

impl StreamNo {
    pub const FIRST_STANDALONE: Self = Self(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_id_survives_the_wire_and_hides_in_logs() {
        let id = SessionId::from_random(std::array::from_fn(|i| (i as u8).wrapping_mul(37)));
        assert_eq!(SessionId::parse(&id.expose()), Some(id));
        assert!(id.expose().bytes().all(|b| (0x21..=0x7e).contains(&b)));
        assert!(!format!("{id:?}").contains(&id.expose()[..8]));
    }

    /// Stores keep derived ids, so the bytes are fixed: what `sha256sum` prints for the label and
    /// then each part behind its length in eight bytes.
    #[test]
    fn a_derived_id_depends_on_each_part_and_on_nothing_else() {
        let id = SessionId::derived("tools", &[b"ab", b"c"]);
        assert_eq!(id.expose(), "FHlxeDsooQHLazdI_0xlAg96Ulwk1gy4");
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
    fn other_texts_are_no_session() {
        let good = SessionId::from_random([0; 24]).expose();
        for bad in [
            "",
            "x",
            &good[1..],
            &format!("{good}A"),
            &good.replacen('A', "+", 1),
            &good.replacen('A', "é", 1),
        ] {
            assert_eq!(SessionId::parse(bad), None, "{bad}");
        }
    }
}
