//! Where a session lives at the server, as it is written down. All processes that serve the session go by it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use steadfast_client::{OpenSession, Revision};
use steadfast_engine::{Bytes, Fence, SessionHandle, StateError};
use steadfast_wire::members::Members;
use steadfast_wire::planted;

use crate::entry;

/// The entry of session state that holds it. Its version changes when a lane sits down elsewhere, and at no other time: that
/// is how a process that sits on a seat of the past finds out.
const KEY: &str = "~seats";

/// Its members have short names, as its entry has: there is one for each session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seats {
    /// The sessions at the server, by lane. One that has not been needed yet is not there.
    pub(crate) lanes: Vec<Option<Seated>>,
    /// What the server can do, as the JSON text of an object.
    #[serde(rename = "can")]
    pub(crate) capabilities: String,
}

/// One session at the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seated {
    /// Which replica.
    #[serde(rename = "at")]
    pub(crate) place: String,
    /// The id that the server gave it, if it gave one.
    pub(crate) id: Option<String>,
    #[serde(rename = "rev")]
    pub(crate) revision: String,
}

impl Seated {
    pub(crate) fn new(place: &str, session: &OpenSession) -> Self {
        let revision = session.revision.as_str().to_owned();
        Self { place: place.to_owned(), id: session.id.clone(), revision }
    }
}

impl Seats {
    /// A session with one lane, as it was opened.
    pub(crate) fn opened(place: &str, session: &OpenSession) -> Self {
        let server = std::str::from_utf8(&session.server).ok().and_then(|text| Members::parse(text).ok());
        let capabilities = server.as_ref().and_then(|server| server.get("capabilities")).unwrap_or("{}");
        let lanes = vec![Some(Seated::new(place, session))];
        Self { lanes, capabilities: capabilities.to_owned() }
    }

    pub(crate) fn seat(&mut self, lane: usize, seated: Seated) {
        if self.lanes.len() <= lane {
            self.lanes.resize(lane + 1, None);
        }
        self.lanes[lane] = Some(seated);
    }

    pub(crate) fn lane(&self, lane: usize) -> Option<&Seated> {
        self.lanes.get(lane)?.as_ref()
    }

    /// The session of a lane, to go on with it.
    pub(crate) fn session(&self, lane: usize) -> Option<(&str, OpenSession)> {
        let seated = self.lane(lane)?;
        let revision = Revision::parse(&seated.revision)?;
        let server = Bytes::from(format!(r#"{{"capabilities":{}}}"#, self.capabilities));
        Some((&seated.place, OpenSession { id: seated.id.clone(), revision, server }))
    }

    /// Whether the server declares this capability, or this member of one.
    pub(crate) fn offers(&self, capability: &str, member: Option<&str>) -> bool {
        let Ok(all) = Members::parse(&self.capabilities) else { return false };
        let Some(found) = all.get(capability) else { return false };
        member.is_none_or(|member| Members::parse(found).is_ok_and(|found| found.get(member) == Some("true")))
    }

    /// What was written down of a session that has ended.
    pub(crate) async fn left_by(session: &SessionHandle) -> Option<Self> {
        entry::left(session, KEY).await
    }

    pub(crate) async fn load(session: &SessionHandle) -> Result<Option<(Self, u64)>, StateError> {
        let loaded = entry::load(session, KEY).await?;
        if planted("borrowed-seat") {
            static LAST: Mutex<Option<(Seats, u64)>> = Mutex::new(None);
            let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
            return Ok(std::mem::replace(&mut *last, loaded.clone()).or(loaded));
        }
        Ok(loaded)
    }

    /// Changes what is written down, like [`entry::change`].
    pub(crate) async fn change(
        session: &SessionHandle,
        change: impl FnMut(&mut Self, Option<u64>) -> bool,
    ) -> Result<Option<u64>, StateError> {
        entry::change(session, KEY, change).await
    }
}

/// Which version of what is written down this process goes by.
#[derive(Debug, Default)]
pub(crate) struct Known(Mutex<Version>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Version {
    no: Option<u64>,
    /// Somebody has written another since.
    is_outdated: bool,
}

/// The right to change seats to what a version says.
#[derive(Debug)]
pub(crate) struct Advance<'a> {
    /// It was not known before.
    pub(crate) is_news: bool,
    _known: MutexGuard<'a, Version>,
}

impl Known {
    /// What calls begin under: nothing begins on a seat of the past.
    pub(crate) fn fence(&self) -> Option<Fence> {
        self.lock().no.map(|version| Fence { key: KEY.into(), version })
    }

    pub(crate) fn is_outdated(&self) -> bool {
        self.lock().is_outdated
    }

    /// This version is one of the past. If another is known already, that was known.
    pub(crate) fn outdate(&self, version: u64) {
        let mut known = self.lock();
        known.is_outdated |= known.no == Some(version);
    }

    /// What this process has done is not written down: it has to look.
    pub(crate) fn suspect(&self) {
        self.lock().is_outdated = true;
    }

    /// Goes by this version from now on: seats are changed to what it says while what this gives is kept. `None` if a newer one
    /// is known.
    pub(crate) fn advance(&self, version: u64) -> Option<Advance<'_>> {
        let mut known = self.lock();
        let is_news = known.no != Some(version) || known.is_outdated;
        if known.no.is_some_and(|no| no > version) {
            return None;
        }
        *known = Version { no: Some(version), is_outdated: false };
        Some(Advance { is_news, _known: known })
    }

    fn lock(&self) -> MutexGuard<'_, Version> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_grows_newer_only() {
        let known = Known::default();
        assert_eq!(known.fence(), None);
        known.outdate(1);
        assert!(!known.is_outdated(), "nothing is known that could be");
        assert!(known.advance(5).is_some() && known.advance(4).is_none());
        assert_eq!(known.fence().map(|fence| fence.version), Some(5));
        known.outdate(4);
        assert!(!known.is_outdated(), "that was known");
        known.outdate(5);
        assert!(known.is_outdated() && known.advance(6).is_some() && !known.is_outdated());
    }
}
