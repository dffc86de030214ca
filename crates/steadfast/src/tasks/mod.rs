//! Tasks (2026-07-28): work that continues after its request is answered.
//!
//! A tool that takes long answers with a task and continues its work in the background. The record
//! of the task is in the store, so every node answers the client's `tasks/…` requests. If the node
//! that does the work dies, the task fails with `outcome_unknown`.
//!
//! In the store a task is a job: a session without a client, whose state has one entry, the record.

mod record;
mod requests;
mod stored_task;
mod timestamp;

use std::future::Future;
use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ClientCapabilities, CreateTaskResult, InputRequest};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::Value;
use steadfast_engine::{Answer, ExchangeHandle, Refusal};
use steadfast_wire::rpc::{self, ErrorObject};
use tokio_util::sync::CancellationToken;

use record::{InputReply, TaskRecord};
pub(crate) use requests::{answer, owned};
use stored_task::StoredTask;

/// Starts tasks for the client of a request. A handler gets it with [`Tasks::of`].
#[derive(Clone, Debug)]
pub struct Tasks(ExchangeHandle);

/// What a new task shows to its client.
#[derive(Clone, Debug, Default)]
pub struct TaskOptions {
    /// The interval at which the client should poll the task.
    pub poll_interval: Option<Duration>,
    /// The status message until [`TaskContext::set_status_message`] changes it.
    pub status_message: Option<String>,
}

/// A handle to a running task, for the future that does its work.
#[derive(Clone, Debug)]
pub struct TaskContext {
    task: StoredTask,
    cancel: CancellationToken,
}

/// Error of an operation on a running task.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// The task has ended: the client cancelled it, its deadline passed, or another node ended it.
    #[error("the task has ended")]
    Over,
    /// An earlier input request of this task had the same key.
    #[error("the key {0:?} was used by an earlier input request")]
    KeyUsed(String),
    /// The record in the store could not be read or written.
    #[error("the task's record cannot be read or written: {0}")]
    Record(#[from] crate::StateError),
}

impl Tasks {
    /// Returns the starter of tasks for the client that sent the request.
    ///
    /// # Errors
    /// If the client has not declared the tasks extension, or if the request belongs to a session.
    /// Return the error to the client, or do the work without a task.
    pub fn of(context: &RequestContext<RoleServer>) -> Result<Self, ErrorData> {
        check_declared(&context.client_capabilities().unwrap_or_default())?;
        // The extension is absent in sessions, even if their client declares it.
        context.extensions.get::<Self>().cloned().ok_or_else(undeclared)
    }

    pub(crate) fn new(exchange: ExchangeHandle) -> Self {
        Self(exchange)
    }

    /// Starts a task whose work is the future that `work` returns. Returns the result with which
    /// the handler answers the request.
    ///
    /// When this function returns, the record is in the store and the client can use the task at
    /// every node. Fails if the store cannot create the record.
    pub async fn start<F>(
        &self,
        options: TaskOptions,
        work: impl FnOnce(TaskContext) -> F,
    ) -> Result<CreateTaskResult, ErrorData>
    where
        F: Future<Output = Result<CallToolResult, ErrorData>> + Send + 'static,
    {
        let engine = self.0.engine();
        let job = engine.create_job(self.0.principal().clone()).await.map_err(|refusal| refused(&refusal))?;
        let task = StoredTask::new(job.session().clone(), job.token());
        let ttl = ms(engine.store().rules().timing.idle);
        let record =
            TaskRecord::new(engine.now(), ttl, options.poll_interval.map(ms), options.status_message);
        task.create(&record).await.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let created = task.created(&record);
        let cancel = job.cancelled().clone();
        let work = work(TaskContext { task: task.clone(), cancel: cancel.clone() });
        let watched = task.clone();
        let work = async move {
            tokio::select! {
                biased;
                done = work => as_answer(done),
                never = async {
                    watched.ended().await;
                    // The record has an end, so the work is no longer needed. Its own end comes
                    // from `work`.
                    cancel.cancel();
                    std::future::pending::<Answer>().await
                } => never,
            }
        };
        engine.run_job(job, work, |done| async move { task.settle(done).await });
        Ok(created)
    }
}

impl TaskContext {
    /// Returns the id by which the client refers to the task. Treat it as a secret: the client
    /// proves with it that the task is its own.
    pub fn id(&self) -> String {
        self.task.id()
    }

    /// Returns the token that is cancelled when the client cancels the task, its deadline passes,
    /// or the server shuts down. The work should then return soon; its result is ignored.
    pub fn cancelled(&self) -> &CancellationToken {
        &self.cancel
    }

    /// Sets the status message that the client sees. Does nothing if the task has ended.
    pub async fn set_status_message(&self, message: &str) -> Result<(), TaskError> {
        let now = self.task.now();
        self.task.change(|record| record.set_status_message(message, now)).await
    }

    /// Sends an input request to the client and waits for the answer. Returns the JSON of the
    /// request's result. Several requests may be open concurrently, each with its own key.
    ///
    /// Fails with [`TaskError::KeyUsed`] if an earlier request of the task had this key, and with
    /// [`TaskError::Over`] if the task ends before the answer.
    pub async fn request_input(&self, key: &str, request: &InputRequest) -> Result<Value, TaskError> {
        let request = serde_json::to_value(request).map_err(crate::StateError::Format)?;
        let now = self.task.now();
        let added = self
            .task
            .change(|record| (record.is_over(), record.add_input_request(key, request.clone(), now)))
            .await?;
        match added {
            (_, true) => {}
            (true, false) => return Err(TaskError::Over),
            (false, false) => return Err(TaskError::KeyUsed(key.to_owned())),
        }
        loop {
            // Created before the read, so that no change between read and wait is missed.
            let changed = self.task.changed();
            match self.task.take_answer(key).await? {
                InputReply::Answer(answer) => return Ok(answer),
                InputReply::None => return Err(TaskError::Over),
                InputReply::Pending => changed.await,
            }
        }
    }
}

fn as_answer(done: Result<CallToolResult, ErrorData>) -> Answer {
    match done {
        Ok(result) => crate::adapter::to_json(&result),
        Err(error) => Err(crate::adapter::error_object(error)),
    }
}

fn refused(refusal: &Refusal) -> ErrorData {
    ErrorData::internal_error(format!("The task could not be started: {refusal}."), None)
}

/// Fails with `-32021` unless the request declares the tasks extension. Each request must declare
/// it.
pub(crate) fn check_declared(capabilities: &ClientCapabilities) -> Result<(), ErrorData> {
    if capabilities.supports_tasks() { Ok(()) } else { Err(undeclared()) }
}

/// Returns the error for a client that has not declared the tasks extension.
pub(crate) fn undeclared() -> ErrorData {
    let tasks = ClientCapabilities::builder().enable_tasks().build();
    ErrorData::missing_required_client_capability(tasks)
}

/// Returns the error for a task that does not exist or belongs to another principal.
pub(crate) fn unknown() -> ErrorObject {
    ErrorObject::new(rpc::INVALID_PARAMS, "There is no such task.")
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
