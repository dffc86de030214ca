//! The OAuth 2.0 protected resource metadata document (RFC 9728), which tells clients where to get
//! a token.

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, ALLOW,
    CACHE_CONTROL, CONTENT_TYPE, HeaderValue,
};
use http::{HeaderName, Method, Response, StatusCode, Uri};
use serde_json::json;

use crate::settings::Settings;

const PREFIX: &str = "/.well-known/oauth-protected-resource";

/// Returns the path of the metadata document for the endpoint at `endpoint_path`.
pub fn well_known_path(endpoint_path: &str) -> String {
    format!("{PREFIX}{}", endpoint_path.strip_suffix('/').unwrap_or(endpoint_path))
}

/// Returns the URL of the metadata document, for challenges.
pub(crate) fn url(resource: &Uri) -> String {
    let scheme = resource.scheme_str().unwrap_or("https");
    let authority = resource.authority().map(http::uri::Authority::as_str).unwrap_or_default();
    format!("{scheme}://{authority}{}", well_known_path(resource.path()))
}

/// The metadata document and the path at which to serve it. It is public: every web page may read
/// it without credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The path, derived from the path of the resource. Behind a proxy that removes a prefix of the
    /// path, use [`well_known_path`] with the remaining path.
    pub path: String,
    pub body: Bytes,
}

impl Metadata {
    pub fn new(settings: &Settings) -> Self {
        let servers = match settings.authorization_servers.as_slice() {
            [] => std::slice::from_ref(&settings.issuer),
            servers => servers,
        };
        let mut document = json!({
            "resource": settings.resource.to_string(),
            "authorization_servers": servers,
            "bearer_methods_supported": ["header"],
        });
        if !settings.scopes.is_empty() {
            document["scopes_supported"] = json!(settings.scopes);
        }
        let path = well_known_path(settings.resource.path());
        Self { path, body: document.to_string().into() }
    }

    /// Returns the response to a request with this method.
    pub fn respond(&self, method: &Method) -> Response<Bytes> {
        const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, OPTIONS");
        let (status, body) = match *method {
            Method::GET => (StatusCode::OK, self.body.clone()),
            // The HTTP server removes the body from responses to HEAD.
            Method::HEAD => (StatusCode::OK, self.body.clone()),
            Method::OPTIONS => (StatusCode::NO_CONTENT, Bytes::new()),
            _ => (StatusCode::METHOD_NOT_ALLOWED, Bytes::new()),
        };
        let mut headers: Vec<(HeaderName, HeaderValue)> =
            vec![(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"))];
        match status {
            StatusCode::OK => {
                headers.push((CONTENT_TYPE, HeaderValue::from_static("application/json")));
                headers.push((CACHE_CONTROL, HeaderValue::from_static("public, max-age=300")));
            }
            StatusCode::NO_CONTENT => {
                headers.push((ACCESS_CONTROL_ALLOW_METHODS, METHODS));
                // MCP clients send `MCP-Protocol-Version` with this request, which needs
                // permission.
                headers.push((ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("*")));
            }
            _ => headers.push((ALLOW, METHODS)),
        }
        let mut response = Response::new(body);
        *response.status_mut() = status;
        response.headers_mut().extend(headers);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Keys;

    #[test]
    fn the_path_of_the_resource_comes_after_the_well_known_one() {
        for (resource, path, url) in [
            (
                "https://a.example/mcp",
                "/.well-known/oauth-protected-resource/mcp",
                "https://a.example/.well-known/oauth-protected-resource/mcp",
            ),
            (
                "https://a.example:8443/team/mcp/",
                "/.well-known/oauth-protected-resource/team/mcp",
                "https://a.example:8443/.well-known/oauth-protected-resource/team/mcp",
            ),
            (
                "http://localhost:7411",
                "/.well-known/oauth-protected-resource",
                "http://localhost:7411/.well-known/oauth-protected-resource",
            ),
        ] {
            let uri: Uri = resource.parse().unwrap();
            assert_eq!(well_known_path(uri.path()), path);
            assert_eq!(super::url(&uri), url);
        }
    }

    #[test]
    fn the_document_names_the_authorization_servers() {
        let resource = Uri::from_static("https://a.example/mcp");
        let mut settings = Settings::new(resource, "https://id.example", Keys::File("k".into()));
        let text = |settings: &Settings| String::from_utf8(Metadata::new(settings).body.to_vec()).unwrap();
        assert_eq!(
            text(&settings),
            r#"{"authorization_servers":["https://id.example"],"bearer_methods_supported":["header"],"resource":"https://a.example/mcp"}"#
        );
        settings.scopes = vec!["mcp".to_owned()];
        settings.authorization_servers = vec!["https://login.example".to_owned()];
        assert_eq!(
            text(&settings),
            r#"{"authorization_servers":["https://login.example"],"bearer_methods_supported":["header"],"resource":"https://a.example/mcp","scopes_supported":["mcp"]}"#
        );
    }

    #[test]
    fn every_origin_may_read_the_document() {
        let resource = Uri::from_static("https://a.example/mcp");
        let metadata = Metadata::new(&Settings::new(resource, "i", Keys::File("k".into())));
        for (method, status, has_body) in [
            (Method::GET, 200, true),
            (Method::HEAD, 200, true),
            (Method::OPTIONS, 204, false),
            (Method::POST, 405, false),
            (Method::DELETE, 405, false),
        ] {
            let response = metadata.respond(&method);
            assert_eq!(response.status().as_u16(), status, "{method}");
            assert_eq!(response.headers()["access-control-allow-origin"], "*", "{method}");
            assert_eq!(!response.body().is_empty(), has_body, "{method}");
        }
    }
}
