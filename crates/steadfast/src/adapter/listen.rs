//! `subscriptions/listen` for handlers that leave it to the library.

use bytes::Bytes;
use rmcp::model::{ServerConfig, SubscriptionFilter};
use steadfast_engine::{Answer, ChangeFilter, ExchangeHandle};
use steadfast_wire::rpc::{self, ErrorObject};
use steadfast_wire::{RequestId, listen};

use super::stateless::server_info;

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

/// Acknowledges what the server offers of what was asked for, and lasts until one side ends it.
pub(super) async fn answer(
    exchange: &ExchangeHandle,
    requested: &SubscriptionFilter,
    config: &ServerConfig,
) -> Answer {
    let accepted = requested.supported_by(&config.capabilities);
    exchange.acknowledge(filter(&accepted), acknowledgement(&accepted, exchange.id()));
    exchange.cancelled().cancelled().await;
    Ok(listen::result(exchange.id(), &server_info(config).to_string()).into())
}

pub(super) fn filter(accepted: &SubscriptionFilter) -> ChangeFilter {
    ChangeFilter {
        tools_list: accepted.tools_list_changed == Some(true),
        prompts_list: accepted.prompts_list_changed == Some(true),
        resources_list: accepted.resources_list_changed == Some(true),
        resources: accepted.resource_subscriptions.clone().unwrap_or_default(),
        tasks: Vec::new(),
    }
}

pub(super) fn acknowledgement(accepted: &SubscriptionFilter, subscription: &RequestId) -> Bytes {
    // A filter has string keys only, so it always serialises.
    let accepted = serde_json::to_string(accepted).unwrap_or_else(|_| "{}".into());
    let members = format!(r#""notifications":{accepted}"#);
    listen::notification(listen::ACKNOWLEDGED, &members, subscription).into()
}
