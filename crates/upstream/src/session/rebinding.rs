//! Rebinding: a session outlives the access token that it was opened with.
//!
//! With forwarded credentials a principal is a hash of the credentials, so a refreshed token is
//! another principal. The session admits it if
//!
//! - it is a signed JWT whose claims `iss`, `sub`, `aud`, `client_id` (or `azp`) and `act` are
//!   those of the token that opened the session,
//! - the server accepts it in the upstream session of this session, and
//! - the server verifies signatures: it answers 401 to the same token with a damaged signature.
//!
//! The claims prove nothing by themselves, because this gateway has no keys to verify them with.
//! The server has, and the last condition shows that it uses them. The session state keeps a hash
//! of the claims and the principal that was admitted last, and never a token.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Request, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use steadfast_engine::{Principal, SessionHandle, SessionId};
use steadfast_wire::headers;
use tokio::sync::Mutex;

use crate::placement::stored_placement::Placement;
use crate::session::json_state;
use crate::upstream::Shared;

/// The entry of the session state.
const KEY: &str = "~subject";

/// The claims that identify the subject, apart from those with two names.
const CLAIMS: [&str; 4] = ["iss", "sub", "aud", "act"];

/// How long the server may take to answer a ping that checks a token.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// What is stored with a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Binding {
    /// A hash of the claims of the token that opened the session.
    subject: String,
    /// The principal of the newest token that was admitted.
    admitted: Option<String>,
}

/// A signed JWT as the client sent it. `Debug` does not show it.
#[derive(Clone)]
pub(crate) struct Token {
    header: HeaderValue,
    /// A hash of the claims that identify the subject.
    subject: String,
}

impl Token {
    /// Returns the token of a request. Returns `None` if the request has no single bearer token,
    /// and if the token is opaque, unsigned, or does not name issuer and subject.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (Some(header), None) = (values.next(), values.next()) else { return None };
        let (scheme, token) = header.to_str().ok()?.split_once(' ')?;
        let mut parts = token.split('.');
        let (head, claims, signature) = (parts.next()?, parts.next()?, parts.next()?);
        if !scheme.eq_ignore_ascii_case("bearer") || signature.is_empty() || parts.next().is_some() {
            return None;
        }
        let head: Value = serde_json::from_slice(&decode(head)?).ok()?;
        if head["alg"].as_str().is_none_or(|alg| alg.eq_ignore_ascii_case("none")) {
            return None;
        }
        let claims: Value = serde_json::from_slice(&decode(claims)?).ok()?;
        Some(Self { header: header.clone(), subject: subject(&claims)? })
    }

    /// Returns the header with another signature of the same length.
    fn with_damaged_signature(&self) -> Option<HeaderValue> {
        let mut bytes = self.header.as_bytes().to_vec();
        let start = bytes.iter().rposition(|byte| *byte == b'.')? + 1;
        // Not the last character: some of its bits may be padding.
        let at = start + (bytes.len() - start) / 2;
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        let mut header = HeaderValue::from_bytes(&bytes).ok()?;
        header.set_sensitive(true);
        Some(header)
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(hidden)")
    }
}

/// Returns a hash of the claims that identify the subject. Issuer and subject must be there.
fn subject(claims: &Value) -> Option<String> {
    claims["iss"].as_str().filter(|iss| !iss.is_empty())?;
    claims["sub"].as_str().filter(|sub| !sub.is_empty())?;
    let client = if claims["client_id"].is_null() { &claims["azp"] } else { &claims["client_id"] };
    // The JSON text of a claim is unambiguous: members of objects are sorted.
    let texts: Vec<String> =
        CLAIMS.iter().map(|name| claims[name].to_string()).chain([client.to_string()]).collect();
    let parts: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
    Some(SessionId::derived("subject of an access token", &parts).text())
}

/// Decodes base64 with the alphabet for URLs and without padding (RFC 7515).
fn decode(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut count) = (Vec::with_capacity(text.len()), 0u32, 0);
    for letter in text.bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    Some(bytes)
}

/// Whether the server verifies the signatures of tokens. Checked once for each upstream.
#[derive(Debug, Default)]
pub(crate) struct SignatureCheck(Mutex<Option<bool>>);

/// Records whose token has opened a session. If that fails, the session ends with its token.
pub(crate) async fn record(session: &SessionHandle, token: Option<Token>) {
    let Some(token) = token else { return };
    let stored = json_state::update(session, KEY, |binding: &mut Binding, _| {
        *binding = Binding { subject: token.subject.clone(), admitted: None };
        true
    });
    if let Err(error) = stored.await {
        tracing::debug!(session = %session.facts().id.short(), %error, "could not store whose token has opened a session");
    }
}

/// Returns true if the session admits this principal, whose token is valid for the subject that
/// opened the session.
pub(crate) async fn admits(
    shared: &Shared,
    session: &SessionHandle,
    principal: &Principal,
    token: &Token,
) -> bool {
    let endpoint = principal.endpoint_of_credential();
    // Sessions of other endpoints and anonymous sessions admit no other principal.
    if endpoint.is_none() || session.facts().principal.endpoint_of_credential() != endpoint {
        return false;
    }
    let Ok(Some((binding, _))) = json_state::load::<Binding>(session, KEY).await else { return false };
    if binding.subject != token.subject {
        return false;
    }
    if binding.admitted.as_deref() == Some(principal.as_str()) {
        return true;
    }
    if !is_valid(shared, session, token).await {
        return false;
    }
    let admitted = json_state::update(session, KEY, |binding: &mut Binding, _| {
        let is_same = binding.subject == token.subject;
        binding.admitted = Some(principal.as_str().to_owned());
        is_same
    });
    match admitted.await {
        Ok(Some(_)) => {
            tracing::debug!(session = %session.facts().id.short(), "a refreshed token of the same subject uses a session");
            true
        }
        _ => false,
    }
}

/// Returns true if the server accepts the token in the upstream session, and verifies signatures.
async fn is_valid(shared: &Shared, session: &SessionHandle, token: &Token) -> bool {
    let Some(status) = ping(shared, session, &token.header).await else { return false };
    if !status.is_success() {
        return false;
    }
    let mut check = shared.signature_check.0.lock().await;
    if let Some(verifies) = *check {
        return verifies;
    }
    // The token itself was accepted just now, so its signature is the only reason for a refusal.
    let Some(damaged) = token.with_damaged_signature() else { return false };
    match ping(shared, session, &damaged).await {
        Some(StatusCode::UNAUTHORIZED) => *check = Some(true),
        Some(status) if status.is_success() => {
            tracing::warn!(
                "the server accepts a token with a damaged signature, so a session ends with the token that opened it"
            );
            *check = Some(false);
        }
        // Not known. The next token is checked again.
        _ => return false,
    }
    *check == Some(true)
}

/// Sends a ping with these credentials in the upstream session. Returns the status of the response.
async fn ping(shared: &Shared, session: &SessionHandle, credential: &HeaderValue) -> Option<StatusCode> {
    let (placement, _) = Placement::load(session).await.ok()??;
    let (instance, open) = placement.session(0)?;
    let instance = shared.instances.find(&session.facts().id.short(), instance, &open)?;
    let mut request = Request::post(instance.url.clone())
        .body(Bytes::from_static(br#"{"jsonrpc":"2.0","id":"steadfast-token-check","method":"ping"}"#))
        .ok()?;
    let all = request.headers_mut();
    all.extend(shared.client.headers.clone());
    all.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    all.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    all.insert(headers::PROTOCOL_VERSION, HeaderValue::from_static(open.revision.as_str()));
    if let Some(id) = &open.id {
        all.insert(headers::SESSION_ID, HeaderValue::from_str(id).ok()?);
    }
    all.insert(AUTHORIZATION, credential.clone());
    let sent = tokio::time::timeout(PING_TIMEOUT, instance.transport.send(request)).await;
    sent.ok()?.ok().map(|response| response.status())
}
