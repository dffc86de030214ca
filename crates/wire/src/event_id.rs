//! SSE event ids: stream, sequence number, and a fingerprint of the session.

use std::fmt;

/// The id of one SSE event.
///
/// The id is unique within its session and increases along its stream. It contains a fingerprint of
/// the session, so that an id of another session is recognised and cannot name an event of this
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventId {
    pub stream: u64,
    pub seq: u64,
    /// A fingerprint of the session id. It detects mix-ups, but it is no protection against
    /// attackers.
    pub tag: u32,
}

impl EventId {
    /// Parses an id that [`fmt::Display`] has written. Every other spelling is refused, so that an
    /// event has one id.
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
        Some(Self { stream: parse_canonical(stream)?, seq: parse_canonical(seq)?, tag })
    }
}

/// Parses a decimal number without sign or leading zeros.
pub(crate) fn parse_canonical(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

/// The text of an [`EventId`], on the stack. One is written for every event, so it avoids the cost
/// of `core::fmt`.
#[derive(Clone, Copy)]
pub struct EventIdText {
    bytes: [u8; Self::CAPACITY],
    start: usize,
}

impl EventIdText {
    /// Two numbers of at most 20 digits, eight hexadecimal digits, two dashes.
    const CAPACITY: usize = 20 + 1 + 20 + 1 + 8;

    fn new(id: &EventId) -> Self {
        let mut text = Self { bytes: [0; Self::CAPACITY], start: Self::CAPACITY };
        for shift in (0..32).step_by(4) {
            text.push_front(b"0123456789abcdef"[(id.tag >> shift) as usize & 15]);
        }
        text.push_front(b'-');
        text.push_number(id.seq);
        text.push_front(b'-');
        text.push_number(id.stream);
        text
    }

    fn push_number(&mut self, mut number: u64) {
        loop {
            self.push_front(b'0' + (number % 10) as u8);
            number /= 10;
            if number == 0 {
                return;
            }
        }
    }

    fn push_front(&mut self, byte: u8) {
        self.start -= 1;
        self.bytes[self.start] = byte;
    }
}

impl std::ops::Deref for EventIdText {
    type Target = str;

    fn deref(&self) -> &str {
        // The bytes are ASCII, so this cannot fail.
        std::str::from_utf8(&self.bytes[self.start..]).unwrap_or_default()
    }
}

impl fmt::Debug for EventIdText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl EventId {
    /// Returns the text of the id without an allocation.
    pub fn text(&self) -> EventIdText {
        EventIdText::new(self)
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
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
        let largest = EventId { stream: u64::MAX, seq: u64::MAX, tag: u32::MAX };
        assert_eq!(largest.to_string(), "18446744073709551615-18446744073709551615-ffffffff");
        assert_eq!(EventId::parse(&largest.text()), Some(largest));
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
