//! Builds the HTTP request that the server gets for a request without a session.

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use steadfast_engine::IncomingMessage;
use steadfast_wire::rpc::json_string;
use steadfast_wire::{header_annotations, headers, raw_json};

use crate::config::Credential;

/// A request to the server, and the client's progress token.
#[derive(Debug)]
pub(super) struct UpstreamRequest {
    pub(super) request: Request<Bytes>,
    /// The JSON text of the client's progress token.
    pub(super) token: Option<String>,
}

impl UpstreamRequest {
    /// Builds the request. `fixed` are the headers that the operator has configured.
    pub(super) fn new(
        incoming: &IncomingMessage,
        own_id: i64,
        url: &Uri,
        fixed: &HeaderMap,
        credential: &Credential,
    ) -> Self {
        let (params, token) = params(incoming.params.as_ref(), own_id);
        let method = json_string(&incoming.method);
        let mut body = format!(r#"{{"jsonrpc":"2.0","id":{own_id},"method":{method}"#).into_bytes();
        if let Some(params) = params {
            body.extend_from_slice(br#","params":"#);
            body.extend_from_slice(&params);
        }
        body.push(b'}');
        let mut request = Request::new(Bytes::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = url.clone();
        *request.headers_mut() = request_headers(&incoming.method, &incoming.http.headers, fixed, credential);
        Self { request, token }
    }
}

/// Returns the parameters with the gateway's progress token, and that of the client.
fn params(params: Option<&Bytes>, own_id: i64) -> (Option<Bytes>, Option<String>) {
    let text = params.and_then(|params| std::str::from_utf8(params).ok());
    let Some(text) = text else { return (params.cloned(), None) };
    match raw_json::find(text, &["_meta", "progressToken"]) {
        Some(part) => {
            let token = text[part.clone()].to_owned();
            (Some(raw_json::replace(text, &[(part, &own_id.to_string())])), Some(token))
        }
        None => (params.cloned(), None),
    }
}

/// Builds the headers. Forwards those that mirror the body, unchanged. The gateway has compared the
/// version, the method and the name with the body. It does not forward a name for a method that has
/// none, because that was not compared. It has not compared `Mcp-Param-*` either: only the server
/// knows the schema of the tool, and compares them itself. Forwards no other header of the client,
/// except its credentials if the operator has configured that.
fn request_headers(
    method: &str,
    client: &HeaderMap,
    fixed: &HeaderMap,
    credential: &Credential,
) -> HeaderMap {
    let mut forwarded = fixed.clone();
    let is_mirror = |name: &str| match name {
        headers::PROTOCOL_VERSION | headers::METHOD => true,
        headers::NAME => header_annotations::name_member(method).is_some(),
        other => other.starts_with(headers::PARAM_PREFIX),
    };
    for name in client.keys().filter(|name| is_mirror(name.as_str())) {
        forwarded.remove(name);
        for value in client.get_all(name) {
            forwarded.append(name.clone(), value.clone());
        }
    }
    let authorization = match credential {
        Credential::None => None,
        Credential::Forwarded => client.get(AUTHORIZATION).cloned(),
        Credential::Own(value) => Some(value.clone()),
    };
    if let Some(mut value) = authorization {
        value.set_sensitive(true);
        forwarded.insert(AUTHORIZATION, value);
    }
    forwarded.insert(CONTENT_TYPE, HeaderValue::from_static(headers::JSON));
    forwarded.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    forwarded
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn incoming(params: Option<&'static str>) -> IncomingMessage {
        let (mut parts, ()) = Request::new(()).into_parts();
        for (name, value) in [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "=?base64?w6k=?="),
            ("mcp-param-region", "eu"),
            ("authorization", "Bearer theirs"),
            ("cookie", "a=b"),
            ("mcp-session-id", "s"),
            ("x-forwarded-for", "1.2.3.4"),
            ("accept", "text/event-stream"),
        ] {
            parts.headers.append(name, HeaderValue::from_static(value));
        }
        let params = params.map(|text| Bytes::from_static(text.as_bytes()));
        IncomingMessage { method: "tools/call".to_owned(), params, http: Arc::new(parts) }
    }

    fn check(credential: &Credential, authorization: Option<&str>) {
        let mut fixed = HeaderMap::new();
        fixed.insert("x-key", HeaderValue::from_static("k"));
        let url = Uri::from_static("http://server/mcp");
        let request = UpstreamRequest::new(&incoming(None), 7, &url, &fixed, credential);
        let mut seen: Vec<_> = request
            .request
            .headers()
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        seen.sort_unstable();
        let mut expect = vec![
            "accept: application/json, text/event-stream".to_owned(),
            "content-type: application/json".to_owned(),
            "mcp-method: tools/call".to_owned(),
            "mcp-name: =?base64?w6k=?=".to_owned(),
            "mcp-param-region: eu".to_owned(),
            "mcp-protocol-version: 2026-07-28".to_owned(),
            "x-key: k".to_owned(),
        ];
        expect.extend(authorization.map(|value| format!("authorization: {value}")));
        expect.sort_unstable();
        assert_eq!(seen, expect);
        assert_eq!(request.request.uri(), &url);
    }

    #[test]
    fn only_headers_that_mirror_the_body_are_forwarded() {
        check(&Credential::None, None);
        check(&Credential::Forwarded, Some("Bearer theirs"));
        check(&Credential::Own(HeaderValue::from_static("Bearer ours")), Some("Bearer ours"));
    }

    /// Such a name was not compared with the body.
    #[test]
    fn a_name_for_a_method_that_has_none_is_not_forwarded() {
        let url = Uri::from_static("http://server/mcp");
        for (method, expect) in [("tools/list", None), ("prompts/get", Some("=?base64?w6k=?="))] {
            let incoming = IncomingMessage { method: method.to_owned(), ..incoming(None) };
            let request = UpstreamRequest::new(&incoming, 7, &url, &HeaderMap::new(), &Credential::None);
            let name = request.request.headers().get("mcp-name").map(|name| name.to_str().unwrap());
            assert_eq!(name, expect, "{method}");
        }
    }

    #[test]
    fn the_parameters_stay_except_for_the_token() {
        let url = Uri::from_static("http://server/mcp");
        let body = |params| {
            let request =
                UpstreamRequest::new(&incoming(params), 7, &url, &HeaderMap::new(), &Credential::None);
            (String::from_utf8(request.request.body().to_vec()).unwrap(), request.token)
        };
        assert_eq!(body(None), (r#"{"jsonrpc":"2.0","id":7,"method":"tools/call"}"#.to_owned(), None));
        let params = r#"{ "requestState":"\u0041", "_meta":{"a": 1.0,"progressToken": "t" } }"#;
        let expect = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{ "requestState":"\u0041", "_meta":{"a": 1.0,"progressToken": 7 } }}"#;
        assert_eq!(body(Some(params)), (expect.to_owned(), Some("\"t\"".to_owned())));
    }
}
