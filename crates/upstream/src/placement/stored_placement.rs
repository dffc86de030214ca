//! The placement of a session as it is stored in the session state, and the version of it that this
//! node has applied.

use std::sync::MutexGuard;

use serde::{Deserialize, Serialize};
use steadfast_client::{OpenSession, Revision};
use steadfast_engine::{Fence, SessionHandle, StateError};
use steadfast_wire::{Mutex, raw_json};

use crate::call::parallel_calls::ServerTag;
use crate::session::json_state;

/// The entry of the session state that holds the placement. Its version changes only when a lane
/// gets another upstream session, so a node that uses an outdated upstream session is fenced.
const KEY: &str = "~placement";

/// The stored placement. Its members have short names because each session has one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Placement {
    /// The upstream sessions, by lane. A lane that has not been needed yet has none.
    pub(crate) lanes: Vec<Option<StoredSession>>,
    /// The capabilities of the server, as the JSON text of an object.
    #[serde(rename = "can")]
    pub(crate) capabilities: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredSession {
    #[serde(rename = "at")]
    pub(crate) instance: String,
    /// The session id that the server assigned, if any.
    pub(crate) id: Option<String>,
    #[serde(rename = "rev")]
    pub(crate) revision: String,
    /// Name and version of the server, as the JSON text of an object. Empty in entries of older
    /// releases.
    #[serde(rename = "srv", default, skip_serializing_if = "String::is_empty")]
    server: String,
}

impl StoredSession {
    pub(crate) fn new(instance: &str, session: &OpenSession) -> Self {
        let revision = session.revision.as_str().to_owned();
        let server = ServerTag::of_server(&session.server).as_str().to_owned();
        Self { instance: instance.to_owned(), id: session.id.clone(), revision, server }
    }
}

impl Placement {
    /// Creates a placement with one lane.
    pub(crate) fn from_open_session(instance: &str, session: &OpenSession) -> Self {
        let server = std::str::from_utf8(&session.server).unwrap_or_default();
        let capabilities = raw_json::get(server, &["capabilities"]).unwrap_or("{}");
        let lanes = vec![Some(StoredSession::new(instance, session))];
        Self { lanes, capabilities: capabilities.to_owned() }
    }

    pub(crate) fn set(&mut self, lane: usize, session: StoredSession) {
        if self.lanes.len() <= lane {
            self.lanes.resize(lane + 1, None);
        }
        self.lanes[lane] = Some(session);
    }

    pub(crate) fn lane(&self, lane: usize) -> Option<&StoredSession> {
        self.lanes.get(lane)?.as_ref()
    }

    /// Returns the name of the server instance and the upstream session of a lane, in the form in
    /// which the MCP client resumes it.
    pub(crate) fn session(&self, lane: usize) -> Option<(&str, OpenSession)> {
        let stored = self.lane(lane)?;
        let revision = Revision::parse(&stored.revision)?;
        let info = if stored.server.is_empty() { "{}" } else { &stored.server };
        let server = format!(r#"{{"capabilities":{},"serverInfo":{info}}}"#, self.capabilities).into();
        Some((&stored.instance, OpenSession { id: stored.id.clone(), revision, server }))
    }

    /// Returns true if the server declares this capability, and this member of it if one is given.
    pub(crate) fn offers(&self, capability: &str, member: Option<&str>) -> bool {
        let Some(found) = raw_json::get(&self.capabilities, &[capability]) else { return false };
        member.is_none_or(|member| raw_json::get(found, &[member]) == Some("true"))
    }

    pub(crate) async fn load_after_end(session: &SessionHandle) -> Option<Self> {
        json_state::load_after_end(session, KEY).await
    }

    pub(crate) async fn load(session: &SessionHandle) -> Result<Option<(Self, u64)>, StateError> {
        json_state::load(session, KEY).await
    }

    /// Changes the stored placement. See [`json_state::update`].
    pub(crate) async fn update(
        session: &SessionHandle,
        change: impl FnMut(&mut Self, Option<u64>) -> bool,
    ) -> Result<Option<u64>, StateError> {
        json_state::update(session, KEY, change).await
    }
}

/// The version of the stored placement that this node has applied.
#[derive(Debug, Default)]
pub(crate) struct KnownVersion(Mutex<Version>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Version {
    no: Option<u64>,
    /// Another node has stored a newer version.
    is_outdated: bool,
}

/// The right to change the lanes to what a version of the placement says.
#[derive(Debug)]
pub(crate) struct VersionGuard<'a> {
    /// The version was not known before.
    pub(crate) is_new_version: bool,
    _known: MutexGuard<'a, Version>,
}

impl KnownVersion {
    /// Returns the fence for calls: no call begins in an outdated upstream session.
    pub(crate) fn fence(&self) -> Option<Fence> {
        self.0.lock().no.map(|version| Fence { key: KEY.into(), version })
    }

    pub(crate) fn is_outdated(&self) -> bool {
        self.0.lock().is_outdated
    }

    /// Records that this version is outdated. Ignored if this node has applied another version
    /// since.
    pub(crate) fn mark_outdated(&self, version: u64) {
        let mut known = self.0.lock();
        known.is_outdated |= known.no == Some(version);
    }

    /// Records that this node has changed its lanes and could not store that. It must read the
    /// placement.
    pub(crate) fn mark_unknown(&self) {
        self.0.lock().is_outdated = true;
    }

    /// Sets the version. The caller changes the lanes while it holds the returned guard. Returns
    /// `None` if a newer version has been applied already.
    pub(crate) fn advance(&self, version: u64) -> Option<VersionGuard<'_>> {
        let mut known = self.0.lock();
        let is_new_version = known.no != Some(version) || known.is_outdated;
        if known.no.is_some_and(|no| no > version) {
            return None;
        }
        *known = Version { no: Some(version), is_outdated: false };
        Some(VersionGuard { is_new_version, _known: known })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_newer_version_is_applied() {
        let known = KnownVersion::default();
        assert_eq!(known.fence(), None);
        known.mark_outdated(1);
        assert!(!known.is_outdated(), "no version is known");
        assert!(known.advance(5).is_some() && known.advance(4).is_none());
        assert_eq!(known.fence().map(|fence| fence.version), Some(5));
        known.mark_outdated(4);
        assert!(!known.is_outdated(), "that was known already");
        known.mark_outdated(5);
        assert!(known.is_outdated() && known.advance(6).is_some() && !known.is_outdated());
    }
}
