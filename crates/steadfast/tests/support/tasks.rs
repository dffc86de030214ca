//! Tools that run as tasks.

use rmcp::ErrorData;
use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, InputRequest};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Value, json};
use steadfast::{TaskContext, TaskOptions, Tasks};

use super::Gates;

/// Starts the task that a tool stands for; `None` for other tools.
pub(crate) async fn start(
    request: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
    gates: &Gates,
) -> Option<Result<CallToolResponse, ErrorData>> {
    let text = |key: &str| {
        let value = request.arguments.as_ref().and_then(|arguments| arguments.get(key));
        value.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let (gates, name, say) = (gates.clone(), text("name"), text("text"));
    let tasks = match Tasks::of(context) {
        Ok(tasks) => tasks,
        Err(error) if request.name.starts_with("task_") => return Some(Err(error)),
        Err(_) => return None,
    };
    let options = TaskOptions { status_message: Some("begun".into()), ..TaskOptions::default() };
    let started = match &*request.name {
        // Waits at the gate `name`, then says `text`.
        "task_gate" => {
            tasks
                .start(options, |task| async move {
                    gates.pass(&name).await;
                    task.set_status_message("through the gate").await.map_err(failed)?;
                    done(say)
                })
                .await
        }
        // Asks two things at once and says what it heard.
        "task_ask" => tasks.start(options, ask_two).await,
        "task_fail" => {
            tasks.start(options, |_| async { Err(ErrorData::invalid_params("no good", None)) }).await
        }
        "task_panic" => tasks.start(options, |_| async { panic!("a task that panics on purpose") }).await,
        "task_big" => tasks.start(options, |_| async { done("x".repeat(2 << 20)) }).await,
        // Notices that it is cancelled.
        "task_until_cancelled" => {
            tasks
                .start(options, |task| async move {
                    task.cancelled().cancelled().await;
                    gates.mark("task cancelled");
                    done("too late".into())
                })
                .await
        }
        _ => return None,
    };
    Some(started.map(CallToolResponse::Task))
}

async fn ask_two(task: TaskContext) -> Result<CallToolResult, ErrorData> {
    let roots =
        || -> InputRequest { serde_json::from_value(json!({ "method": "roots/list" })).expect("a request") };
    let (one, two) = (roots(), roots());
    let (one, two) = tokio::join!(task.request_input("one", &one), task.request_input("two", &two));
    done(format!("{} {}", one.map_err(failed)?, two.map_err(failed)?))
}

fn done(text: String) -> Result<CallToolResult, ErrorData> {
    Ok(CallToolResult::success(vec![ContentBlock::text(text)]))
}

fn failed(error: impl std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}
