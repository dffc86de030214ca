//! [`StoredTask`]: reads, changes and watches the record of a task in the store.

use std::future::Future;
use std::sync::Arc;

use rmcp::model::{CreateTaskResult, Task, TaskStatus};
use serde_json::{Map, Value, json};
use steadfast_engine::{Answer, Change, SessionHandle, SessionId, SessionToken, Time};
use steadfast_wire::Reason;
use steadfast_wire::rpc::ErrorObject;
use tokio::sync::Notify;

use super::TaskError;
use super::record::{End, InputReply, TaskRecord};
use crate::session::{Session, StateError};

/// The entry of the job's session state that holds the record.
const KEY: &str = "task";

/// A handle to the record of one task.
#[derive(Clone, Debug)]
pub(super) struct StoredTask {
    session: SessionHandle,
    token: SessionToken,
    /// Notified when this node changes the record.
    changed: Arc<Notify>,
}

impl StoredTask {
    pub(super) fn new(session: SessionHandle, token: SessionToken) -> Self {
        let changed = session.cached(|_| Notify::new());
        Self { session, token, changed }
    }

    /// Returns the id by which the client refers to the task.
    pub(super) fn id(&self) -> String {
        self.token.expose()
    }

    pub(super) fn session_id(&self) -> SessionId {
        self.session.facts().id
    }

    pub(super) fn now(&self) -> Time {
        self.session.engine().now()
    }

    pub(super) async fn create(&self, record: &TaskRecord) -> Result<(), StateError> {
        self.state().put(KEY, None, record).await.map(drop)
    }

    pub(super) async fn read(&self) -> Result<Option<TaskRecord>, StateError> {
        Ok(self.state().get::<TaskRecord>(KEY).await?.map(|(record, _)| record))
    }

    /// Changes the record atomically, then notifies subscribed clients and waiters on this node.
    pub(super) async fn change<R>(
        &self,
        mut change: impl FnMut(&mut TaskRecord) -> R,
    ) -> Result<R, TaskError> {
        let mut shown = Map::new();
        let id = self.id();
        let result = self
            .state()
            .update(KEY, |record: &mut TaskRecord| {
                let result = change(record);
                shown = record.to_detailed_json(&id);
                result
            })
            .await?;
        let text = Value::Object(shown).to_string();
        // The members of the object, without its braces: the notification has others beside them.
        let task = text[1..text.len() - 1].to_owned();
        self.session.engine().publish(&Change::Task { id, task });
        self.changed.notify_waiters();
        Ok(result)
    }

    /// Returns the answer to an input request and marks it as read, if there is one.
    pub(super) async fn take_answer(&self, key: &str) -> Result<InputReply, TaskError> {
        match self.read().await?.map(|mut record| record.take_answer(key)) {
            Some(InputReply::Answer(_)) => self.change(|record| record.take_answer(key)).await,
            Some(reply) => Ok(reply),
            None => Ok(InputReply::None),
        }
    }

    /// Returns a future that is ready when the record may have changed since this call: after a
    /// change on this node, or after the store's poll interval, because other nodes may change the
    /// record too.
    pub(super) fn changed(&self) -> impl Future<Output = ()> + Send {
        // It receives notifications from its creation on, so a caller that creates it before it
        // reads the record misses none.
        let changed = Arc::clone(&self.changed).notified_owned();
        let poll = self.session.engine().store().poll_interval();
        async move {
            match poll {
                Some(interval) => drop(tokio::time::timeout(interval, changed).await),
                None => changed.await,
            }
        }
    }

    /// Returns when the record has an end or is gone.
    pub(super) async fn ended(&self) {
        loop {
            let changed = self.changed();
            match self.read().await {
                Ok(Some(record)) if !record.is_over() => {}
                Ok(_) => return,
                // The next iteration tries again.
                Err(error) => tracing::debug!(%error, "could not read the record of a task; will retry"),
            }
            changed.await;
        }
    }

    /// Ends the record with the result of the work; `None` means that the work was dropped.
    pub(super) async fn settle(&self, result: Option<Answer>) {
        let end = match result {
            Some(Ok(result)) => match serde_json::from_slice(&result) {
                Ok(result) => End::Completed(result),
                Err(_) => failed(&Reason::BadTaskResult.error("The result is not JSON.")),
            },
            Some(Err(error)) => failed(&error),
            None => failed(
                &Reason::TaskStopped
                    .error("The task was stopped before it was done. Whether it took effect is not known."),
            ),
        };
        match self.end(end).await {
            Err(TaskError::Record(StateError::Full)) => {
                let error = Reason::BadTaskResult
                    .error("The result is larger than what a task may hold (limit `state_bytes`).");
                let _ = self.end(failed(&error)).await;
            }
            Err(error) => tracing::error!(%error, "could not record the result of a task"),
            Ok(()) => {}
        }
    }

    /// Ends the record; retries while the store fails.
    async fn end(&self, end: End) -> Result<(), TaskError> {
        let now = self.now();
        let ended = self.session.engine().with_retry(|| async {
            match self.change(|record| record.end(end.clone(), now)).await {
                Err(TaskError::Record(StateError::Store(error))) => Err(error),
                ended => Ok(ended),
            }
        });
        ended.await.map_err(StateError::Store)?
    }

    /// Returns the result that tells the client about the new task.
    pub(super) fn created(&self, record: &TaskRecord) -> CreateTaskResult {
        let members = record.to_json(&self.id());
        let text = |name: &str| members[name].as_str().unwrap_or_default().to_owned();
        let mut task = Task::new(self.id(), TaskStatus::Working, text("createdAt"), text("lastUpdatedAt"));
        task.ttl_ms = members["ttlMs"].as_u64();
        task.poll_interval_ms = members.get("pollIntervalMs").and_then(Value::as_u64);
        task.status_message = members.get("statusMessage").and_then(Value::as_str).map(str::to_owned);
        CreateTaskResult::new(task)
    }

    fn state(&self) -> Session {
        Session::new(self.session.clone())
    }
}

pub(super) fn failed(error: &ErrorObject) -> End {
    let mut members = Map::new();
    members.insert("code".to_owned(), json!(error.code));
    members.insert("message".to_owned(), json!(error.message));
    if let Some(data) = error.data.as_deref().and_then(|data| serde_json::from_str(data).ok()) {
        members.insert("data".to_owned(), data);
    }
    End::Failed(Value::Object(members))
}
