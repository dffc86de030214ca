//! `server/discover` of endpoints that decline revisions.
//!
//! A client that prefers a stateless revision opens with this request. An endpoint that has only
//! sessions answers with a result that lists revisions with sessions, and not with an error:
//! clients fall back to `initialize` after such a result, but some stop after an error.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::revision::names_modern;
use crate::{Revision, Revisions};

/// The request with which a client of a stateless revision asks what a server offers.
pub const METHOD: &str = "server/discover";

/// Returns the JSON text of the result that offers these revisions. It has no capabilities: those
/// of a session are in the answer to `initialize`. Clients must not cache it, because the server
/// may be upgraded.
pub fn result(revisions: &Revisions) -> String {
    let versions = revisions.json();
    format!(
        r#"{{"resultType":"complete","supportedVersions":{versions},"capabilities":{{}},"ttlMs":0,"cacheScope":"private"}}"#
    )
}

/// Removes the revisions that an endpoint does not offer from the result of its server. Returns
/// `None` if the result is not an object with a list of versions.
pub fn restrict(result: &[u8], offered: &Revisions) -> Option<String> {
    let mut result: Map<String, Value> = serde_json::from_slice(result).ok()?;
    let Some(Value::Array(versions)) = result.get_mut("supportedVersions") else { return None };
    let is_offered =
        |version: &str| Revision::parse(version).is_some_and(|revision| offered.offers(revision));
    versions.retain(|version| version.as_str().is_some_and(is_offered));
    serde_json::to_string(&result).ok()
}

/// Returns true if a result lists versions, and all of them have sessions.
pub fn lists_only_sessions(result: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Discovered {
        #[serde(rename = "supportedVersions")]
        versions: Vec<String>,
    }
    let discovered = serde_json::from_slice::<Discovered>(result);
    discovered.is_ok_and(|result| !result.versions.iter().any(|version| names_modern(version)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_lists_only_offered_revisions() {
        let offered = Revisions::new([Revision::V2026_07_28, Revision::V2025_06_18]).expect("not empty");
        let listed = r#"{"capabilities":{"tools":{}},"supportedVersions":["2025-06-18","2026-07-28"]}"#;
        let all = r#"{"capabilities":{"tools":{}},"supportedVersions":["2025-06-18","2025-11-25","2026-07-28","2027-01-01"]}"#;
        for (result, expect) in [(all, Some(listed)), ("{}", None), ("[]", None)] {
            assert_eq!(restrict(result.as_bytes(), &offered).as_deref(), expect, "{result}");
        }
    }
}
