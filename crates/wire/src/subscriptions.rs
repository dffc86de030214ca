//! The messages that a server sends for `subscriptions/listen`.

use crate::id::RequestId;
use crate::params::{META_SERVER_INFO, META_SUBSCRIPTION_ID};

pub const METHOD: &str = "subscriptions/listen";
pub const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// Writes a notification of a subscription. `members` is the JSON text of its parameters without
/// the braces.
pub fn notification(method: &str, members: &str, subscription: &RequestId) -> Vec<u8> {
    let comma = if members.is_empty() { "" } else { "," };
    format!(
        r#"{{"jsonrpc":"2.0","method":"{method}","params":{{{members}{comma}"_meta":{{"{META_SUBSCRIPTION_ID}":{subscription}}}}}}}"#
    )
    .into_bytes()
}

/// Writes the result of a subscription that the server ends. `server_info` is JSON text.
pub fn result(subscription: &RequestId, server_info: &str) -> Vec<u8> {
    format!(
        r#"{{"resultType":"complete","_meta":{{"{META_SUBSCRIPTION_ID}":{subscription},"{META_SERVER_INFO}":{server_info}}}}}"#
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subscription_id_keeps_its_json_type() {
        let text = |id| String::from_utf8(notification("m", r#""uri":"a""#, &id)).unwrap();
        assert_eq!(
            text(RequestId::Number(7)),
            r#"{"jsonrpc":"2.0","method":"m","params":{"uri":"a","_meta":{"io.modelcontextprotocol/subscriptionId":7}}}"#
        );
        assert!(text(RequestId::text("7")).contains(r#"subscriptionId":"7""#));
    }
}
