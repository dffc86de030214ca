//! How an endpoint authenticates its clients: `auth` and `[endpoint.jwt]` as they are written in
//! the file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steadfast_auth::Algorithm;

use super::values::OneOrMany;

/// How clients are authenticated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Auth {
    /// Not at all: every client that reaches the endpoint may use it
    #[default]
    None,
    /// By the server, which gets the client's `Authorization` header unchanged. A session belongs
    /// to the credentials that opened it
    Forward,
    /// By the gateway, which verifies access tokens and does not pass them on. A session belongs to
    /// the subject of the token. Set STEADFAST__DEFAULTS__JWT__ISSUER, __JWKS and __RESOURCE, or
    /// use --config
    Jwt,
}

/// Which access tokens are accepted.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct JwtTable {
    /// The issuer of tokens: exactly the value of their claim `iss`. Required.
    pub(crate) issuer: Option<String>,
    /// The URL of the endpoint as clients know it, for which they request tokens. Required.
    pub(crate) resource: Option<String>,
    /// The JSON Web Key Set of the issuer: an `https` URL (`http` on this machine only), or the
    /// path of a file. Required.
    pub(crate) jwks: Option<String>,
    /// A PEM file with the certificate authorities to trust when the key set is fetched. Unset: the
    /// authorities that browsers trust.
    pub(crate) jwks_ca: Option<String>,
    /// Accepted values of the claim `aud`: a text or a list. Empty: the resource.
    pub(crate) audience: OneOrMany,
    /// Accepted signature algorithms.
    pub(crate) algorithms: Vec<String>,
    /// Scopes that every token needs. A request whose token lacks one is refused with 403.
    pub(crate) scopes: Vec<String>,
    /// The authorization servers that clients are sent to for a token. Empty: the issuer.
    pub(crate) authorization_servers: Vec<String>,
    /// Whom a session belongs to: `"subject"`, or `"subject-and-client"` to separate the clients of
    /// one user.
    pub(crate) principal: PrincipalClaim,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PrincipalClaim {
    /// The subject: all clients of one user share their sessions.
    Subject,
    /// The subject and the client: a client cannot use the sessions of another client of the same
    /// user.
    SubjectAndClient,
}

impl Default for JwtTable {
    fn default() -> Self {
        Self {
            issuer: None,
            resource: None,
            jwks: None,
            jwks_ca: None,
            audience: OneOrMany::none(),
            algorithms: Algorithm::ALL.iter().map(ToString::to_string).collect(),
            scopes: Vec::new(),
            authorization_servers: Vec::new(),
            principal: PrincipalClaim::Subject,
        }
    }
}

impl JwtTable {
    /// Returns true if both tables fetch the key set from the same source.
    pub(crate) fn has_same_jwks(&self, other: &Self) -> bool {
        (&self.jwks, &self.jwks_ca) == (&other.jwks, &other.jwks_ca)
    }
}
