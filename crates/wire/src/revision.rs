//! The protocol revisions and what each of them allows.

use std::fmt;

/// A revision of the protocol that this product speaks. The order is the order in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    V2026_07_28,
}

impl Revision {
    /// The newest revision that has sessions; what `initialize` is answered with when the client asks for a
    /// revision that it cannot have.
    pub const LATEST_LEGACY: Self = Self::V2025_11_25;

    pub const LEGACY: [Self; 3] = [Self::V2025_03_26, Self::V2025_06_18, Self::V2025_11_25];

    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "2025-03-26" => Some(Self::V2025_03_26),
            "2025-06-18" => Some(Self::V2025_06_18),
            "2025-11-25" => Some(Self::V2025_11_25),
            "2026-07-28" => Some(Self::V2026_07_28),
            _ => None,
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// Whether this revision is stateless: every request carries its own `_meta` envelope.
    pub fn is_modern(self) -> bool {
        self >= Self::V2026_07_28
    }

    /// The revision of the session that `initialize` with this version opens.
    pub fn negotiate(requested: &str) -> Self {
        Self::parse(requested).filter(|revision| !revision.is_modern()).unwrap_or(Self::LATEST_LEGACY)
    }

    /// JSON-RPC batches exist in one revision only.
    pub fn allows_batches(self) -> bool {
        self == Self::V2025_03_26
    }

    /// Whether a stream opens with an event that has an id and no data. Older clients choke on it.
    pub fn primes_streams(self) -> bool {
        self == Self::V2025_11_25
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether a version string names a stateless revision, known to us or not. Revisions are ISO dates, so they
/// compare as text.
pub fn names_modern(version: &str) -> bool {
    let is_date = version.len() == 10
        && version
            .bytes()
            .enumerate()
            .all(|(i, b)| if i == 4 || i == 7 { b == b'-' } else { b.is_ascii_digit() });
    is_date && version >= Revision::V2026_07_28.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initialize_never_negotiates_a_stateless_revision() {
        for (requested, expect) in [
            ("2025-03-26", Revision::V2025_03_26),
            ("2025-06-18", Revision::V2025_06_18),
            ("2025-11-25", Revision::V2025_11_25),
            ("2026-07-28", Revision::V2025_11_25),
            ("2024-11-05", Revision::V2025_11_25),
            ("banana", Revision::V2025_11_25),
        ] {
            assert_eq!(Revision::negotiate(requested), expect, "{requested}");
        }
    }

    #[test]
    fn only_dates_from_2026_07_28_on_are_modern() {
        for (version, expect) in
            [("2026-07-28", true), ("2027-01-01", true), ("2025-11-25", false), ("v999.0.0", false)]
        {
            assert_eq!(names_modern(version), expect, "{version}");
        }
    }
}
