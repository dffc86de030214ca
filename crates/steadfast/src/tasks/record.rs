//! What is kept of a task, and how it changes. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use steadfast_engine::Time;

use super::time::timestamp;

/// The state of one task. Once it has an end it never changes again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    created_at: u64,
    updated_at: u64,
    /// How long it is kept at least, from its creation on.
    ttl_ms: u64,
    poll_interval_ms: Option<u64>,
    status_message: Option<String>,
    /// Every question ever put, so that no key is used twice.
    questions: BTreeMap<String, Question>,
    end: Option<End>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Question {
    /// Put to the client.
    Open(Value),
    /// Answered, and not yet taken by the work.
    Answered(Value),
    Done,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum End {
    Completed(Value),
    /// With a JSON-RPC error.
    Failed(Value),
    Cancelled,
}

/// What has come of a question.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    Given(Value),
    NotYet,
    /// The task has ended, or the question was never put.
    Never,
}

impl Record {
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

    pub(super) fn status(&self) -> &'static str {
        let waits = || self.questions.values().any(|question| matches!(question, Question::Open(_)));
        match &self.end {
            Some(End::Completed(_)) => "completed",
            Some(End::Failed(_)) => "failed",
            Some(End::Cancelled) => "cancelled",
            None if waits() => "input_required",
            None => "working",
        }
    }

    /// Puts a question. `false` if the task is over or the key was used before.
    pub(super) fn ask(&mut self, key: &str, request: Value, now: Time) -> bool {
        if self.is_over() || self.questions.contains_key(key) {
            return false;
        }
        self.questions.insert(key.to_owned(), Question::Open(request));
        self.updated_at = now.0;
        true
    }

    /// Takes the client's answers. Keys that are not open are ignored.
    pub(super) fn answer(&mut self, answers: &BTreeMap<String, Value>, now: Time) {
        if self.is_over() {
            return;
        }
        for (key, answer) in answers {
            if let Some(question @ Question::Open(_)) = self.questions.get_mut(key) {
                *question = Question::Answered(answer.clone());
                self.updated_at = now.0;
            }
        }
    }

    /// Takes an answer out, once.
    pub(super) fn take(&mut self, key: &str) -> Reply {
        if self.is_over() {
            return Reply::Never;
        }
        match self.questions.get_mut(key) {
            Some(question @ Question::Answered(_)) => match std::mem::replace(question, Question::Done) {
                Question::Answered(answer) => Reply::Given(answer),
                Question::Open(_) | Question::Done => Reply::Never,
            },
            Some(Question::Open(_)) => Reply::NotYet,
            Some(Question::Done) | None => Reply::Never,
        }
    }

    pub(super) fn say(&mut self, message: &str, now: Time) {
        if !self.is_over() {
            self.status_message = Some(message.to_owned());
            self.updated_at = now.0;
        }
    }

    /// Ends the task, unless it has ended.
    pub(super) fn end(&mut self, end: End, now: Time) {
        if !self.is_over() {
            self.end = Some(end);
            self.updated_at = now.0;
        }
    }

    /// The members that every form of a task has.
    pub(super) fn members(&self, id: &str) -> Map<String, Value> {
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

    /// The task with all that belongs to its status.
    pub(super) fn detailed(&self, id: &str) -> Map<String, Value> {
        let mut members = self.members(id);
        let (name, value) = match &self.end {
            Some(End::Completed(result)) => ("result", result.clone()),
            Some(End::Failed(error)) => ("error", error.clone()),
            Some(End::Cancelled) => return members,
            None => {
                let open: Map<String, Value> = self
                    .questions
                    .iter()
                    .filter_map(|(key, question)| match question {
                        Question::Open(request) => Some((key.clone(), request.clone())),
                        Question::Answered(_) | Question::Done => None,
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
    fn a_question_is_asked_answered_and_taken_once() {
        let mut record = Record::new(Time(1), 10, None, None);
        assert_eq!(record.status(), "working");
        assert!(record.ask("a", json!({ "method": "x" }), Time(2)));
        assert!(record.ask("b", json!({ "method": "y" }), Time(2)));
        assert!(!record.ask("a", json!({}), Time(2)), "a key is used once");
        assert_eq!(record.status(), "input_required");
        record.answer(&answers(&["a", "unknown"]), Time(3));
        assert_eq!(record.status(), "input_required");
        assert_eq!(record.detailed("t")["inputRequests"], json!({ "b": { "method": "y" } }));
        assert_eq!(record.take("b"), Reply::NotYet);
        assert_eq!(record.take("a"), Reply::Given(json!({ "from": "a" })));
        assert_eq!(record.take("a"), Reply::Never);
        record.answer(&answers(&["a"]), Time(4));
        assert_eq!(record.take("a"), Reply::Never, "an answer that was taken is not given again");
        assert!(!record.ask("a", json!({}), Time(5)));
    }

    #[test]
    fn the_end_is_the_end() {
        for (end, status, member) in [
            (End::Completed(json!({})), "completed", Some("result")),
            (End::Failed(json!({})), "failed", Some("error")),
            (End::Cancelled, "cancelled", None),
        ] {
            let mut record = Record::new(Time(1), 10, Some(5), Some("hello".into()));
            record.ask("a", json!({}), Time(2));
            record.end(end, Time(3));
            let ended = record.clone();
            record.end(End::Completed(json!({ "late": true })), Time(4));
            record.end(End::Cancelled, Time(4));
            record.say("late", Time(4));
            record.answer(&answers(&["a"]), Time(4));
            assert!(!record.ask("b", json!({}), Time(4)));
            assert_eq!(record.take("a"), Reply::Never);
            assert_eq!(record, ended);
            let shown = record.detailed("t");
            assert_eq!(shown["status"], status);
            for name in ["result", "error", "inputRequests"] {
                assert_eq!(shown.contains_key(name), member == Some(name), "{status} {name}");
            }
        }
    }
}
