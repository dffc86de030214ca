//! What is written down of what the server was told in a session: if it forgets, it must be told again.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use steadfast_client::Repeat;
use steadfast_engine::{SessionHandle, StateError};
use steadfast_wire::members::Members;
use steadfast_wire::rpc::json_string;

use crate::entry;

/// The entry of session state that holds it. It is not where the session sits: that changes when the session moves, and this
/// whenever a client subscribes.
const KEY: &str = "~told";

/// Resources of one session that are remembered to be subscribed to again.
pub(crate) const MAX_SUBSCRIPTIONS: usize = 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) level: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) subscriptions: BTreeSet<String>,
}

impl Record {
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

    /// Whether the client wants to hear of warnings.
    pub(crate) fn wants_warnings(&self) -> bool {
        !matches!(self.level.as_deref(), Some("error" | "critical" | "alert" | "emergency"))
    }

    pub(crate) async fn load(session: &SessionHandle) -> Result<Option<Self>, StateError> {
        Ok(entry::load(session, KEY).await?.map(|(record, _)| record))
    }

    /// Changes what is written down, like [`entry::change`].
    pub(crate) async fn change(
        session: &SessionHandle,
        mut change: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), StateError> {
        entry::change(session, KEY, |record, _| change(record)).await.map(drop)
    }
}
