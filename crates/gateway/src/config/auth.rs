//! Who may use an endpoint.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steadfast_auth as auth;

use super::setting::Setting as _;
use super::values::{OneOrMany, Size, Time};

/// How clients prove who they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Auth {
    /// Not at all: whoever reaches the endpoint may use it.
    #[default]
    None,
    /// The server decides: it gets each client's `Authorization` as it came. A session belongs to those who show the
    /// credentials that it was opened with.
    Forward,
    /// By an access token that is verified here and goes no further. A session belongs to the subject of the token that it was
    /// opened with.
    Jwt,
}

/// Which access tokens are good.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Jwt {
    /// Who gives tokens: exactly what they say in `iss`. Needed.
    pub(crate) issuer: Option<String>,
    /// The address of the endpoint as its clients know it, which they ask for tokens for. Needed.
    pub(crate) resource: Option<String>,
    /// Where the issuer's public keys are, as a JSON Web Key Set: an `https` address (`http` for this machine only), or the path of a file. Needed.
    pub(crate) keys: Option<String>,
    /// What tokens say in `aud`: a text, or a list of which one is enough. The resource unless set.
    pub(crate) audience: OneOrMany,
    /// How tokens may be signed.
    pub(crate) algorithms: Vec<String>,
    /// What every token needs. A request whose token lacks one is refused with 403.
    pub(crate) scopes: Vec<String>,
    /// Where clients are sent for a token. To the issuer unless set.
    pub(crate) authorization_servers: Vec<String>,
    /// Whose sessions they are.
    pub(crate) principal: Names,
    /// How far the clocks of others may be off.
    pub(crate) leeway: Time,
    /// The longest token.
    pub(crate) max_token_bytes: Size,
    /// How long keys are used without a look for newer ones.
    pub(crate) keys_fresh: Time,
    /// How long keys are used while newer ones cannot be had. After that requests are refused with 503.
    pub(crate) keys_stale: Time,
    /// The shortest time between two looks for keys.
    pub(crate) keys_pause: Time,
    /// How long a look for keys may take.
    pub(crate) keys_timeout: Time,
    /// The largest key set.
    pub(crate) keys_max_bytes: Size,
    /// A PEM file with the authorities to believe, and no others, where keys are fetched. Those that browsers believe, unless set.
    pub(crate) keys_ca: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Names {
    /// The subject's of the token, whichever client it uses.
    Subject,
    /// The subject's with this client: one program's sessions are not another's, even of the same user.
    SubjectAndClient,
}

impl Default for Jwt {
    fn default() -> Self {
        let nowhere = auth::Keys::File(std::path::PathBuf::new());
        let plain = auth::Settings::new(http::Uri::default(), "", nowhere);
        Self {
            issuer: None,
            resource: None,
            keys: None,
            audience: OneOrMany::none(),
            algorithms: plain.algorithms.iter().map(ToString::to_string).collect(),
            scopes: plain.scopes,
            authorization_servers: plain.authorization_servers,
            principal: match plain.names {
                auth::Names::Subject => Names::Subject,
                auth::Names::SubjectAndClient => Names::SubjectAndClient,
            },
            leeway: Time(plain.leeway),
            max_token_bytes: Size(plain.max_token_bytes as u64),
            keys_fresh: Time(plain.fetching.fresh),
            keys_stale: Time(plain.fetching.stale),
            keys_pause: Time(plain.fetching.pause),
            keys_timeout: Time(plain.fetching.timeout),
            keys_max_bytes: Size(plain.fetching.max_bytes as u64),
            keys_ca: None,
        }
    }
}

impl Jwt {
    /// Whether keys come from the same place in the same way.
    pub(crate) fn has_keys_of(&self, other: &Self) -> bool {
        let how = |jwt: &Self| {
            (jwt.keys_fresh, jwt.keys_stale, jwt.keys_pause, jwt.keys_timeout, jwt.keys_max_bytes)
        };
        (&self.keys, &self.keys_ca, how(self)) == (&other.keys, &other.keys_ca, how(other))
    }

    /// All but what needs a look at what is written: who, where and for whom.
    pub(crate) fn apply(&self, plain: &mut auth::Settings) {
        plain.audiences = self.audience.all().to_vec();
        plain.scopes.clone_from(&self.scopes);
        plain.authorization_servers.clone_from(&self.authorization_servers);
        plain.names = match self.principal {
            Names::Subject => auth::Names::Subject,
            Names::SubjectAndClient => auth::Names::SubjectAndClient,
        };
        self.leeway.put(&mut plain.leeway);
        self.max_token_bytes.put(&mut plain.max_token_bytes);
        self.keys_fresh.put(&mut plain.fetching.fresh);
        self.keys_stale.put(&mut plain.fetching.stale);
        self.keys_pause.put(&mut plain.fetching.pause);
        self.keys_timeout.put(&mut plain.fetching.timeout);
        self.keys_max_bytes.put(&mut plain.fetching.max_bytes);
    }
}
