//! Checks the claims of a token (RFC 7519) and derives the principal from them.

use serde::Deserialize;
use serde_json::json;
use steadfast_engine::Time;

use crate::settings::{PrincipalClaims, Settings};

/// The maximum length of `sub` and of the client's id. OpenID Connect allows a `sub` of 255 bytes.
pub const MAX_CLAIM_BYTES: usize = 512;

/// Why a token is refused. The client or its authorization server is to blame for all of these.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("more than one Authorization header was sent")]
    Several,
    #[error("the token is longer than {max_bytes} bytes")]
    TooLong { max_bytes: usize },
    #[error("this is not a signed JSON Web Token")]
    Malformed,
    #[error("the token requires extensions that are not supported")]
    Critical,
    #[error("the token is not an access token")]
    OtherKind,
    #[error("the algorithm of the token is not accepted")]
    Algorithm,
    #[error("the key of the token is unknown")]
    UnknownKey,
    #[error("the token does not say which key it was signed with")]
    AmbiguousKey,
    #[error("the signature of the token is wrong")]
    Signature,
    #[error("a claim of the token (iss, aud, exp, sub) is missing or has the wrong type")]
    Claims,
    #[error("the token is from another issuer")]
    Issuer,
    #[error("the token is for another audience")]
    Audience,
    #[error("the token has expired")]
    Expired,
    #[error("the token is not valid yet")]
    NotYet,
    #[error("the subject of the token is empty or too long")]
    Subject,
    #[error("the token has no client id, or one that is too long")]
    Client,
    /// The token is valid but lacks a required scope. The response is 403 instead of 401.
    #[error("the token lacks a scope")]
    Scope,
}

/// Checks the claims of a token whose signature has been verified. Returns the name of the
/// principal that the token identifies.
pub(crate) fn check(text: &[u8], settings: &Settings, now: Time) -> Result<String, TokenError> {
    let claims: Claims = serde_json::from_slice(text).map_err(|_| TokenError::Claims)?;
    if claims.iss != settings.issuer {
        return Err(TokenError::Issuer);
    }
    if !claims.aud.iter().any(|name| settings.is_audience(name)) {
        return Err(TokenError::Audience);
    }
    let (now, leeway) = (now.0 as f64 / 1000.0, settings.leeway.as_secs_f64());
    // JSON has no NaN, for which both comparisons would be false.
    if now >= claims.exp + leeway {
        return Err(TokenError::Expired);
    }
    if claims.nbf.is_some_and(|nbf| nbf - leeway > now) {
        return Err(TokenError::NotYet);
    }
    let name = claims.principal(settings.principal)?;
    if !settings.scopes.iter().all(|scope| claims.has_scope(scope)) {
        return Err(TokenError::Scope);
    }
    Ok(name)
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    aud: OneOrMore,
    exp: f64,
    nbf: Option<f64>,
    sub: String,
    /// RFC 9068: one text of scopes separated by spaces. Some issuers send an array.
    scope: Option<OneOrMore>,
    /// The scopes in tokens of Microsoft and Okta.
    scp: Option<OneOrMore>,
    client_id: Option<String>,
    /// The client id in OpenID Connect tokens.
    azp: Option<String>,
}

impl Claims {
    /// Returns the name of the principal: a JSON array, so that different claims always result in
    /// different names.
    fn principal(&self, claims: PrincipalClaims) -> Result<String, TokenError> {
        let has_valid_length = |name: &&str| !name.is_empty() && name.len() <= MAX_CLAIM_BYTES;
        let subject = Some(self.sub.as_str()).filter(has_valid_length).ok_or(TokenError::Subject)?;
        Ok(match claims {
            PrincipalClaims::Subject => json!([self.iss, subject]).to_string(),
            PrincipalClaims::SubjectAndClient => {
                let client = self.client_id.as_deref().or(self.azp.as_deref());
                let client = client.filter(has_valid_length).ok_or(TokenError::Client)?;
                json!([self.iss, subject, client]).to_string()
            }
        })
    }

    fn has_scope(&self, wanted: &str) -> bool {
        let lists = [&self.scope, &self.scp].into_iter().flatten();
        lists.flat_map(OneOrMore::iter).flat_map(|text| text.split(' ')).any(|scope| scope == wanted)
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    fn iter(&self) -> impl Iterator<Item = &str> {
        let list = match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::More(list) => list,
        };
        list.iter().map(String::as_str)
    }
}
