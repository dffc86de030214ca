//! Replay state: session settings that the server knows, the log level and the subscriptions. The
//! gateway sends them again after the server has lost the session.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use steadfast_client::ReplayRequest;
use steadfast_engine::{SessionHandle, StateError};
use steadfast_wire::raw_json;
use steadfast_wire::rpc::json_string;

use crate::session::json_state;

/// The entry of the session state that holds the replay state. Separate from the placement: the
/// placement changes when a session moves, the replay state whenever the client subscribes.
const KEY: &str = "~replay";

/// How many subscriptions of one session are kept.
pub(crate) const MAX_SUBSCRIPTIONS: usize = 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReplayState {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) level: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) subscriptions: BTreeSet<String>,
}

impl ReplayState {
    /// Returns the requests that a server that has lost the session must get.
    pub(crate) fn repeats(&self) -> Vec<ReplayRequest> {
        let repeat = |method: &str, member: &str, value: &str| ReplayRequest {
            method: method.to_owned(),
            params: Some(format!(r#"{{"{member}":{}}}"#, json_string(value))),
        };
        let level = self.level.iter().map(|level| repeat("logging/setLevel", "level", level));
        let subscriptions = self.subscriptions.iter().map(|uri| repeat("resources/subscribe", "uri", uri));
        level.chain(subscriptions).collect()
    }

    /// Applies a request that the server has answered. Returns true if it changed the replay state.
    pub(crate) fn apply(&mut self, method: &str, params: &str) -> bool {
        let text = |member| raw_json::get_string(params, &[member]);
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

    /// Returns true if the client's log level includes warnings.
    pub(crate) fn wants_warnings(&self) -> bool {
        !matches!(self.level.as_deref(), Some("error" | "critical" | "alert" | "emergency"))
    }

    pub(crate) async fn load(session: &SessionHandle) -> Result<Option<Self>, StateError> {
        Ok(json_state::load(session, KEY).await?.map(|(replay_state, _)| replay_state))
    }

    /// Changes the stored replay state. See [`json_state::update`].
    pub(crate) async fn update(
        session: &SessionHandle,
        mut change: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), StateError> {
        json_state::update(session, KEY, |replay_state, _| change(replay_state)).await.map(drop)
    }
}
