//! Access tokens that are verified here.

use std::sync::Arc;

use http::request::Parts;
use steadfast_engine::{Clock, Principal};
use steadfast_http::{Denied, Identified, Identify};

use crate::challenge::Challenge;
use crate::claims::{self, TokenError};
use crate::jwks::{KeySet, NoKey};
use crate::keyring::{Keyring, Known, LastLook};
use crate::metadata::{self, Metadata};
use crate::settings::{Keys, Settings, StartError};
use crate::source::Source;
use crate::token::{self, Token};

/// Lets in whoever shows a good access token, in `Authorization: Bearer` and nowhere else. Cheap to clone.
///
/// A token is good if one of the issuer's keys signed it, and it is for us, in its time, and has the scopes that are needed.
/// Whether keys are there does not matter at the start: as long as there are none, requests are told to try again later.
#[derive(Clone, Debug)]
pub struct Jwt(Arc<Verifier>);

struct Verifier {
    settings: Settings,
    challenge: Challenge,
    keyring: Arc<Keyring>,
    clock: Arc<dyn Clock>,
}

impl Jwt {
    /// Begins to fetch keys. A file has to be there; an address may be down for now.
    pub async fn start(settings: Settings, clock: Arc<dyn Clock>) -> Result<Self, StartError> {
        settings.check()?;
        let source = Source::new(&settings);
        let keyring = Arc::new(Keyring::new(source, settings.fetching, Arc::clone(&clock)));
        match &settings.keys {
            Keys::Url(_) => drop(keyring.look()),
            Keys::File(file) => keyring
                .load()
                .await
                .map_err(|error| StartError::KeysFile { file: file.clone(), why: error.to_string() })?,
        }
        Ok(Self::of(settings, keyring, clock))
    }

    /// Other settings with the keys that are here, from where they come now: whoever changes a scope does not depend on whether keys
    /// can be had at that moment.
    pub fn with(&self, settings: Settings) -> Result<Self, StartError> {
        settings.check()?;
        Ok(Self::of(settings, Arc::clone(&self.0.keyring), Arc::clone(&self.0.clock)))
    }

    fn of(settings: Settings, keyring: Arc<Keyring>, clock: Arc<dyn Clock>) -> Self {
        let challenge = Challenge::new(metadata::url(&settings.resource), &settings.scopes);
        Self(Arc::new(Verifier { settings, challenge, keyring, clock }))
    }

    /// What clients may know before they have a token.
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
        match verifier.verify_with(token, &verifier.keyring.known()) {
            Ok(name) => Identified::Known(Ok(Principal::new(name))),
            Err(Doubt::Token(error)) => Identified::Known(Err(verifier.denied(&error))),
            Err(Doubt::Keys) => {
                let (verifier, token) = (Arc::clone(verifier), token.to_owned());
                Identified::Pending(Box::pin(async move { verifier.verify(&token).await }))
            }
        }
    }
}

/// Why a token cannot be said to be good.
enum Doubt {
    Token(TokenError),
    /// Newer keys may tell.
    Keys,
}

impl Verifier {
    /// Verifies with newer keys, if they can be had; with those that are there, if not.
    async fn verify(&self, token: &str) -> Result<Principal, Denied> {
        if let Some(looking) = self.keyring.look() {
            looking.end().await;
        }
        let known = match self.keyring.known() {
            Known::Stale(keys) => Known::Fresh(keys),
            known => known,
        };
        match self.verify_with(token, &known) {
            Ok(name) => Ok(Principal::new(name)),
            Err(Doubt::Token(error)) => Err(self.denied(&error)),
            Err(Doubt::Keys) => Err(match self.keyring.last_look() {
                LastLook::Succeeded => self.denied(&TokenError::UnknownKey),
                LastLook::Failed { next } => Denied::Unavailable { retry_after: next },
            }),
        }
    }

    fn verify_with(&self, token: &str, known: &Known) -> Result<String, Doubt> {
        let token = Token::parse(token).map_err(Doubt::Token)?;
        if !self.settings.algorithms.contains(&token.algorithm) {
            return Err(Doubt::Token(TokenError::Algorithm));
        }
        let Known::Fresh(keys) = known else { return Err(Doubt::Keys) };
        self.verify_by(&token, keys)
    }

    fn verify_by(&self, token: &Token<'_>, keys: &KeySet) -> Result<String, Doubt> {
        let key = keys.find(token.algorithm, token.key_id.as_deref()).map_err(|none| match none {
            NoKey::Unknown => Doubt::Keys,
            NoKey::Ambiguous => Doubt::Token(TokenError::AmbiguousKey),
        })?;
        if !key.has_signed(token.algorithm, token.signed.as_bytes(), &token.signature) {
            return Err(Doubt::Token(TokenError::Signature));
        }
        claims::check(&token.claims, &self.settings, self.clock.now()).map_err(Doubt::Token)
    }

    fn denied(&self, error: &TokenError) -> Denied {
        tracing::debug!(reason = %error, "a token is refused");
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
