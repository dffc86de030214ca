//! Helpers of these tests: a signer of tokens, a publisher of keys, and a manual clock.

mod publisher;
#[allow(dead_code, reason = "these tests use a part of it")]
#[path = "../../../../client/tests/support/secure.rs"]
pub(crate) mod secure;
mod signer;

use std::sync::Arc;
use std::time::Duration;

use http::Uri;
pub(crate) use publisher::{Behaviour, Publisher};
pub(crate) use serde_json::{Value, json};
pub(crate) use signer::{Signer, base64};
use steadfast_auth::{Jwt, Keys, Settings, TokenError};
use steadfast_engine::{ManualClock, Principal, Time};
use steadfast_http::{Denied, Identified, Identify as _};

pub(crate) const ISSUER: &str = "https://id.example.com";
pub(crate) const RESOURCE: &str = "https://mcp.example.com/mcp";
/// The time of the clock, in seconds, which is the unit of tokens.
pub(crate) const NOW: u64 = 1_800_000_000;

pub(crate) fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Time(NOW * 1000)))
}

/// Waits for `work`. Panics after 20 seconds, so that a hang is a failure.
pub(crate) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(20), work).await {
        Ok(done) => done,
        Err(_) => panic!("waited too long for {what}"),
    }
}

pub(crate) fn settings(keys: Keys) -> Settings {
    Settings::new(Uri::from_static(RESOURCE), ISSUER, keys)
}

/// Returns the claims of a valid token.
pub(crate) fn claims() -> Value {
    json!({"iss": ISSUER, "aud": RESOURCE, "sub": "alice", "exp": NOW + 60})
}

/// Returns valid claims with these changes; `null` removes a claim.
pub(crate) fn claims_with(change: &Value) -> Value {
    let mut claims = claims();
    for (name, value) in change.as_object().expect("changes are an object") {
        match value {
            Value::Null => drop(claims.as_object_mut().expect("an object").remove(name)),
            value => claims[name] = value.clone(),
        }
    }
    claims
}

/// Returns the head of a request with these values of `Authorization`.
pub(crate) fn head(values: &[String]) -> http::request::Parts {
    let mut request = http::Request::post("/mcp");
    for value in values {
        request = request.header("authorization", value);
    }
    request.body(()).expect("a request").into_parts().0
}

pub(crate) fn identify(jwt: &Jwt, token: &str) -> Identified {
    jwt.identify(&head(&[format!("Bearer {token}")]))
}

pub(crate) async fn verdict(jwt: &Jwt, token: &str) -> Result<Principal, Denied> {
    within("a verdict", identify(jwt, token).principal()).await
}

pub(crate) fn principal(name: &str) -> Result<Principal, Denied> {
    Ok(Principal::new(json!([ISSUER, name]).to_string()))
}

const METADATA: &str = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp";

pub(crate) fn missing() -> Denied {
    Denied::Unauthenticated { challenge: format!("Bearer resource_metadata=\"{METADATA}\"") }
}

pub(crate) fn invalid(error: &TokenError) -> Denied {
    let challenge = format!(
        "Bearer resource_metadata=\"{METADATA}\", error=\"invalid_token\", error_description=\"{error}\""
    );
    Denied::Unauthenticated { challenge }
}
