//! The record of a task in the store.

use std::future::Future;
use std::sync::Arc;

use rmcp::model::{CreateTaskResult, Task, TaskStatus};
use serde_json::{Map, Value, json};
use steadfast_engine::{Answer, Change, SessionHandle, SessionId, SessionToken, Time};
use steadfast_wire::rpc::ErrorObject;
use tokio::sync::Notify;

use super::TaskError;
use super::record::{End, Record, Reply};
use crate::session::{Session, StateError};

/// The entry of the job's state that holds the record.
const KEY: &str = "task";

#[derive(Clone, Debug)]
pub(super) struct Kept {
    session: SessionHandle,
    token: SessionToken,
    /// Told on this node whenever the record changes.
    changed: Arc<Notify>,
}

impl Kept {
    pub(super) fn new(session: SessionHandle, token: SessionToken) -> Self {
        let changed = session.keepsake(|_| Notify::new());
        Self { session, token, changed }
    }

    /// The id that the client sees.
    pub(super) fn id(&self) -> String {
        self.token.expose()
    }

    pub(super) fn session_id(&self) -> SessionId {
        self.session.facts().id
    }

    pub(super) fn now(&self) -> Time {
        self.session.engine().now()
    }

    pub(super) async fn create(&self, record: &Record) -> Result<(), StateError> {
        self.state().put(KEY, None, record).await.map(drop)
    }

    pub(super) async fn read(&self) -> Result<Option<Record>, StateError> {
        Ok(self.state().get::<Record>(KEY).await?.map(|(record, _)| record))
    }

    /// Changes the record, and tells everybody who wants to know.
    pub(super) async fn change<R>(&self, mut change: impl FnMut(&mut Record) -> R) -> Result<R, TaskError> {
        let mut shown = Map::new();
        let id = self.id();
        let result = self
            .state()
            .update(KEY, |record: &mut Record| {
                let result = change(record);
                shown = record.detailed(&id);
                result
            })
            .await?;
        let text = Value::Object(shown).to_string();
        let task = text[1..text.len() - 1].to_owned();
        self.session.engine().announce(&Change::Task { id, task });
        self.changed.notify_waiters();
        Ok(result)
    }

    pub(super) async fn take(&self, key: &str) -> Result<Reply, TaskError> {
        match self.read().await?.map(|mut record| record.take(key)) {
            Some(Reply::Given(_)) => self.change(|record| record.take(key)).await,
            Some(reply) => Ok(reply),
            None => Ok(Reply::Never),
        }
    }

    /// Ready when the record may have changed since this was called. Changes by other processes are noticed when the store
    /// is looked at again.
    pub(super) fn news(&self) -> impl Future<Output = ()> + Send {
        // It counts from its creation on, so nothing is missed between looking and waiting.
        let changed = Arc::clone(&self.changed).notified_owned();
        let poll = self.session.engine().store().poll_interval();
        async move {
            match poll {
                Some(interval) => drop(tokio::time::timeout(interval, changed).await),
                None => changed.await,
            }
        }
    }

    /// Ready when the task is over, whoever ended it.
    pub(super) async fn until_over(&self) {
        loop {
            let news = self.news();
            match self.read().await {
                Ok(Some(record)) if !record.is_over() => {}
                Ok(_) => return,
                // The store will be back.
                Err(error) => tracing::debug!(%error, "a task could not be looked at"),
            }
            news.await;
        }
    }

    /// Records what came of the work.
    pub(super) async fn settle(&self, done: Option<Answer>) {
        let end = match done {
            Some(Ok(result)) => match serde_json::from_slice(&result) {
                Ok(result) => End::Completed(result),
                Err(_) => failed(&ErrorObject::internal("bad_result", "The result is not JSON.", false)),
            },
            Some(Err(error)) => failed(&error),
            None => failed(&ErrorObject::internal(
                "stopped",
                "The task was stopped before it was done. Whether it took effect is not known.",
                false,
            )),
        };
        match self.end(end).await {
            Err(TaskError::Record(StateError::Full)) => {
                let error = ErrorObject::internal(
                    "limit",
                    "The result is larger than what a task may hold (limit `state_bytes`).",
                    false,
                );
                let _ = self.end(failed(&error)).await;
            }
            Err(error) => tracing::error!(%error, "what came of a task could not be recorded"),
            Ok(()) => {}
        }
    }

    /// Ends the record, as soon as the store takes it.
    async fn end(&self, end: End) -> Result<(), TaskError> {
        let now = self.now();
        let ended = self.session.engine().patiently(|| async {
            match self.change(|record| record.end(end.clone(), now)).await {
                Err(TaskError::Record(StateError::Store(error))) => Err(error),
                ended => Ok(ended),
            }
        });
        ended.await.map_err(StateError::Store)?
    }

    pub(super) fn created(&self, record: &Record) -> CreateTaskResult {
        let members = record.members(&self.id());
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
