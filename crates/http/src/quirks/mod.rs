//! Quirks: known deviations of real clients from the specification, and what an endpoint does about
//! them. [`TABLE`] has a row for each client and deviation.
//!
//! A quirk changes the form of an answer. It never changes who may read what: a client chooses its
//! own name, so a name proves nothing. Clients that are not in the table get the behaviour of the
//! specification.

mod table;

use std::cmp::Ordering;

use http::Response;
use steadfast_engine::Facts;
use steadfast_wire::params::{ClientInfo, client_info};

use crate::response::body::ResponseBody;

pub use table::TABLE;

/// Whether the quirks of the table apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Quirks {
    #[default]
    Apply,
    /// Every client gets the behaviour of the specification.
    Ignore,
}

impl Quirks {
    /// Returns the quirk with this effect of the client of a session.
    pub(crate) fn in_session(self, effect: Effect, session: &Facts) -> Option<&'static Quirk> {
        let client = std::str::from_utf8(&session.initialize).map(client_info).unwrap_or_default();
        self.of(&client, Agent::Named).find(|quirk| quirk.effect == effect)
    }

    /// Returns every quirk of a client.
    pub(crate) fn of(self, client: &ClientInfo<'_>, agent: Agent) -> impl Iterator<Item = &'static Quirk> {
        let rows = if self == Self::Apply { TABLE } else { &[] };
        rows.iter().filter(move |quirk| quirk.is_of(client, agent))
    }
}

/// A known deviation of a client.
#[derive(Debug)]
pub struct Quirk {
    pub effect: Effect,
    /// What people call the client.
    pub client: &'static str,
    /// How the endpoint recognises it.
    pub sign: Sign,
    /// The versions that deviate.
    pub versions: Versions,
    /// What the client does.
    pub behaviour: &'static str,
    /// A link, or how it was measured.
    pub evidence: &'static str,
}

/// What an endpoint does about a quirk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// A request whose id is in flight is served separately.
    IsolateDuplicateIds,
    /// A request that is refused for load or a fault of the endpoint gets its JSON-RPC error with
    /// status 200.
    RefuseInBand,
    /// An endpoint without stateless revisions does not know `server/discover`.
    DiscoverNotFound,
}

impl Effect {
    pub const ALL: [Self; 3] = [Self::IsolateDuplicateIds, Self::RefuseInBand, Self::DiscoverNotFound];

    /// The name in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::IsolateDuplicateIds => "isolate_duplicate_ids",
            Self::RefuseInBand => "refuse_in_band",
            Self::DiscoverNotFound => "discover_not_found",
        }
    }

    /// What the endpoint does, for people.
    pub const fn description(self) -> &'static str {
        match self {
            Self::IsolateDuplicateIds => {
                "Requests with one id are served separately. Other clients get 400 for the second."
            }
            Self::RefuseInBand => {
                "A request that would be refused with 429, 500 or 503 gets status 200 and a JSON-RPC error with \
                 `data.retryable`. A late answer to a server request gets 202 instead of 400."
            }
            Self::DiscoverNotFound => {
                "If only revisions with sessions are offered, `server/discover` gets 404 and -32601. Other clients \
                 get a result that lists these revisions."
            }
        }
    }
}

/// How a client is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// `clientInfo.name` is one of these. A trailing `*` stands for any characters.
    Names(&'static [&'static str]),
    /// The request has no `User-Agent`. For libraries whose programs choose their own names.
    NoUserAgent,
}

/// Whether a request has a `User-Agent` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Agent {
    Named,
    Unnamed,
}

impl Agent {
    pub(crate) fn of(parts: &http::request::Parts) -> Self {
        if parts.headers.contains_key(http::header::USER_AGENT) { Self::Named } else { Self::Unnamed }
    }
}

/// A range of versions. `clientInfo.version` is compared number by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The first version of the range.
    pub from: Option<&'static str>,
    /// The first version after the range.
    pub before: Option<&'static str>,
}

impl Versions {
    pub const ALL: Self = Self { from: None, before: None };

    fn contain(self, version: &str) -> bool {
        self.from.is_none_or(|from| compare(version, from) != Ordering::Less)
            && self.before.is_none_or(|before| compare(version, before) == Ordering::Less)
    }
}

impl Quirk {
    fn is_of(&self, client: &ClientInfo<'_>, agent: Agent) -> bool {
        let is_recognised = match self.sign {
            Sign::Names(names) => names.iter().any(|name| matches_name(&client.name, name)),
            Sign::NoUserAgent => agent == Agent::Unnamed,
        };
        is_recognised && self.versions.contain(&client.version)
    }

    /// Notes in the response that this quirk has changed it.
    pub(crate) fn mark(&self, mut response: Response<ResponseBody>) -> Response<ResponseBody> {
        response.extensions_mut().insert(AppliedQuirk { effect: self.effect });
        response
    }
}

/// The endpoint puts this into the extensions of a response that a quirk has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppliedQuirk {
    pub effect: Effect,
}

fn matches_name(name: &str, pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}

/// Compares the numbers of two versions. Everything after the numbers is ignored, and a missing
/// number is 0.
fn compare(one: &str, other: &str) -> Ordering {
    let (one, other) = (numbers(one), numbers(other));
    (0..one.len().max(other.len()))
        .map(|at| one.get(at).unwrap_or(&0).cmp(other.get(at).unwrap_or(&0)))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

/// How many numbers of a version are compared.
const MAX_NUMBERS: usize = 4;

fn numbers(version: &str) -> Vec<u64> {
    let version = version.trim_start_matches('v');
    let end = version.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(version.len());
    version[..end].split('.').take(MAX_NUMBERS).map_while(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests;
