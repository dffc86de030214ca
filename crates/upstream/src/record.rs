//! What is written down of a session: where it lives at the server, and what the server must be told if it forgets.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use steadfast_client::{OpenSession, Repeat, Revision};
use steadfast_engine::{Bytes, SessionHandle, StateError};
use steadfast_wire::members::Members;
use steadfast_wire::rpc::json_string;

/// The entry of session state that holds it.
const KEY: &str = "steadfast/upstream";

/// How often a write is tried when others write as well.
const ATTEMPTS: usize = 16;

/// Resources of one session that are remembered to be subscribed to again.
pub(crate) const MAX_SUBSCRIPTIONS: usize = 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The sessions at the server, by lane. One that has not been needed yet is not there.
    pub(crate) lanes: Vec<Option<Seated>>,
    /// What the server can do, as the JSON text of an object.
    pub(crate) capabilities: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) level: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) subscriptions: BTreeSet<String>,
}

/// One session at the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seated {
    /// Which replica.
    pub(crate) place: String,
    /// The id that the server gave it, if it gave one.
    pub(crate) id: Option<String>,
    pub(crate) revision: String,
}

impl Seated {
    pub(crate) fn new(place: &str, session: &OpenSession) -> Self {
        let revision = session.revision.as_str().to_owned();
        Self { place: place.to_owned(), id: session.id.clone(), revision }
    }
}

impl Record {
    /// A session with one lane, as it was opened.
    pub(crate) fn opened(place: &str, session: &OpenSession) -> Self {
        let server = std::str::from_utf8(&session.server).ok().and_then(|text| Members::parse(text).ok());
        let capabilities = server.as_ref().and_then(|server| server.get("capabilities")).unwrap_or("{}");
        let lanes = vec![Some(Seated::new(place, session))];
        Self { lanes, capabilities: capabilities.to_owned(), ..Self::default() }
    }

    pub(crate) fn seat(&mut self, lane: usize, seated: Seated) {
        if self.lanes.len() <= lane {
            self.lanes.resize(lane + 1, None);
        }
        self.lanes[lane] = Some(seated);
    }

    /// The session of a lane, to go on with it.
    pub(crate) fn session(&self, lane: usize) -> Option<(&str, OpenSession)> {
        let seated = self.lanes.get(lane)?.as_ref()?;
        let revision = Revision::parse(&seated.revision)?;
        let server = Bytes::from(format!(r#"{{"capabilities":{}}}"#, self.capabilities));
        Some((&seated.place, OpenSession { id: seated.id.clone(), revision, server }))
    }

    /// What a server that has forgotten the session must be told.
    pub(crate) fn repeats(&self) -> Vec<Repeat> {
        let repeat = |method: &str, member: &str, value: &str| Repeat {
            method: method.to_owned(),
            params: Some(format!(r#"{{"{member}":{}}}"#, json_string(value))),
        };
        let level = self.level.iter().map(|level| repeat("logging/setLevel", "level", level));
        let subscriptions = self.subscriptions.iter().map(|uri| repeat("resources/subscribe", "uri", uri));
        level.chain(subscriptions).collect()
    }

    /// Notes what a call that the server has answered changes. Gives whether it does.
    pub(crate) fn note(&mut self, method: &str, params: &str) -> bool {
        let text = |member| Members::parse(params).ok().and_then(|params| params.text(member));
        match method {
            "logging/setLevel" => {
                text("level").is_some_and(|level| self.level.replace(level.clone()) != Some(level))
            }
            "resources/subscribe" if self.subscriptions.len() < MAX_SUBSCRIPTIONS => {
                text("uri").is_some_and(|uri| self.subscriptions.insert(uri))
            }
            "resources/unsubscribe" => text("uri").is_some_and(|uri| self.subscriptions.remove(&uri)),
            _ => false,
        }
    }

    /// Whether the server declares this capability, or this member of one.
    pub(crate) fn offers(&self, capability: &str, member: Option<&str>) -> bool {
        let Ok(all) = Members::parse(&self.capabilities) else { return false };
        let Some(found) = all.get(capability) else { return false };
        member.is_none_or(|member| Members::parse(found).is_ok_and(|found| found.get(member) == Some("true")))
    }

    /// Whether the client wants to hear of warnings.
    pub(crate) fn wants_warnings(&self) -> bool {
        !matches!(self.level.as_deref(), Some("error" | "critical" | "alert" | "emergency"))
    }

    /// What was written down of a session that has ended.
    pub(crate) async fn left_by(session: &SessionHandle) -> Option<Self> {
        let value = session.left(KEY).await.ok().flatten()?;
        serde_json::from_slice(&value.bytes).ok()
    }

    pub(crate) async fn load(session: &SessionHandle) -> Result<Option<Self>, StateError> {
        let value = session.get(KEY).await?;
        // One that cannot be read was written by a future version: its session is opened anew at the server.
        Ok(value.and_then(|value| serde_json::from_slice(&value.bytes).ok()))
    }

    /// Changes what is written down. `change` is made on what is there, and says whether anything is different.
    pub(crate) async fn change(
        session: &SessionHandle,
        mut change: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), StateError> {
        let mut current = session.get(KEY).await?;
        let mut attempts = 0;
        loop {
            let version = current.as_ref().map(|value| value.version);
            let old = current.take().and_then(|value| serde_json::from_slice(&value.bytes).ok());
            let mut record: Self = old.unwrap_or_default();
            if !change(&mut record) {
                return Ok(());
            }
            // Strings, lists and options always serialise.
            let text = serde_json::to_vec(&record).unwrap_or_default();
            attempts += 1;
            match session.put(KEY, version, Some(text.into())).await {
                Err(StateError::Conflict { current: theirs }) if attempts < ATTEMPTS => current = theirs,
                outcome => return outcome.map(drop),
            }
        }
    }
}
