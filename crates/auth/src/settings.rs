//! What the verification of tokens can be told.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;
use steadfast_client::transport::Tls;

use crate::algorithm::Algorithm;
use crate::jwks::{KeySet, KeySetError};

/// Which tokens are good here, and every bound.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address of the endpoint as its clients know it. They ask for tokens for it (RFC 8707).
    pub resource: Uri,
    /// Who gives tokens: exactly what they say in `iss`.
    pub issuer: String,
    pub keys: Keys,
    /// Tokens are for one of these. None: for the resource.
    pub audiences: Vec<String>,
    /// How tokens may be signed.
    pub algorithms: Vec<Algorithm>,
    /// What every token needs. None: nothing.
    pub scopes: Vec<String>,
    /// Where clients are sent for a token. None: to the issuer.
    pub authorization_servers: Vec<String>,
    pub names: Names,
    /// How far the clocks of others may be off.
    pub leeway: Duration,
    /// The longest token.
    pub max_token_bytes: usize,
    pub fetching: Fetching,
    /// Whom to believe where keys are fetched.
    pub tls: Tls,
}

impl Settings {
    /// Every default, for tokens of this issuer.
    pub fn new(resource: Uri, issuer: impl Into<String>, keys: Keys) -> Self {
        Self {
            resource,
            issuer: issuer.into(),
            keys,
            audiences: Vec::new(),
            algorithms: Algorithm::ALL.to_vec(),
            scopes: Vec::new(),
            authorization_servers: Vec::new(),
            names: Names::Subject,
            leeway: Duration::from_secs(30),
            // Tokens with the groups of large companies have some kilobytes.
            max_token_bytes: 16 << 10,
            fetching: Fetching::default(),
            tls: Tls::public(),
        }
    }

    pub(crate) fn is_audience(&self, name: &str) -> bool {
        if self.audiences.is_empty() {
            is_same_resource(name, &self.resource.to_string())
        } else {
            self.audiences.iter().any(|audience| audience == name)
        }
    }

    /// Everything that cannot be meant, as far as that can be told without a look at keys.
    pub fn faults(&self) -> Vec<StartError> {
        let mut faults = Vec::new();
        let resource = &self.resource;
        let has_place = resource.authority().is_some() && resource.query().is_none();
        if !has_place || !(is_secure(resource) || is_loopback(resource)) {
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

    pub(crate) fn check(&self) -> Result<(), StartError> {
        self.faults().into_iter().next().map_or(Ok(()), Err)
    }
}

/// Where the issuer's public keys are, as a JSON Web Key Set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Over https; over http from this machine only.
    Url(Uri),
    /// Read again as often as an address would be.
    File(PathBuf),
}

impl Keys {
    /// Whether this is what a file of keys has to have in it.
    pub fn check_file(file: &Path, text: &str) -> Result<(), StartError> {
        let unusable =
            |error: KeySetError| StartError::KeysFile { file: file.into(), why: error.to_string() };
        KeySet::parse(text.as_bytes()).map(drop).map_err(unusable)
    }
}

/// What makes a principal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Names {
    /// The subject of its token, whichever client it uses.
    #[default]
    Subject,
    /// The subject with the client: one program's sessions are not another's, even of the same user.
    SubjectAndClient,
}

/// How keys are kept up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetching {
    /// How long keys are used without a look for newer ones.
    pub fresh: Duration,
    /// How long keys are used while newer ones cannot be had. After that nobody can be told.
    pub stale: Duration,
    /// The shortest time between two looks, whatever tokens say of unknown keys.
    pub pause: Duration,
    /// How long a look may take.
    pub timeout: Duration,
    /// The largest key set.
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

/// Why tokens cannot be verified at all: the operator is to blame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    #[error("{0} is not the address of a resource: write https://HOST/PATH; http is for this machine only")]
    Resource(String),
    #[error("the issuer has no name")]
    Issuer,
    #[error("no algorithm is accepted")]
    Algorithms,
    #[error("{0:?} is not a scope: it needs letters, and no spaces, quotes or backslashes")]
    Scope(String),
    #[error("{0} is not an address for keys: write https://HOST/PATH; http is for this machine only")]
    KeysUrl(String),
    #[error("the keys in {} cannot be used: {why}", file.display())]
    KeysFile { file: PathBuf, why: String },
}

/// Whether two addresses name one resource: with or without a slash at the end.
fn is_same_resource(one: &str, other: &str) -> bool {
    one.strip_suffix('/').unwrap_or(one) == other.strip_suffix('/').unwrap_or(other)
}

fn is_secure(url: &Uri) -> bool {
    url.scheme_str() == Some("https")
}

pub(crate) fn is_loopback(url: &Uri) -> bool {
    url.scheme_str() == Some("http") && matches!(url.host(), Some("localhost" | "127.0.0.1" | "[::1]"))
}

/// RFC 6749, 3.3.
fn is_scope(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| matches!(byte, b'!' | b'#'..=b'[' | b']'..=b'~'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_be_meant_are_refused() {
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
    fn a_token_is_for_the_resource_unless_said_otherwise() {
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
