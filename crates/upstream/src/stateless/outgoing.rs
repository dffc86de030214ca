//! A request as the server gets it. Pure.

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use steadfast_engine::Incoming;
use steadfast_wire::rpc::json_string;
use steadfast_wire::{headers, mirrored};

use crate::config::Credential;
use crate::stdio::splice;

/// A request, and what its client calls its progress.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) request: Request<Bytes>,
    /// The JSON text of the client's progress token.
    pub(super) token: Option<String>,
}

impl Outgoing {
    /// `fixed` is what the operator wants on every request.
    pub(super) fn new(
        incoming: &Incoming,
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
        *request.headers_mut() = heads(&incoming.method, &incoming.http.headers, fixed, credential);
        Self { request, token }
    }
}

/// The parameters with our progress token in the place of the client's.
fn params(params: Option<&Bytes>, own_id: i64) -> (Option<Bytes>, Option<String>) {
    let text = params.and_then(|params| std::str::from_utf8(params).ok());
    let Some(text) = text else { return (params.cloned(), None) };
    match splice::find(text, &["_meta", "progressToken"]) {
        Some(part) => {
            let token = text[part.clone()].to_owned();
            (Some(splice::replace(text, &[(part, &own_id.to_string())])), Some(token))
        }
        None => (params.cloned(), None),
    }
}

/// What mirrors the body goes on as it came. The version, the method and the name were compared with the body then; a name of a
/// method that has none was not, and stays here. `Mcp-Param-*` was not either: only the tool's schema says which arguments they
/// repeat, and whoever has that, the server, compares them. Nothing else of the client's goes on, but for its credential if the
/// operator says so.
fn heads(method: &str, client: &HeaderMap, fixed: &HeaderMap, credential: &Credential) -> HeaderMap {
    let mut heads = fixed.clone();
    let is_mirror = |name: &str| match name {
        headers::PROTOCOL_VERSION | headers::METHOD => true,
        headers::NAME => mirrored::name_member(method).is_some(),
        other => other.starts_with(headers::PARAM_PREFIX),
    };
    for name in client.keys().filter(|name| is_mirror(name.as_str())) {
        heads.remove(name);
        for value in client.get_all(name) {
            heads.append(name.clone(), value.clone());
        }
    }
    let shown = match credential {
        Credential::None => None,
        Credential::Forwarded => client.get(AUTHORIZATION).cloned(),
        Credential::Own(value) => Some(value.clone()),
    };
    if let Some(mut value) = shown {
        value.set_sensitive(true);
        heads.insert(AUTHORIZATION, value);
    }
    heads.insert(CONTENT_TYPE, HeaderValue::from_static(headers::JSON));
    heads.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    heads
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn incoming(params: Option<&'static str>) -> Incoming {
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
        Incoming { method: "tools/call".to_owned(), params, http: Arc::new(parts) }
    }

    fn check(credential: &Credential, authorization: Option<&str>) {
        let mut fixed = HeaderMap::new();
        fixed.insert("x-key", HeaderValue::from_static("k"));
        let url = Uri::from_static("http://server/mcp");
        let outgoing = Outgoing::new(&incoming(None), 7, &url, &fixed, credential);
        let mut seen: Vec<_> = outgoing
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
        assert_eq!(outgoing.request.uri(), &url);
    }

    #[test]
    fn only_what_mirrors_the_body_goes_on() {
        check(&Credential::None, None);
        check(&Credential::Forwarded, Some("Bearer theirs"));
        check(&Credential::Own(HeaderValue::from_static("Bearer ours")), Some("Bearer ours"));
    }

    /// Nobody has compared it with anything.
    #[test]
    fn the_name_of_a_method_that_has_none_stays_here() {
        let url = Uri::from_static("http://server/mcp");
        for (method, expect) in [("tools/list", None), ("prompts/get", Some("=?base64?w6k=?="))] {
            let incoming = Incoming { method: method.to_owned(), ..incoming(None) };
            let outgoing = Outgoing::new(&incoming, 7, &url, &HeaderMap::new(), &Credential::None);
            let name = outgoing.request.headers().get("mcp-name").map(|name| name.to_str().unwrap());
            assert_eq!(name, expect, "{method}");
        }
    }

    #[test]
    fn the_parameters_stay_but_for_the_token() {
        let url = Uri::from_static("http://server/mcp");
        let body = |params| {
            let outgoing = Outgoing::new(&incoming(params), 7, &url, &HeaderMap::new(), &Credential::None);
            (String::from_utf8(outgoing.request.body().to_vec()).unwrap(), outgoing.token)
        };
        assert_eq!(body(None), (r#"{"jsonrpc":"2.0","id":7,"method":"tools/call"}"#.to_owned(), None));
        let params = r#"{ "requestState":"\u0041", "_meta":{"a": 1.0,"progressToken": "t" } }"#;
        let expect = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{ "requestState":"\u0041", "_meta":{"a": 1.0,"progressToken": 7 } }}"#;
        assert_eq!(body(Some(params)), (expect.to_owned(), Some("\"t\"".to_owned())));
    }
}
