//! The MCP protocol revisions, and their differences.

use std::fmt;

/// A supported revision of the protocol. Later revisions are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    V2026_07_28,
}

impl Revision {
    /// Every revision, the oldest first.
    pub const ALL: [Self; 4] = [Self::V2025_03_26, Self::V2025_06_18, Self::V2025_11_25, Self::V2026_07_28];

    /// The newest revision with sessions.
    pub const LATEST_LEGACY: Self = Self::V2025_11_25;

    /// The revisions with sessions.
    pub const LEGACY: [Self; 3] = [Self::V2025_03_26, Self::V2025_06_18, Self::V2025_11_25];

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|revision| revision.as_str() == text)
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// Returns true if this revision is stateless: every request carries its own `_meta` envelope.
    pub fn is_modern(self) -> bool {
        self >= Self::V2026_07_28
    }

    /// Returns true if this revision has JSON-RPC batches. Only one revision has them.
    pub fn allows_batches(self) -> bool {
        self == Self::V2025_03_26
    }

    /// Returns true if a resumable stream starts with a priming event, which has an id and no data.
    /// Clients of older revisions cannot handle it.
    pub fn primes_streams(self) -> bool {
        self >= Self::V2025_11_25
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The revisions that an endpoint offers. There is at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revisions(Vec<Revision>);

impl Revisions {
    /// Every revision.
    pub fn all() -> Self {
        Self(Revision::ALL.to_vec())
    }

    /// The revisions with sessions.
    pub fn legacy() -> Self {
        Self(Revision::LEGACY.to_vec())
    }

    /// These revisions, in any order. Returns `None` if there are none.
    pub fn new(revisions: impl IntoIterator<Item = Revision>) -> Option<Self> {
        let mut revisions: Vec<Revision> = revisions.into_iter().collect();
        revisions.sort_unstable();
        revisions.dedup();
        (!revisions.is_empty()).then_some(Self(revisions))
    }

    /// The offered revisions, the oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Revision> {
        self.0.iter().copied()
    }

    pub fn offers(&self, revision: Revision) -> bool {
        self.0.contains(&revision)
    }

    /// Returns true if a stateless revision is offered.
    pub fn offers_modern(&self) -> bool {
        self.iter().any(Revision::is_modern)
    }

    /// Returns the revision of a session whose client requests this version in `initialize`: the
    /// requested one if it is offered, and otherwise the newest one with sessions. Returns `None`
    /// if no revision with sessions is offered.
    pub fn negotiate(&self, requested: &str) -> Option<Revision> {
        let mut legacy = self.iter().filter(|revision| !revision.is_modern());
        let requested = Revision::parse(requested).filter(|revision| !revision.is_modern());
        requested.filter(|revision| self.offers(*revision)).or_else(|| legacy.next_back())
    }

    /// The JSON text of a list of the versions.
    pub fn json(&self) -> String {
        let versions: Vec<String> = self.iter().map(|revision| format!("\"{revision}\"")).collect();
        format!("[{}]", versions.join(","))
    }
}

impl Default for Revisions {
    fn default() -> Self {
        Self::all()
    }
}

impl fmt::Display for Revisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let versions: Vec<&str> = self.iter().map(Revision::as_str).collect();
        f.write_str(&versions.join(", "))
    }
}

/// Returns true if a version string names a stateless revision, supported or not. Revisions are ISO
/// dates, so they compare as text.
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
    fn initialize_negotiates_an_offered_revision_with_sessions() {
        let (latest, older) = (Revision::V2025_11_25, Revision::V2025_06_18);
        let offered = |list: &[Revision]| Revisions::new(list.iter().copied()).expect("not empty");
        for (offered, requested, expect) in [
            (Revisions::all(), "2025-03-26", Some(Revision::V2025_03_26)),
            (Revisions::all(), "2025-06-18", Some(older)),
            (Revisions::all(), "2025-11-25", Some(latest)),
            (Revisions::all(), "2026-07-28", Some(latest)),
            (Revisions::all(), "2024-11-05", Some(latest)),
            (Revisions::all(), "banana", Some(latest)),
            (offered(&[Revision::V2026_07_28, older]), "2025-11-25", Some(older)),
            (offered(&[latest, older]), "2025-03-26", Some(latest)),
            (offered(&[Revision::V2026_07_28]), "2025-11-25", None),
        ] {
            assert_eq!(offered.negotiate(requested), expect, "{requested} of {offered}");
        }
        assert_eq!(Revisions::new([]), None);
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
