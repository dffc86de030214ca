//! [`Settings`] of token verification, and the checks that they make sense.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;
use steadfast_client::transport::Tls;

use crate::algorithm::Algorithm;
use crate::jwks::{KeySet, KeySetError};

/// Which tokens are accepted, where the keys come from, and the bounds.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The URL of the endpoint as clients know it. They request tokens for it (RFC 8707).
    pub resource: Uri,
    /// The issuer: the exact value of `iss` in tokens.
    pub issuer: String,
    /// Where the issuer's public keys are.
    pub keys: Keys,
    /// The accepted values of `aud`. Empty: only `resource`.
    pub audiences: Vec<String>,
    /// The accepted signature algorithms.
    pub algorithms: Vec<Algorithm>,
    /// The scopes that every token must have.
    pub scopes: Vec<String>,
    /// The authorization servers that the metadata document names. Empty: the issuer.
    pub authorization_servers: Vec<String>,
    /// Which claims form the principal.
    pub principal: PrincipalClaims,
    /// Every principal starts with this text, so that endpoints that share a store have different
    /// principals.
    pub principal_prefix: String,
    /// The accepted difference between this clock and the issuer's, for `exp` and `nbf`.
    pub leeway: Duration,
    /// The maximum length of a token.
    pub max_token_bytes: usize,
    /// How keys are refreshed.
    pub fetching: Fetching,
    /// The certificate authorities that are trusted when keys are fetched.
    pub tls: Tls,
}

impl Settings {
    /// Returns the default settings for tokens of this issuer.
    pub fn new(resource: Uri, issuer: impl Into<String>, keys: Keys) -> Self {
        Self {
            resource,
            issuer: issuer.into(),
            keys,
            audiences: Vec::new(),
            algorithms: Algorithm::ALL.to_vec(),
            scopes: Vec::new(),
            authorization_servers: Vec::new(),
            principal: PrincipalClaims::Subject,
            principal_prefix: String::new(),
            leeway: Duration::from_secs(30),
            // A token that lists the groups of a user in a large company has some kilobytes.
            max_token_bytes: 16 << 10,
            fetching: Fetching::default(),
            tls: Tls::public(),
        }
    }

    /// Returns true if tokens for this audience are accepted.
    pub(crate) fn is_audience(&self, name: &str) -> bool {
        if self.audiences.is_empty() {
            is_same_resource(name, &self.resource.to_string())
        } else {
            self.audiences.iter().any(|audience| audience == name)
        }
    }

    /// Returns all errors that can be found without fetching keys.
    pub fn faults(&self) -> Vec<StartError> {
        let mut faults = Vec::new();
        let resource = &self.resource;
        let is_absolute = resource.authority().is_some() && resource.query().is_none();
        if !is_absolute || !(is_secure(resource) || is_loopback(resource)) {
            faults.push(StartError::Resource(resource.to_string()));
        }
        if self.issuer.is_empty() {
            faults.push(StartError::Issuer);
        }
        if self.algorithms.is_empty() {
            faults.push(StartError::Algorithms);
        }
        let bad = self.scopes.iter().filter(|scope| !is_scope(scope));
        faults.extend(bad.map(|scope| StartError::Scope(scope.clone())));
        if let Keys::Url(url) = &self.keys
            && !(is_secure(url) || is_loopback(url))
        {
            faults.push(StartError::KeysUrl(url.to_string()));
        }
        faults
    }

    /// Fails with the first of the errors.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        self.faults().into_iter().next().map_or(Ok(()), Err)
    }
}

/// Where the issuer's public keys are, as a JSON Web Key Set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Fetched with https, or with http from a loopback address only.
    Url(Uri),
    /// Read from a file, and read again as often as a URL is fetched.
    File(PathBuf),
}

impl Keys {
    /// Fails unless `text`, the content of `file`, is a usable key set.
    pub fn check_file(file: &Path, text: &str) -> Result<(), StartError> {
        let unusable =
            |error: KeySetError| StartError::KeysFile { file: file.into(), why: error.to_string() };
        KeySet::parse(text.as_bytes()).map(drop).map_err(unusable)
    }
}

/// The claims of a token that form its principal, together with the issuer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrincipalClaims {
    /// The subject. All clients of one user share the user's sessions.
    #[default]
    Subject,
    /// The subject and the client. Two clients of one user have separate sessions.
    SubjectAndClient,
}

/// When keys are fetched, and the bounds of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetching {
    /// How long keys are used before they are fetched again.
    pub fresh: Duration,
    /// How long keys are used if fetching fails. After that every request is refused with 503.
    pub stale: Duration,
    /// The minimum time between two fetches, so that tokens with unknown keys cannot cause more.
    pub pause: Duration,
    /// How long a fetch may take.
    pub timeout: Duration,
    /// The maximum size of a key set.
    pub max_bytes: usize,
}

impl Default for Fetching {
    fn default() -> Self {
        Self {
            fresh: Duration::from_secs(10 * 60),
            stale: Duration::from_secs(24 * 60 * 60),
            pause: Duration::from_secs(5),
            timeout: Duration::from_secs(5),
            max_bytes: 512 << 10,
        }
    }
}

/// Why token verification cannot start. The operator is to blame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    #[error(
        "{0} is not the URL of a resource: use https://HOST/PATH; http is allowed for loopback hosts only"
    )]
    Resource(String),
    #[error("the issuer is empty")]
    Issuer,
    #[error("the list of algorithms is empty")]
    Algorithms,
    #[error("{0:?} is not a scope: it must not be empty, nor contain spaces, quotes or backslashes")]
    Scope(String),
    #[error("{0} is not a URL for keys: use https://HOST/PATH; http is allowed for loopback hosts only")]
    KeysUrl(String),
    #[error("the keys in {} cannot be used: {why}", file.display())]
    KeysFile { file: PathBuf, why: String },
}

/// Returns true if two URLs are equal, apart from a slash at the end.
fn is_same_resource(one: &str, other: &str) -> bool {
    one.strip_suffix('/').unwrap_or(one) == other.strip_suffix('/').unwrap_or(other)
}

fn is_secure(url: &Uri) -> bool {
    url.scheme_str() == Some("https")
}

pub(crate) fn is_loopback(url: &Uri) -> bool {
    url.scheme_str() == Some("http") && matches!(url.host(), Some("localhost" | "127.0.0.1" | "[::1]"))
}

/// Returns true if the text is a `scope-token` (RFC 6749, section 3.3).
fn is_scope(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| matches!(byte, b'!' | b'#'..=b'[' | b']'..=b'~'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_settings_are_refused() {
        let good = || {
            let resource = Uri::from_static("https://mcp.example.com/mcp");
            Settings::new(resource, "https://id.example.com", Keys::File("keys.json".into()))
        };
        assert_eq!(good().check(), Ok(()));
        let resource = |text: &'static str| Settings { resource: Uri::from_static(text), ..good() }.check();
        assert_eq!(resource("http://localhost:7411/mcp"), Ok(()));
        for bad in ["http://mcp.example.com/mcp", "/mcp", "https://a/b?c=d", "ftp://localhost/"] {
            assert_eq!(resource(bad), Err(StartError::Resource(bad.to_owned())));
        }
        let keys =
            |text: &'static str| Settings { keys: Keys::Url(Uri::from_static(text)), ..good() }.check();
        assert_eq!(keys("https://id.example.com/keys"), Ok(()));
        assert_eq!(keys("http://127.0.0.1:80/keys"), Ok(()));
        for bad in ["http://id.example.com/keys", "http://127.0.0.1.example.com/", "/keys"] {
            assert_eq!(keys(bad), Err(StartError::KeysUrl(bad.to_owned())));
        }
        assert_eq!(Settings { issuer: String::new(), ..good() }.check(), Err(StartError::Issuer));
        assert_eq!(Settings { algorithms: Vec::new(), ..good() }.check(), Err(StartError::Algorithms));
        for bad in ["", "a b", "a\"", "\\", "ä"] {
            let scopes = vec!["good:one".to_owned(), bad.to_owned()];
            assert_eq!(Settings { scopes, ..good() }.check(), Err(StartError::Scope(bad.to_owned())));
        }
    }

    #[test]
    fn the_default_audience_is_the_resource() {
        let resource = Uri::from_static("https://mcp.example.com/mcp");
        let mut settings = Settings::new(resource, "i", Keys::File("keys.json".into()));
        let check =
            |settings: &Settings, name, expect| assert_eq!(settings.is_audience(name), expect, "{name}");
        check(&settings, "https://mcp.example.com/mcp", true);
        check(&settings, "https://mcp.example.com/mcp/", true);
        check(&settings, "https://mcp.example.com/", false);
        check(&settings, "https://mcp.example.com/mcp2", false);
        check(&settings, "", false);
        settings.audiences = vec!["api".to_owned()];
        check(&settings, "api", true);
        check(&settings, "https://mcp.example.com/mcp", false);
    }
}
