//! `tasks/get`, `tasks/update` and `tasks/cancel`, for tasks that this library keeps.

use rmcp::model::{ClientRequest, CustomResult, ServerResult, TaskAckResult};
use steadfast_engine::{ExchangeHandle, JobStatus, Refusal, SessionToken};
use steadfast_wire::rpc::ErrorObject;

use super::kept::{Kept, failed};
use super::record::{End, Record};
use super::{TaskError, unknown};

/// Answers a request about a task. `None` if it is about something else, or about a task that is not kept here: the
/// handler may have tasks of its own.
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
    let kept = match find(exchange, id).await {
        Ok(kept) => kept?,
        Err(refusal) => return Some(Err(unavailable(&refusal))),
    };
    Some(match request {
        ClientRequest::UpdateTaskRequest(request) => {
            let now = kept.now();
            acknowledged(kept.change(|record| record.answer(&request.params.input_responses, now)).await)
        }
        ClientRequest::CancelTaskRequest(_) => {
            let now = kept.now();
            // Whoever works on it watches the record.
            acknowledged(kept.change(|record| record.end(End::Cancelled, now)).await)
        }
        _ => look(exchange, &kept).await,
    })
}

/// Which of these tasks are kept here and belong to whoever sent the request.
pub(crate) async fn owned(exchange: &ExchangeHandle, ids: Vec<String>) -> Vec<String> {
    let mut owned = Vec::new();
    for id in ids {
        if let Ok(Some(_)) = find(exchange, &id).await {
            owned.push(id);
        }
    }
    owned
}

async fn find(exchange: &ExchangeHandle, id: &str) -> Result<Option<Kept>, Refusal> {
    let Some(token) = SessionToken::parse(id) else { return Ok(None) };
    match exchange.engine().job(token.id(), exchange.principal()).await {
        Ok(session) => Ok(Some(Kept::new(session, token))),
        Err(Refusal::NoSession) => Ok(None),
        Err(refusal) => Err(refusal),
    }
}

async fn look(exchange: &ExchangeHandle, kept: &Kept) -> Result<ServerResult, ErrorObject> {
    let mut record = read(kept).await?;
    if !record.is_over() && is_abandoned(exchange, kept).await? {
        // Recorded, so that it stays true.
        let error = ErrorObject::internal(
            "outcome_unknown",
            "The server that worked on the task has gone. Whether the work took effect is not known.",
            false,
        );
        let now = kept.now();
        kept.change(|record| record.end(failed(&error), now)).await.map_err(|error| trouble(&error))?;
        record = read(kept).await?;
    }
    Ok(ServerResult::CustomResult(CustomResult::new(record.detailed(&kept.id()).into())))
}

async fn read(kept: &Kept) -> Result<Record, ErrorObject> {
    kept.read().await.map_err(|error| trouble(&error.into()))?.ok_or_else(unknown)
}

async fn is_abandoned(exchange: &ExchangeHandle, kept: &Kept) -> Result<bool, ErrorObject> {
    let status = exchange.engine().job_status(kept.session_id()).await;
    let is_over = status.map_err(|refusal| unavailable(&refusal))? == JobStatus::Over;
    // Whoever worked on it may have recorded its end between the two looks.
    Ok(is_over && !read(kept).await?.is_over())
}

fn acknowledged(changed: Result<(), TaskError>) -> Result<ServerResult, ErrorObject> {
    changed.map_err(|error| trouble(&error))?;
    Ok(ServerResult::TaskAckResult(TaskAckResult::new()))
}

fn trouble(error: &TaskError) -> ErrorObject {
    ErrorObject::internal("unavailable", format!("The task cannot be used now: {error}."), true)
}

fn unavailable(refusal: &Refusal) -> ErrorObject {
    ErrorObject::internal("unavailable", format!("The task cannot be looked up now: {refusal}."), true)
}
