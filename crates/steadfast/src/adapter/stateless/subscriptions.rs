//! Serves `subscriptions/listen`: a stateless request whose response stream carries changes.

use bytes::Bytes;
use rmcp::model::{ClientCapabilities, ServerConfig, SubscriptionFilter};
use serde::Deserialize;
use serde_json::Value;
use steadfast_engine::{Answer, ChangeFilter, ExchangeHandle};
use steadfast_wire::rpc::{self, ErrorObject};
use steadfast_wire::subscriptions;

use super::super::error_object;
use super::server_info;
use crate::tasks;

const MAX_TASKS: usize = 256;

/// The most resources that one subscription may name, because each change is compared with all of
/// them. A client that needs more opens several subscriptions.
const MAX_RESOURCES: usize = 1000;

/// Fails if the filter names more than [`MAX_RESOURCES`] resources.
pub(super) fn check_size(requested: &SubscriptionFilter) -> Result<(), ErrorObject> {
    match &requested.resource_subscriptions {
        Some(uris) if uris.len() > MAX_RESOURCES => Err(ErrorObject::new(
            rpc::INVALID_PARAMS,
            format!("A subscription names at most {MAX_RESOURCES} resources. Subscribe more than once."),
        )),
        _ => Ok(()),
    }
}

/// Serves a subscription for a handler that does not implement subscriptions itself. Acknowledges
/// the part of the filter that the server's capabilities cover. Returns when the client or the
/// server ends the subscription.
pub(super) async fn serve(
    exchange: &ExchangeHandle,
    requested: &SubscriptionFilter,
    tasks: Vec<String>,
    config: &ServerConfig,
) -> Answer {
    acknowledge(exchange, &requested.supported_by(&config.capabilities), &tasks);
    exchange.cancelled().cancelled().await;
    Ok(subscriptions::result(exchange.id(), &server_info(config).to_string()).into())
}

/// Sends the accepted filter to the client, and starts the delivery of the changes that match it.
pub(super) fn acknowledge(exchange: &ExchangeHandle, accepted: &SubscriptionFilter, tasks: &[String]) {
    // A filter has string keys only, so it always serialises.
    let mut shown = serde_json::to_value(accepted).unwrap_or_default();
    if let Value::Object(members) = &mut shown
        && !tasks.is_empty()
    {
        members.insert("taskIds".to_owned(), tasks.into());
    }
    let members = format!(r#""notifications":{shown}"#);
    let payload = subscriptions::notification(subscriptions::ACKNOWLEDGED, &members, exchange.id());
    exchange.acknowledge(filter(accepted, tasks), payload.into());
}

/// Converts rmcp's filter into the engine's.
pub(super) fn filter(accepted: &SubscriptionFilter, tasks: &[String]) -> ChangeFilter {
    ChangeFilter {
        tools_list: accepted.tools_list_changed == Some(true),
        prompts_list: accepted.prompts_list_changed == Some(true),
        resources_list: accepted.resources_list_changed == Some(true),
        resources: accepted.resource_subscriptions.clone().unwrap_or_default(),
        tasks: tasks.to_vec(),
    }
}

/// Returns the tasks that a subscription names and that belong to its principal. rmcp's filter has
/// no field for tasks, so this function parses the parameters itself.
pub(super) async fn tasks(
    exchange: &ExchangeHandle,
    params: &Bytes,
    config: &ServerConfig,
    capabilities: &ClientCapabilities,
) -> Result<Vec<String>, ErrorObject> {
    #[derive(Deserialize)]
    struct Params {
        notifications: Named,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Named {
        task_ids: Option<Vec<String>>,
    }
    let wrong = |why: String| ErrorObject::new(rpc::INVALID_PARAMS, why);
    let named = serde_json::from_slice::<Params>(params).map_err(|error| wrong(error.to_string()))?;
    let Some(ids) = named.notifications.task_ids else { return Ok(Vec::new()) };
    if !config.capabilities.supports_tasks() {
        return Ok(Vec::new());
    }
    tasks::check_declared(capabilities).map_err(error_object)?;
    if ids.len() > MAX_TASKS {
        return Err(wrong(format!("A subscription names at most {MAX_TASKS} tasks.")));
    }
    Ok(tasks::owned(exchange, ids).await)
}
