//! Tasks of 2026-07-28: work that outlives its request, kept in the store.
//!
//! A tool that takes long gives its client a task at once and goes on working. Any node answers for the task; if the one
//! that works on it dies, the task fails and says so.

mod answers;
mod kept;
mod record;
mod time;

use std::future::Future;
use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ClientCapabilities, CreateTaskResult, InputRequest};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::Value;
use steadfast_engine::{Answer, ExchangeHandle, Refusal};
use steadfast_wire::rpc::{self, ErrorObject};
use tokio_util::sync::CancellationToken;

pub(crate) use answers::{answer, owned};
use kept::Kept;
use record::{Record, Reply};

/// Starts tasks. Handlers get it with [`Tasks::of`].
#[derive(Clone, Debug)]
pub struct Tasks(ExchangeHandle);

/// How a task presents itself.
#[derive(Clone, Debug, Default)]
pub struct TaskOptions {
    /// How long clients should wait between two looks at it.
    pub poll_interval: Option<Duration>,
    /// What it says of itself until it says something else.
    pub status_message: Option<String>,
}

/// A task, as the work on it sees it.
#[derive(Clone, Debug)]
pub struct TaskContext {
    kept: Kept,
    cancel: CancellationToken,
}

/// Why a task could not do what it wanted.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    #[error("the task has ended")]
    Over,
    #[error("the question {0:?} was asked before")]
    KeyUsed(String),
    #[error("the task's record cannot be used: {0}")]
    Record(#[from] crate::StateError),
}

impl Tasks {
    /// The tasks of the client that sent a request.
    ///
    /// # Errors
    /// If the client has not declared that it knows tasks, or the request belongs to a session. Hand the error back, or
    /// do the work without a task.
    pub fn of(context: &RequestContext<RoleServer>) -> Result<Self, ErrorData> {
        check_declared(&context.client_capabilities().unwrap_or_default())?;
        // Sessions have none, whatever their client declares.
        context.extensions.get::<Self>().cloned().ok_or_else(undeclared)
    }

    pub(crate) fn new(exchange: ExchangeHandle) -> Self {
        Self(exchange)
    }

    /// Starts a task and gives what its client is to be answered with. The task can be looked up from then on.
    pub async fn start<F>(
        &self,
        options: TaskOptions,
        work: impl FnOnce(TaskContext) -> F,
    ) -> Result<CreateTaskResult, ErrorData>
    where
        F: Future<Output = Result<CallToolResult, ErrorData>> + Send + 'static,
    {
        let engine = self.0.engine();
        let job = engine.start_job(self.0.principal().clone()).await.map_err(|refusal| refused(&refusal))?;
        let kept = Kept::new(job.session().clone(), job.token());
        let ttl = ms(engine.store().rules().timing.idle);
        let record = Record::new(engine.now(), ttl, options.poll_interval.map(ms), options.status_message);
        kept.create(&record).await.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let created = kept.created(&record);
        let cancel = job.cancelled().clone();
        let work = work(TaskContext { kept: kept.clone(), cancel: cancel.clone() });
        let watch = kept.clone();
        let work = async move {
            tokio::select! {
                biased;
                done = work => as_answer(done),
                never = async {
                    watch.until_over().await;
                    // Whoever ended it wants the work to stop.
                    cancel.cancel();
                    std::future::pending::<Answer>().await
                } => never,
            }
        };
        engine.run_job(job, work, |done| async move { kept.settle(done).await });
        Ok(created)
    }
}

impl TaskContext {
    /// The id under which the client looks at the task. It works like a password.
    pub fn id(&self) -> String {
        self.kept.id()
    }

    /// Cancelled when the client cancels the task, its deadline passes, or the server shuts down. The work should end soon
    /// then; what it gives back is not looked at.
    pub fn cancelled(&self) -> &CancellationToken {
        &self.cancel
    }

    /// Says how the task gets on.
    pub async fn say(&self, message: &str) -> Result<(), TaskError> {
        let now = self.kept.now();
        self.kept.change(|record| record.say(message, now)).await
    }

    /// Asks the client something and waits for the answer: the JSON of the result that the request has. Several questions
    /// may be open at once, each under a key of its own.
    pub async fn ask(&self, key: &str, request: &InputRequest) -> Result<Value, TaskError> {
        let request = serde_json::to_value(request).map_err(crate::StateError::Format)?;
        let now = self.kept.now();
        let put =
            self.kept.change(|record| (record.is_over(), record.ask(key, request.clone(), now))).await?;
        match put {
            (_, true) => {}
            (true, false) => return Err(TaskError::Over),
            (false, false) => return Err(TaskError::KeyUsed(key.to_owned())),
        }
        loop {
            let news = self.kept.news();
            match self.kept.take(key).await? {
                Reply::Given(answer) => return Ok(answer),
                Reply::Never => return Err(TaskError::Over),
                Reply::NotYet => news.await,
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

/// The client has to declare the extension on each request.
pub(crate) fn check_declared(capabilities: &ClientCapabilities) -> Result<(), ErrorData> {
    if capabilities.supports_tasks() { Ok(()) } else { Err(undeclared()) }
}

pub(crate) fn undeclared() -> ErrorData {
    let tasks = ClientCapabilities::builder().enable_tasks().build();
    ErrorData::missing_required_client_capability(tasks)
}

pub(crate) fn unknown() -> ErrorObject {
    ErrorObject::new(rpc::INVALID_PARAMS, "There is no such task.")
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
