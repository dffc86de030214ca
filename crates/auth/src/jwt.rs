//! [`Jwt`]: verifies the access token of each request.

use std::sync::Arc;

use http::request::Parts;
use steadfast_engine::{Clock, Principal};
use steadfast_http::{Denied, Identified, Identify};

use crate::challenge::Challenge;
use crate::claims::{self, TokenError};
use crate::jwks::{KeySet, NoKey};
use crate::key_cache::{CurrentKeys, KeyCache, LastFetch};
use crate::key_source::KeySource;
use crate::metadata::{self, Metadata};
use crate::settings::{Keys, Settings, StartError};
use crate::token::{self, Token};

/// Verifies the access token in the header `Authorization: Bearer` and returns its principal.
/// Tokens in other places, such as the query, are ignored. Clones are cheap.
///
/// A token is accepted if one of the issuer's keys signed it, its issuer and audience match the
/// settings, it is valid at this time, and it has the required scopes. While there are no keys, a
/// request with a well-formed token is refused with 503 and `Retry-After`.
#[derive(Clone, Debug)]
pub struct Jwt(Arc<Verifier>);

struct Verifier {
    settings: Settings,
    challenge: Challenge,
    cache: Arc<KeyCache>,
    clock: Arc<dyn Clock>,
}

impl Jwt {
    /// Starts verification and fetches the keys. Fails if the settings are invalid or the key file
    /// cannot be read or parsed. A URL may be unreachable at the start: the verifier fetches the
    /// keys again when a request needs them.
    pub async fn start(settings: Settings, clock: Arc<dyn Clock>) -> Result<Self, StartError> {
        settings.check()?;
        let source = KeySource::new(&settings);
        let cache = Arc::new(KeyCache::new(source, settings.fetching, Arc::clone(&clock)));
        match &settings.keys {
            // Does not wait for the fetch. Requests do.
            Keys::Url(_) => drop(cache.fetch()),
            Keys::File(file) => cache
                .load()
                .await
                .map_err(|error| StartError::KeysFile { file: file.clone(), why: error.to_string() })?,
        }
        Ok(Self::of(settings, cache, clock))
    }

    /// Returns a verifier with other settings that shares the cached keys and their source, so that
    /// a reload of the configuration needs no fetch. Ignores how the new settings fetch keys: if
    /// that changes, use [`start`](Self::start). Fails if the settings are invalid.
    pub fn with(&self, settings: Settings) -> Result<Self, StartError> {
        settings.check()?;
        Ok(Self::of(settings, Arc::clone(&self.0.cache), Arc::clone(&self.0.clock)))
    }

    fn of(settings: Settings, cache: Arc<KeyCache>, clock: Arc<dyn Clock>) -> Self {
        let challenge = Challenge::new(metadata::url(&settings.resource), &settings.scopes);
        Self(Arc::new(Verifier { settings, challenge, cache, clock }))
    }

    /// Returns the metadata document, which tells clients where to get a token.
    pub fn metadata(&self) -> Metadata {
        Metadata::new(&self.0.settings)
    }
}

impl Identify for Jwt {
    fn identify(&self, parts: &Parts) -> Identified {
        let verifier = &self.0;
        let token = match token::of_request(parts, verifier.settings.max_token_bytes) {
            Ok(Some(token)) => token,
            Ok(None) => {
                let challenge = verifier.challenge.missing();
                return Identified::Known(Err(Denied::Unauthenticated { challenge }));
            }
            Err(error) => return Identified::Known(Err(verifier.denied(&error))),
        };
        match verifier.verify_with(token, &verifier.cache.current()) {
            Ok(principal) => Identified::Known(Ok(principal)),
            Err(VerifyError::Token(error)) => Identified::Known(Err(verifier.denied(&error))),
            Err(VerifyError::NeedsFetch) => {
                let (verifier, token) = (Arc::clone(verifier), token.to_owned());
                Identified::Pending(Box::pin(async move { verifier.verify(&token).await }))
            }
        }
    }
}

/// Why a token was not accepted.
enum VerifyError {
    Token(TokenError),
    /// Undecided: the cached keys are stale or lack the token's key. The caller verifies the token
    /// again after a fetch.
    NeedsFetch,
}

impl Verifier {
    /// Fetches the keys, then verifies the token. If the fetch fails, uses the cached keys.
    async fn verify(&self, token: &str) -> Result<Principal, Denied> {
        if let Some(pending) = self.cache.fetch() {
            pending.ended().await;
        }
        let keys = match self.cache.current() {
            // The fetch failed, so the stale keys must do.
            CurrentKeys::Stale(keys) => CurrentKeys::Fresh(keys),
            keys => keys,
        };
        match self.verify_with(token, &keys) {
            Ok(principal) => Ok(principal),
            Err(VerifyError::Token(error)) => Err(self.denied(&error)),
            Err(VerifyError::NeedsFetch) => Err(match self.cache.last_fetch() {
                LastFetch::Succeeded => self.denied(&TokenError::UnknownKey),
                LastFetch::Failed { next } => Denied::Unavailable { retry_after: next },
            }),
        }
    }

    fn verify_with(&self, token: &str, keys: &CurrentKeys) -> Result<Principal, VerifyError> {
        let token = Token::parse(token).map_err(VerifyError::Token)?;
        if !self.settings.algorithms.contains(&token.algorithm) {
            return Err(VerifyError::Token(TokenError::Algorithm));
        }
        let CurrentKeys::Fresh(keys) = keys else { return Err(VerifyError::NeedsFetch) };
        self.verify_signed_by(&token, keys)
    }

    fn verify_signed_by(&self, token: &Token<'_>, keys: &KeySet) -> Result<Principal, VerifyError> {
        let key = keys.find(token.algorithm, token.key_id.as_deref()).map_err(|error| match error {
            NoKey::Unknown => VerifyError::NeedsFetch,
            NoKey::Ambiguous => VerifyError::Token(TokenError::AmbiguousKey),
        })?;
        if !key.has_signed(token.algorithm, token.signed.as_bytes(), &token.signature) {
            return Err(VerifyError::Token(TokenError::Signature));
        }
        let name = claims::check(&token.claims, &self.settings, self.clock.now());
        let (name, prefix) = (name.map_err(VerifyError::Token)?, &self.settings.principal_prefix);
        Ok(Principal::new(if prefix.is_empty() { name } else { format!("{prefix}{name}") }))
    }

    fn denied(&self, error: &TokenError) -> Denied {
        tracing::debug!(reason = %error, "refused a token");
        match error {
            TokenError::Scope => Denied::InsufficientScope { challenge: self.challenge.insufficient() },
            error => Denied::Unauthenticated { challenge: self.challenge.invalid(error) },
        }
    }
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verifier").field("settings", &self.settings).finish_non_exhaustive()
    }
}
