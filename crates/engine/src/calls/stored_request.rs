//! The text of a request in the store, from which another node can run the request.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use steadfast_wire::rpc::json_string;
use steadfast_wire::{headers, raw_json};

use crate::backend::IncomingMessage;

/// Returns the method, the parameters and the idempotency key of a request as JSON. The rest of the
/// HTTP request is not stored, because it may contain secrets.
pub(crate) fn stored_text(request: &IncomingMessage) -> Bytes {
    let mut text = format!(r#"{{"method":{}"#, json_string(&request.method)).into_bytes();
    if let Some(params) = &request.params {
        text.extend_from_slice(br#","params":"#);
        text.extend_from_slice(params);
    }
    if let Some(key) = request.http.headers.get(headers::IDEMPOTENCY_KEY).and_then(|key| key.to_str().ok()) {
        text.extend_from_slice(format!(r#","idempotencyKey":{}"#, json_string(key)).as_bytes());
    }
    text.push(b'}');
    text.into()
}

/// Parses the output of [`stored_text`].
pub(crate) fn parse_stored(text: &Bytes) -> Option<IncomingMessage> {
    let json = std::str::from_utf8(text).ok()?;
    let method = raw_json::get_string(json, &["method"])?;
    let params = raw_json::get(json, &["params"]).map(|params| text.slice_ref(params.as_bytes()));
    let (mut parts, ()) = http::Request::new(()).into_parts();
    if let Some(key) = raw_json::get_string(json, &["idempotencyKey"]) {
        parts.headers.insert(headers::IDEMPOTENCY_KEY, HeaderValue::from_str(&key).ok()?);
    }
    Some(IncomingMessage { method, params, http: Arc::new(parts) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_request_has_no_http_headers_but_its_key() {
        let key = HeaderValue::from_static("jgOXjkDVQ927k2iUpX-TJA");
        let request = http::Request::builder().header("authorization", "Bearer secret");
        let request = request.header("idempotency-key", &key).body(()).unwrap();
        let http = Arc::new(request.into_parts().0);
        for params in [None, Some(Bytes::from_static(br#"{ "name":"a\"b", "n":1.0 }"#))] {
            let incoming =
                IncomingMessage { method: "tools/\"call".to_owned(), params, http: Arc::clone(&http) };
            let text = stored_text(&incoming);
            assert!(!String::from_utf8_lossy(&text).contains("secret"));
            let again = parse_stored(&text).unwrap();
            assert_eq!((again.method, again.params), (incoming.method, incoming.params));
            let kept: Vec<_> = again.http.headers.iter().collect();
            assert_eq!(kept, [(&http::HeaderName::from_static("idempotency-key"), &key)]);
        }
        assert!(parse_stored(&Bytes::from_static(b"{}")).is_none());
    }
}
