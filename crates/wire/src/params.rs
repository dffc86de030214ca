//! The members of `params` that a gateway reads: keys of `_meta`, the protocol version, the
//! cancelled request.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::id::RequestId;

/// The `_meta` key that marks a request of a stateless revision.
pub const META_PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The capabilities of the client of a stateless request. This key is required, too.
pub const META_CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The name and version of the client of a stateless request. For display only.
pub const META_CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// The lowest level of log messages that a stateless request wants. Without this key it wants none.
pub const META_LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// The name and version of the server, in the `_meta` of a result. For display only.
pub const META_SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// The id of the `subscriptions/listen` that a notification belongs to, with its JSON type.
pub const META_SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// Returns the protocol version that the parameters of `initialize` request.
pub fn initialize_protocol_version(params: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow, rename = "protocolVersion")]
        version: Cow<'a, str>,
    }
    parse_object::<Params<'_>>(params).map(|params| params.version.into_owned())
}

/// The name and the version that a client gives itself. Both are text of the client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClientInfo<'a> {
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    #[serde(borrow)]
    pub version: Cow<'a, str>,
}

/// Returns the `clientInfo` in the parameters of `initialize`, or in the `_meta` of a stateless
/// request. Both are empty if it is missing or malformed.
pub fn client_info(params: &str) -> ClientInfo<'_> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow, rename = "clientInfo")]
        initialize: Option<ClientInfo<'a>>,
        #[serde(borrow, rename = "_meta")]
        meta: Option<Meta<'a>>,
    }
    #[derive(Deserialize)]
    struct Meta<'a> {
        #[serde(borrow, rename = "io.modelcontextprotocol/clientInfo")]
        info: Option<ClientInfo<'a>>,
    }
    let Some(Params { initialize, meta }) = parse_object(params) else { return ClientInfo::default() };
    initialize.or_else(|| meta?.info).unwrap_or_default()
}

/// Returns the request that the parameters of `notifications/cancelled` name. Returns `None` if
/// they are malformed: then the notification must be ignored.
pub fn cancelled_request(params: &str) -> Option<RequestId> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow, rename = "requestId")]
        id: &'a RawValue,
    }
    RequestId::from_raw(parse_object::<Params<'_>>(params)?.id).ok()
}

/// Parses an object. serde would also accept a JSON array, with its items as members in order, so
/// arrays are refused first.
fn parse_object<'a, T: Deserialize<'a>>(params: &'a str) -> Option<T> {
    if params.starts_with('{') { serde_json::from_str(params).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_names_itself_in_either_era() {
        for (params, name, version) in [
            (
                r#"{"protocolVersion":"2025-11-25","clientInfo":{"name":"Z\u0065d","version":"1.2"}}"#,
                "Zed",
                "1.2",
            ),
            (r#"{"_meta":{"io.modelcontextprotocol/clientInfo":{"name":"goose"}}}"#, "goose", ""),
            (r#"{"clientInfo":{"name":5}}"#, "", ""),
            (r#"{"clientInfo":"Zed"}"#, "", ""),
            ("{}", "", ""),
            ("[]", "", ""),
        ] {
            let info = client_info(params);
            assert_eq!((&*info.name, &*info.version), (name, version), "{params}");
        }
    }

    #[test]
    fn the_id_of_a_cancellation_keeps_its_json_type() {
        assert_eq!(cancelled_request(r#"{"requestId":"5","reason":"x"}"#), Some(RequestId::text("5")));
        assert_eq!(cancelled_request(r#"{"requestId":5}"#), Some(RequestId::Number(5)));
        assert_eq!(cancelled_request(r#"{"requestId":null}"#), None);
        assert_eq!(cancelled_request(r#"{}"#), None);
        assert_eq!(cancelled_request(r#"["5"]"#), None);
        assert_eq!(initialize_protocol_version(r#"["2025-11-25"]"#), None);
    }
}
