//! `subscriptions/listen`.

use bytes::Bytes;
use rmcp::model::{ClientCapabilities, ServerConfig, SubscriptionFilter};
use serde::Deserialize;
use serde_json::Value;
use steadfast_engine::{Answer, ChangeFilter, ExchangeHandle};
use steadfast_wire::listen;
use steadfast_wire::rpc::{self, ErrorObject};

use super::error_object;
use super::stateless::server_info;
use crate::tasks;

/// How many tasks one subscription may name.
const MAX_TASKS: usize = 256;

/// How many resources one subscription may name: each change is compared with all of them. Clients that want more
/// subscribe more than once.
const MAX_RESOURCES: usize = 1000;

pub(super) fn check_size(requested: &SubscriptionFilter) -> Result<(), ErrorObject> {
    match &requested.resource_subscriptions {
        Some(uris) if uris.len() > MAX_RESOURCES => Err(ErrorObject::new(
            rpc::INVALID_PARAMS,
            format!("A subscription names at most {MAX_RESOURCES} resources. Subscribe more than once."),
        )),
        _ => Ok(()),
    }
}

/// Serves a subscription for a handler that leaves it to the library: acknowledges what the server offers of what was
/// asked for, and lasts until one side ends it.
pub(super) async fn answer(
    exchange: &ExchangeHandle,
    requested: &SubscriptionFilter,
    tasks: Vec<String>,
    config: &ServerConfig,
) -> Answer {
    acknowledge(exchange, &requested.supported_by(&config.capabilities), &tasks);
    exchange.cancelled().cancelled().await;
    Ok(listen::result(exchange.id(), &server_info(config).to_string()).into())
}

/// Tells the client what it will hear of, and lets it hear that from now on.
pub(super) fn acknowledge(exchange: &ExchangeHandle, accepted: &SubscriptionFilter, tasks: &[String]) {
    // A filter has string keys only, so it always serialises.
    let mut shown = serde_json::to_value(accepted).unwrap_or_default();
    if let Value::Object(members) = &mut shown
        && !tasks.is_empty()
    {
        members.insert("taskIds".to_owned(), tasks.into());
    }
    let members = format!(r#""notifications":{shown}"#);
    let payload = listen::notification(listen::ACKNOWLEDGED, &members, exchange.id());
    exchange.acknowledge(filter(accepted, tasks), payload.into());
}

pub(super) fn filter(accepted: &SubscriptionFilter, tasks: &[String]) -> ChangeFilter {
    ChangeFilter {
        tools_list: accepted.tools_list_changed == Some(true),
        prompts_list: accepted.prompts_list_changed == Some(true),
        resources_list: accepted.resources_list_changed == Some(true),
        resources: accepted.resource_subscriptions.clone().unwrap_or_default(),
        tasks: tasks.to_vec(),
    }
}

/// The tasks that a subscription names and may hear of. rmcp's filter has no place for them.
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
        return Err(wrong(format!("A subscription may name {MAX_TASKS} tasks, no more.")));
    }
    Ok(tasks::owned(exchange, ids).await)
}
