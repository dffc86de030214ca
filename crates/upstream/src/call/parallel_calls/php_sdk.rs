//! Recognises php-sdk, whose parallel calls overwrite each other's session, without a check.

use bytes::Bytes;
use http::header::ALLOW;
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use serde::Deserialize;
use steadfast_client::transport::Body;

/// More than the body that php-sdk sends.
const MAX_BODY_BYTES: usize = 4096;

/// Returns true if this is php-sdk's response to the GET of a standalone stream, which it does not
/// offer: a JSON-RPC error with an empty id or none, and the methods in this order. All releases
/// from 0.4.0 send it, whatever web server runs them.
pub(super) async fn sent(response: http::Response<Body>) -> bool {
    let (head, body) = response.into_parts();
    if head.status != StatusCode::METHOD_NOT_ALLOWED || !allows_like_php_sdk(&head.headers) {
        return false;
    }
    Limited::new(body, MAX_BODY_BYTES).collect().await.is_ok_and(|body| is_php_sdk_error(&body.to_bytes()))
}

fn allows_like_php_sdk(headers: &HeaderMap) -> bool {
    headers.get(ALLOW).is_some_and(|methods| methods == "POST, DELETE, OPTIONS")
}

fn is_php_sdk_error(body: &Bytes) -> bool {
    #[derive(Deserialize)]
    struct Response {
        #[serde(default)]
        id: String,
        error: ErrorObject,
    }
    #[derive(Deserialize)]
    struct ErrorObject {
        code: i64,
        message: String,
    }
    serde_json::from_slice::<Response>(body).is_ok_and(|response| {
        response.id.is_empty()
            && response.error.code == -32600
            && response.error.message == "Method Not Allowed"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_error_counts() {
        let is_php_sdk = |text: &'static str| is_php_sdk_error(&Bytes::from_static(text.as_bytes()));
        for own in [
            r#"{"jsonrpc":"2.0","id":"","error":{"code":-32600,"message":"Method Not Allowed"}}"#,
            r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"Method Not Allowed"}}"#,
        ] {
            assert!(is_php_sdk(own), "{own}");
        }
        for other in [
            "",
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Method Not Allowed"}}"#,
            r#"{"jsonrpc":"2.0","id":"","error":{"code":-32000,"message":"Method not allowed."}}"#,
        ] {
            assert!(!is_php_sdk(other), "{other}");
        }
    }
}
