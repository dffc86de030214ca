//! [`TaskRecord`]: the state of a task as the store holds it, and its transitions. No I/O.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use steadfast_engine::Time;

use super::timestamp::timestamp;

/// The state of one task. A record that has an end never changes again.
///
/// Stored as JSON: the names of fields and variants are part of the stored format.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct TaskRecord {
    created_at: u64,
    updated_at: u64,
    /// For how long after its creation the store keeps the task at least.
    ttl_ms: u64,
    poll_interval_ms: Option<u64>,
    status_message: Option<String>,
    /// All input requests of the task, also the completed ones, so that no key is used twice.
    #[serde(rename = "questions")]
    input_requests: BTreeMap<String, InputRequestState>,
    end: Option<End>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum InputRequestState {
    /// Waits for the client. Holds the request.
    Open(Value),
    /// The client has answered, and the work has not read the answer.
    Answered(Value),
    /// The work has read the answer.
    Done,
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum End {
    /// Holds the result of the tool.
    Completed(Value),
    /// Holds the JSON-RPC error.
    Failed(Value),
    Cancelled,
}

/// Result of looking for the answer to an input request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum InputReply {
    Answer(Value),
    Pending,
    /// There will be no answer: the task has ended, the answer was read before, or there is no such
    /// request.
    None,
}

impl TaskRecord {
    pub(super) fn new(
        now: Time,
        ttl_ms: u64,
        poll_interval_ms: Option<u64>,
        message: Option<String>,
    ) -> Self {
        Self {
            created_at: now.0,
            updated_at: now.0,
            ttl_ms,
            poll_interval_ms,
            status_message: message,
            ..Self::default()
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.end.is_some()
    }

    /// Returns the status as the protocol names it.
    pub(super) fn status(&self) -> &'static str {
        let has_open_request =
            || self.input_requests.values().any(|state| matches!(state, InputRequestState::Open(_)));
        match &self.end {
            Some(End::Completed(_)) => "completed",
            Some(End::Failed(_)) => "failed",
            Some(End::Cancelled) => "cancelled",
            None if has_open_request() => "input_required",
            None => "working",
        }
    }

    /// Adds an input request. Returns `false` if the task has ended or the key was used before.
    pub(super) fn add_input_request(&mut self, key: &str, request: Value, now: Time) -> bool {
        if self.is_over() || self.input_requests.contains_key(key) {
            return false;
        }
        self.input_requests.insert(key.to_owned(), InputRequestState::Open(request));
        self.updated_at = now.0;
        true
    }

    /// Adds the client's answers. Ignores keys without an open request, and every answer once the
    /// task has ended.
    pub(super) fn add_answers(&mut self, answers: &BTreeMap<String, Value>, now: Time) {
        if self.is_over() {
            return;
        }
        for (key, answer) in answers {
            if let Some(request @ InputRequestState::Open(_)) = self.input_requests.get_mut(key) {
                *request = InputRequestState::Answered(answer.clone());
                self.updated_at = now.0;
            }
        }
    }

    /// Returns the answer to an input request and marks it as read.
    pub(super) fn take_answer(&mut self, key: &str) -> InputReply {
        if self.is_over() {
            return InputReply::None;
        }
        match self.input_requests.get_mut(key) {
            Some(request @ InputRequestState::Answered(_)) => {
                match std::mem::replace(request, InputRequestState::Done) {
                    InputRequestState::Answered(answer) => InputReply::Answer(answer),
                    InputRequestState::Open(_) | InputRequestState::Done => InputReply::None,
                }
            }
            Some(InputRequestState::Open(_)) => InputReply::Pending,
            Some(InputRequestState::Done) | None => InputReply::None,
        }
    }

    /// Sets the status message, unless the task has ended.
    pub(super) fn set_status_message(&mut self, message: &str, now: Time) {
        if !self.is_over() {
            self.status_message = Some(message.to_owned());
            self.updated_at = now.0;
        }
    }

    /// Ends the task, unless it has already ended.
    pub(super) fn end(&mut self, end: End, now: Time) {
        if !self.is_over() {
            self.end = Some(end);
            self.updated_at = now.0;
        }
    }

    /// Returns the task as JSON, without the members that depend on its status.
    pub(super) fn to_json(&self, id: &str) -> Map<String, Value> {
        let mut members = Map::new();
        let mut put = |name: &str, value: Value| drop(members.insert(name.to_owned(), value));
        put("taskId", id.into());
        put("status", self.status().into());
        put("createdAt", timestamp(Time(self.created_at)).into());
        put("lastUpdatedAt", timestamp(Time(self.updated_at)).into());
        put("ttlMs", self.ttl_ms.into());
        if let Some(interval) = self.poll_interval_ms {
            put("pollIntervalMs", interval.into());
        }
        if let Some(message) = &self.status_message {
            put("statusMessage", message.as_str().into());
        }
        members
    }

    /// Returns the task as JSON, with its open input requests, its result or its error.
    pub(super) fn to_detailed_json(&self, id: &str) -> Map<String, Value> {
        let mut members = self.to_json(id);
        let (name, value) = match &self.end {
            Some(End::Completed(result)) => ("result", result.clone()),
            Some(End::Failed(error)) => ("error", error.clone()),
            Some(End::Cancelled) => return members,
            None => {
                let open: Map<String, Value> = self
                    .input_requests
                    .iter()
                    .filter_map(|(key, state)| match state {
                        InputRequestState::Open(request) => Some((key.clone(), request.clone())),
                        InputRequestState::Answered(_) | InputRequestState::Done => None,
                    })
                    .collect();
                if open.is_empty() {
                    return members;
                }
                ("inputRequests", json!(open))
            }
        };
        members.insert(name.to_owned(), value);
        members
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(keys: &[&str]) -> BTreeMap<String, Value> {
        keys.iter().map(|key| ((*key).to_owned(), json!({ "from": key }))).collect()
    }

    #[test]
    fn an_answer_is_returned_once() {
        let mut record = TaskRecord::new(Time(1), 10, None, None);
        assert_eq!(record.status(), "working");
        assert!(record.add_input_request("a", json!({ "method": "x" }), Time(2)));
        assert!(record.add_input_request("b", json!({ "method": "y" }), Time(2)));
        assert!(!record.add_input_request("a", json!({}), Time(2)), "a key is used once");
        assert_eq!(record.status(), "input_required");
        record.add_answers(&answers(&["a", "unknown"]), Time(3));
        assert_eq!(record.status(), "input_required");
        assert_eq!(record.to_detailed_json("t")["inputRequests"], json!({ "b": { "method": "y" } }));
        assert_eq!(record.take_answer("b"), InputReply::Pending);
        assert_eq!(record.take_answer("a"), InputReply::Answer(json!({ "from": "a" })));
        assert_eq!(record.take_answer("a"), InputReply::None);
        record.add_answers(&answers(&["a"]), Time(4));
        assert_eq!(record.take_answer("a"), InputReply::None, "an answer is returned once");
        assert!(!record.add_input_request("a", json!({}), Time(5)));
    }

    #[test]
    fn an_ended_task_does_not_change() {
        for (end, status, member) in [
            (End::Completed(json!({})), "completed", Some("result")),
            (End::Failed(json!({})), "failed", Some("error")),
            (End::Cancelled, "cancelled", None),
        ] {
            let mut record = TaskRecord::new(Time(1), 10, Some(5), Some("hello".into()));
            record.add_input_request("a", json!({}), Time(2));
            record.end(end, Time(3));
            let ended = record.clone();
            record.end(End::Completed(json!({ "late": true })), Time(4));
            record.end(End::Cancelled, Time(4));
            record.set_status_message("late", Time(4));
            record.add_answers(&answers(&["a"]), Time(4));
            assert!(!record.add_input_request("b", json!({}), Time(4)));
            assert_eq!(record.take_answer("a"), InputReply::None);
            assert_eq!(record, ended);
            let shown = record.to_detailed_json("t");
            assert_eq!(shown["status"], status);
            for name in ["result", "error", "inputRequests"] {
                assert_eq!(shown.contains_key(name), member == Some(name), "{status} {name}");
            }
        }
    }
}
