//! The few members of `params` that a session layer has to look at.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::id::RequestId;

/// The `_meta` key that marks a request of a stateless revision.
pub const META_PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// What the client of a stateless request can do; the other required key.
pub const META_CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// Who sends a stateless request. For display only.
pub const META_CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// From which level on the log messages of a stateless request are wanted; without it none are.
pub const META_LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// Who answers a stateless request, in the result's `_meta`. For display only.
pub const META_SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// The id of the `subscriptions/listen` that a notification belongs to, with its JSON type.
pub const META_SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// The version that `initialize` asks for.
pub fn initialize_protocol_version(params: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow, rename = "protocolVersion")]
        version: Cow<'a, str>,
    }
    object::<Params<'_>>(params).map(|params| params.version.into_owned())
}

/// The request that `notifications/cancelled` names. `None` for a malformed one, which is to be ignored.
pub fn cancelled_request(params: &str) -> Option<RequestId> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow, rename = "requestId")]
        id: &'a RawValue,
    }
    RequestId::from_raw(object::<Params<'_>>(params)?.id).ok()
}

/// Members by name. A list would also do for serde, which takes its items as members in order.
fn object<'a, T: Deserialize<'a>>(params: &'a str) -> Option<T> {
    if params.starts_with('{') { serde_json::from_str(params).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancellations_name_a_typed_id() {
        assert_eq!(cancelled_request(r#"{"requestId":"5","reason":"x"}"#), Some(RequestId::text("5")));
        assert_eq!(cancelled_request(r#"{"requestId":5}"#), Some(RequestId::Number(5)));
        assert_eq!(cancelled_request(r#"{"requestId":null}"#), None);
        assert_eq!(cancelled_request(r#"{}"#), None);
        assert_eq!(cancelled_request(r#"["5"]"#), None);
        assert_eq!(initialize_protocol_version(r#"["2025-11-25"]"#), None);
    }
}
