//! Counts store operations of an endpoint, and the calls, server requests and attached streams that
//! they show.

use std::sync::Arc;

use steadfast_engine::stands_for_request;
use steadfast_session::command::{
    Answered, Attached, Begun, Cancelled, Finished, Position, ServerRequestOpened, Withdrawn,
};
use steadfast_session::{Command, Outcome as StoreOutcome, SessionId};
use steadfast_store::{Opened, Reply, StoreError};
use tokio::time::Instant;

use super::call_counters::{CallMetrics, outcome_of_response};
use super::job_calls::JobCalls;
use super::metrics::{Event, Kind, Metrics, Operation, StoreFailure};

/// The counters of one endpoint. Cheap to clone.
#[derive(Clone)]
pub(crate) struct StoreMetrics {
    metrics: Arc<Metrics>,
    endpoint: Arc<str>,
    calls: CallMetrics,
    jobs: Arc<JobCalls>,
}

/// What is counted of a command. It is derived before the store consumes the command.
#[derive(Clone, Copy)]
pub(crate) enum CommandKind {
    Begin {
        calls: u64,
    },
    Finish {
        outcome: &'static str,
    },
    /// The end of a job that [`JobCalls`] lists, or of its call.
    EndJob {
        job: SessionId,
    },
    Cancel,
    OpenServerRequest,
    Answer,
    Withdraw,
    Attach {
        kind: &'static str,
    },
    Other,
}

impl StoreMetrics {
    pub(crate) fn new(metrics: Arc<Metrics>, endpoint: &str) -> Self {
        let calls = CallMetrics::new(Arc::clone(&metrics), endpoint);
        Self { metrics, endpoint: endpoint.into(), calls, jobs: Arc::default() }
    }

    /// Counts the operation when its reply is ready.
    pub(crate) fn observe<T: Send + Unpin + 'static>(
        &self,
        operation: &'static str,
        started: Instant,
        reply: Reply<T>,
        on_success: impl FnOnce(&Self, &T) + Send + 'static,
    ) -> Reply<T> {
        match reply {
            Reply::Ready(Some(outcome)) => {
                self.finished(operation, started, &outcome, on_success);
                Reply::ready(outcome)
            }
            later => {
                let metrics = self.clone();
                Reply::later(async move {
                    let outcome = later.await;
                    metrics.finished(operation, started, &outcome, on_success);
                    outcome
                })
            }
        }
    }

    fn finished<T>(
        &self,
        operation: &'static str,
        started: Instant,
        outcome: &Result<T, StoreError>,
        on_success: impl FnOnce(&Self, &T),
    ) {
        let seconds = started.elapsed().as_secs_f64();
        self.metrics.store_seconds.get_or_create(&Operation { operation }).observe(seconds);
        match outcome {
            Ok(outcome) => on_success(self, outcome),
            Err(error) => {
                let kind = match error {
                    StoreError::Unavailable(_) => "unavailable",
                    StoreError::Unknown(_) => "unknown",
                    StoreError::Corrupt(_) => "corrupt",
                };
                self.metrics.store_errors.get_or_create(&StoreFailure { operation, kind }).inc();
            }
        }
    }

    /// Records what the store has opened.
    pub(crate) fn opened(&self, opened: &Opened) {
        if let Opened::Opened(facts) = opened
            && stands_for_request(facts)
        {
            self.jobs.insert(facts.id);
        }
    }

    pub(crate) fn kind_of(&self, session: SessionId, command: &Command) -> CommandKind {
        match command {
            Command::Begin(_) if self.jobs.contains(session) => CommandKind::Other,
            Command::Finish(_) | Command::Close(_) if self.jobs.contains(session) => {
                CommandKind::EndJob { job: session }
            }
            _ => CommandKind::of(command),
        }
    }

    pub(crate) fn applied(&self, kind: CommandKind, outcome: &StoreOutcome) {
        let metrics = &self.metrics;
        let endpoint = || self.endpoint.to_string();
        let server_request = |event| {
            metrics.server_requests.get_or_create(&Event { endpoint: endpoint(), event }).inc();
        };
        match (kind, outcome) {
            (CommandKind::Begin { calls }, StoreOutcome::Begin(Begun::Begun { .. })) => {
                self.calls.begun(calls);
            }
            (CommandKind::Finish { outcome }, StoreOutcome::Finish(Finished::Finished { .. })) => {
                self.calls.finished(outcome)
            }
            (CommandKind::EndJob { job }, _) => self.jobs.remove(job),
            (CommandKind::Cancel, StoreOutcome::Cancel(Cancelled::Cancelled { .. })) => {
                self.calls.finished("cancelled")
            }
            (
                CommandKind::OpenServerRequest,
                StoreOutcome::OpenServerRequest(ServerRequestOpened::Opened { .. }),
            ) => server_request("sent"),
            (
                CommandKind::Answer,
                StoreOutcome::Answer(Answered::Answered { .. } | Answered::Stored { .. }),
            ) => server_request("answered"),
            (CommandKind::Withdraw, StoreOutcome::Withdraw(Withdrawn::Withdrawn)) => {
                server_request("withdrawn")
            }
            (CommandKind::Attach { kind }, StoreOutcome::Attach(Attached::Attached { .. })) => {
                metrics.attachments.get_or_create(&Kind { endpoint: endpoint(), kind }).inc();
            }
            _ => {}
        }
    }
}

impl CommandKind {
    fn of(command: &Command) -> Self {
        match command {
            // If its outcome was unknown, the engine repeats it, and the repetition that succeeds
            // is counted.
            Command::Begin(begin) => Self::Begin { calls: begin.ids.len() as u64 },
            Command::Finish(finish) => Self::Finish { outcome: outcome_of_response(&finish.payload) },
            Command::Cancel(_) => Self::Cancel,
            Command::OpenServerRequest(_) => Self::OpenServerRequest,
            Command::Answer(_) => Self::Answer,
            Command::Withdraw(_) => Self::Withdraw,
            Command::Attach(attach) => match attach.at {
                Position::After { .. } => Self::Attach { kind: "resumed" },
                Position::Standalone => Self::Attach { kind: "standalone" },
            },
            _ => Self::Other,
        }
    }
}
