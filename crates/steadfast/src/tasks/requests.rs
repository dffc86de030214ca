//! Answers `tasks/get`, `tasks/update` and `tasks/cancel` for the tasks in the store.

use rmcp::model::{ClientRequest, CustomResult, ServerResult, TaskAckResult};
use steadfast_engine::{ExchangeHandle, JobStatus, Refusal, SessionToken};
use steadfast_wire::Reason;
use steadfast_wire::rpc::ErrorObject;

use super::record::{End, TaskRecord};
use super::stored_task::{StoredTask, failed};
use super::{TaskError, unknown};

/// Answers a `tasks/…` request. Returns `None` for other requests, and for tasks that are not in
/// the store: the handler may implement tasks itself.
pub(crate) async fn answer(
    exchange: &ExchangeHandle,
    request: &ClientRequest,
) -> Option<Result<ServerResult, ErrorObject>> {
    let id = match request {
        ClientRequest::GetTaskRequest(request) => &request.params.task_id,
        ClientRequest::UpdateTaskRequest(request) => &request.params.task_id,
        ClientRequest::CancelTaskRequest(request) => &request.params.task_id,
        _ => return None,
    };
    let task = match find(exchange, id).await {
        Ok(task) => task?,
        Err(refusal) => return Some(Err(lookup_error(&refusal))),
    };
    Some(match request {
        ClientRequest::UpdateTaskRequest(request) => {
            let now = task.now();
            acknowledged(task.change(|record| record.add_answers(&request.params.input_responses, now)).await)
        }
        ClientRequest::CancelTaskRequest(_) => {
            let now = task.now();
            // The node that does the work watches the record and stops the work.
            acknowledged(task.change(|record| record.end(End::Cancelled, now)).await)
        }
        _ => get(exchange, &task).await,
    })
}

/// Returns those of `ids` that are tasks in the store and belong to the principal of the request.
pub(crate) async fn owned(exchange: &ExchangeHandle, ids: Vec<String>) -> Vec<String> {
    let mut owned = Vec::new();
    for id in ids {
        if let Ok(Some(_)) = find(exchange, &id).await {
            owned.push(id);
        }
    }
    owned
}

async fn find(exchange: &ExchangeHandle, id: &str) -> Result<Option<StoredTask>, Refusal> {
    let Some(token) = SessionToken::parse(id) else { return Ok(None) };
    match exchange.engine().find_job(token.id(), exchange.principal()).await {
        Ok(session) => Ok(Some(StoredTask::new(session, token))),
        Err(Refusal::NoSession) => Ok(None),
        Err(refusal) => Err(refusal),
    }
}

/// Answers `tasks/get`. A task whose worker is gone fails first.
async fn get(exchange: &ExchangeHandle, task: &StoredTask) -> Result<ServerResult, ErrorObject> {
    let mut record = read(task).await?;
    if !record.is_over() && is_abandoned(exchange, task).await? {
        // Recorded, so that every later answer is the same.
        let error = Reason::OutcomeUnknown
            .error("The server that worked on the task has gone. Whether the work took effect is not known.");
        let now = task.now();
        task.change(|record| record.end(failed(&error), now)).await.map_err(|error| store_error(&error))?;
        record = read(task).await?;
    }
    Ok(ServerResult::CustomResult(CustomResult::new(record.to_detailed_json(&task.id()).into())))
}

async fn read(task: &StoredTask) -> Result<TaskRecord, ErrorObject> {
    task.read().await.map_err(|error| store_error(&error.into()))?.ok_or_else(unknown)
}

/// Returns true if the task has no end and no node works on it.
async fn is_abandoned(exchange: &ExchangeHandle, task: &StoredTask) -> Result<bool, ErrorObject> {
    let status = exchange.engine().job_status(task.session_id()).await;
    let is_over = status.map_err(|refusal| lookup_error(&refusal))? == JobStatus::Ended;
    // The worker may have recorded the end after the caller read the record, so read it again.
    Ok(is_over && !read(task).await?.is_over())
}

fn acknowledged(changed: Result<(), TaskError>) -> Result<ServerResult, ErrorObject> {
    changed.map_err(|error| store_error(&error))?;
    Ok(ServerResult::TaskAckResult(TaskAckResult::new()))
}

fn store_error(error: &TaskError) -> ErrorObject {
    Reason::StoreUnavailable.error(format!("The task cannot be read or changed now: {error}."))
}

fn lookup_error(refusal: &Refusal) -> ErrorObject {
    Reason::StoreUnavailable.error(format!("The task cannot be looked up now: {refusal}."))
}
