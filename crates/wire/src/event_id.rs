//! Event ids: which stream, which position, and whose session.

use std::fmt;

/// The id of one SSE event. Unique in its session, increasing along its stream, and marked with its session so
/// that an id from elsewhere is recognised instead of naming some other event here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventId {
    pub stream: u64,
    pub seq: u64,
    /// A fingerprint of the session id. It proves nothing; it catches mix-ups.
    pub tag: u32,
}

impl EventId {
    /// Reads what [`fmt::Display`] writes, and nothing else: one event has one spelling.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (stream, seq, tag) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() || tag.len() != 8 {
            return None;
        }
        let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if !tag.bytes().all(is_hex) {
            return None;
        }
        let tag = u32::from_str_radix(tag, 16).ok()?;
        Some(Self { stream: canonical(stream)?, seq: canonical(seq)?, tag })
    }
}

fn canonical(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{:08x}", self.stream, self.seq, self.tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_one_spelling() {
        let id = EventId { stream: 7, seq: 0, tag: 0xbeef };
        assert_eq!(id.to_string(), "7-0-0000beef");
        assert_eq!(EventId::parse("7-0-0000beef"), Some(id));
        for bad in [
            "",
            "7",
            "7-0",
            "7-0-beef",
            "07-0-0000beef",
            "7-00-0000beef",
            "+7-0-0000beef",
            "7-0-0000BEEF",
            "7-0-0000beef-1",
            "7--0-0000beef",
            "99999999999999999999-0-0000beef",
            "7-0-+000beef",
            " 7-0-0000beef",
        ] {
            assert_eq!(EventId::parse(bad), None, "{bad:?}");
        }
    }
}
