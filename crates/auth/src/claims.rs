//! What a token says, and whether that is enough.

use serde::Deserialize;
use serde_json::json;
use steadfast_engine::Time;

use crate::settings::{Names, Settings};

/// The longest name of a subject or a client. OpenID Connect allows 255.
pub const MAX_CLAIM_BYTES: usize = 512;

/// Why a token is not good. The client is to blame, or whoever gave it the token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("more than one Authorization header was sent")]
    Several,
    #[error("the token is longer than {max_bytes} bytes")]
    TooLong { max_bytes: usize },
    #[error("this is not a signed JSON Web Token")]
    Malformed,
    #[error("the token demands extensions that are not known here")]
    Critical,
    #[error("the token is not an access token")]
    OtherKind,
    #[error("the algorithm of the token is not accepted")]
    Algorithm,
    #[error("the key of the token is not known")]
    UnknownKey,
    #[error("the token does not say which key it was signed with")]
    AmbiguousKey,
    #[error("the signature of the token is wrong")]
    Signature,
    #[error("the claims of the token cannot be read")]
    Claims,
    #[error("the token is from another issuer")]
    Issuer,
    #[error("the token is for another audience")]
    Audience,
    #[error("the token has expired")]
    Expired,
    #[error("the token is not valid yet")]
    NotYet,
    #[error("the token does not say who its subject is, or at too great length")]
    Subject,
    #[error("the token does not say who its client is, or at too great length")]
    Client,
    /// It is good, and not for this.
    #[error("the token lacks a scope")]
    Scope,
}

/// Checks the claims of a token whose signature is good, and gives the name of its principal.
pub(crate) fn check(text: &[u8], settings: &Settings, now: Time) -> Result<String, TokenError> {
    let claims: Claims = serde_json::from_slice(text).map_err(|_| TokenError::Claims)?;
    if claims.iss != settings.issuer {
        return Err(TokenError::Issuer);
    }
    if !claims.aud.iter().any(|one| settings.is_audience(one)) {
        return Err(TokenError::Audience);
    }
    let (now, leeway) = (now.0 as f64 / 1000.0, settings.leeway.as_secs_f64());
    // JSON has no numbers that compare with nothing.
    if now >= claims.exp + leeway {
        return Err(TokenError::Expired);
    }
    if claims.nbf.is_some_and(|nbf| nbf - leeway > now) {
        return Err(TokenError::NotYet);
    }
    let name = claims.principal(settings.names)?;
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
    /// Scopes by the book, in one text.
    scope: Option<OneOrMore>,
    /// Scopes by Microsoft and Okta.
    scp: Option<OneOrMore>,
    client_id: Option<String>,
    /// The client by OpenID Connect.
    azp: Option<String>,
}

impl Claims {
    /// Different subjects have different names: what is between them cannot be part of them.
    fn principal(&self, names: Names) -> Result<String, TokenError> {
        let is_name = |name: &&str| !name.is_empty() && name.len() <= MAX_CLAIM_BYTES;
        let subject = Some(self.sub.as_str()).filter(is_name).ok_or(TokenError::Subject)?;
        Ok(match names {
            Names::Subject => json!([self.iss, subject]).to_string(),
            Names::SubjectAndClient => {
                let client = self.client_id.as_deref().or(self.azp.as_deref());
                let client = client.filter(is_name).ok_or(TokenError::Client)?;
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
