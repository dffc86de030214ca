//! Tests of tokens: which are accepted, and how each invalid one is refused.

use std::time::Duration;

use ring::hmac;
use steadfast_auth::{Jwt, MAX_CLAIM_BYTES, PrincipalClaims, Settings, TokenError};
use steadfast_engine::Principal;
use steadfast_http::{Denied, Identified, Identify as _};

use crate::support::{
    Behaviour, ISSUER, NOW, Publisher, RESOURCE, Signer, base64, claims, claims_with, clock, head, identify,
    invalid, json, missing, principal, settings, verdict, within,
};

/// Starts a verifier that has fetched the signer's key.
async fn verifier(signer: &Signer, change: impl FnOnce(&mut Settings)) -> Jwt {
    let publisher = Publisher::start(Behaviour::keys(&[signer.jwk()])).await;
    let mut settings = settings(publisher.keys());
    change(&mut settings);
    let jwt = Jwt::start(settings, clock()).await.unwrap();
    // The first token waits for the keys, so the tokens of the test do not.
    let first = verdict(&jwt, &signer.token(&claims_with(&json!({"exp": 0})))).await;
    assert_eq!(first, Err(invalid(&TokenError::Expired)));
    jwt
}

/// Checks the result of a token, which must not need a fetch.
fn check(jwt: &Jwt, what: &str, token: &str, expect: Result<&str, TokenError>) {
    let Identified::Known(verdict) = identify(jwt, token) else { panic!("{what}: needs a fetch") };
    let expect = expect.map_err(|error| invalid(&error)).and_then(principal);
    assert_eq!(verdict, expect, "{what}");
}

/// Principals for internal use have a control character in their name. No claim may imitate them.
#[tokio::test]
async fn a_claim_cannot_name_an_internal_principal() {
    let signer = Signer::new("a");
    let jwt = verifier(&signer, |_| {}).await;
    let token = signer.token(&claims_with(&json!({"sub": "alice\u{1f}job"})));
    let Identified::Known(Ok(principal)) = identify(&jwt, &token) else { panic!("not identified") };
    assert_eq!(principal.subject(), None);
    assert!(!principal.as_str().contains(char::is_control), "{:?}", principal.as_str());
}

#[tokio::test]
async fn claims_are_checked() {
    let signer = Signer::new("a");
    let jwt = verifier(&signer, |_| {}).await;
    let long = "x".repeat(MAX_CLAIM_BYTES);
    let longer = "x".repeat(MAX_CLAIM_BYTES + 1);
    for (change, expect) in [
        (json!({}), Ok("alice")),
        (json!({"sub": "bob", "nbf": NOW, "iat": NOW, "jti": "1", "anything": {"else": []}}), Ok("bob")),
        (json!({"sub": long}), Ok(long.as_str())),
        (json!({"sub": longer}), Err(TokenError::Subject)),
        (json!({"sub": ""}), Err(TokenError::Subject)),
        (json!({"sub": null}), Err(TokenError::Claims)),
        (json!({"sub": 7}), Err(TokenError::Claims)),
        (json!({"iss": "https://evil.example.com"}), Err(TokenError::Issuer)),
        (json!({"iss": format!("{ISSUER}/")}), Err(TokenError::Issuer)),
        (json!({"iss": ""}), Err(TokenError::Issuer)),
        (json!({"iss": null}), Err(TokenError::Claims)),
        (json!({"iss": [ISSUER]}), Err(TokenError::Claims)),
        (json!({"aud": [RESOURCE]}), Ok("alice")),
        (json!({"aud": ["other", format!("{RESOURCE}/")]}), Ok("alice")),
        (json!({"aud": "other"}), Err(TokenError::Audience)),
        (json!({"aud": []}), Err(TokenError::Audience)),
        (json!({"aud": ""}), Err(TokenError::Audience)),
        (json!({"aud": null}), Err(TokenError::Claims)),
        (json!({"aud": {RESOURCE: true}}), Err(TokenError::Claims)),
        // The leeway is 30 seconds.
        (json!({"exp": NOW - 29}), Ok("alice")),
        (json!({"exp": NOW as f64 - 29.5}), Ok("alice")),
        (json!({"exp": NOW - 30}), Err(TokenError::Expired)),
        (json!({"exp": -1}), Err(TokenError::Expired)),
        (json!({"exp": null}), Err(TokenError::Claims)),
        (json!({"exp": (NOW + 60).to_string()}), Err(TokenError::Claims)),
        (json!({"nbf": NOW + 30}), Ok("alice")),
        (json!({"nbf": NOW + 31}), Err(TokenError::NotYet)),
        (json!({"nbf": "soon"}), Err(TokenError::Claims)),
    ] {
        check(&jwt, &change.to_string(), &signer.token(&claims_with(&change)), expect);
    }
    for text in ["", "[]", "null", "{", r#"{"iss":"a","iss":"b"}"#, r#"{"exp":1e999}"#] {
        let token = signer.token_of(r#"{"alg":"EdDSA","kid":"a"}"#, text);
        check(&jwt, text, &token, Err(TokenError::Claims));
    }
}

#[tokio::test]
async fn headers_are_checked() {
    let (signer, stranger) = (Signer::new("a"), Signer::new("a"));
    let jwt = verifier(&signer, |_| {}).await;
    for (header, expect) in [
        (json!({"alg": "EdDSA", "kid": "a"}), Ok("alice")),
        // The set has one key, so the token need not name it.
        (json!({"alg": "EdDSA"}), Ok("alice")),
        (json!({"alg": "EdDSA", "typ": "JWT"}), Ok("alice")),
        (json!({"alg": "EdDSA", "typ": "application/AT+jwt"}), Ok("alice")),
        (json!({"alg": "EdDSA", "typ": "logout+jwt"}), Err(TokenError::OtherKind)),
        (json!({"alg": "EdDSA", "typ": "dpop+jwt"}), Err(TokenError::OtherKind)),
        (json!({"alg": "EdDSA", "crit": ["b64"], "b64": false}), Err(TokenError::Critical)),
        (json!({"alg": "none"}), Err(TokenError::Algorithm)),
        (json!({"alg": "None"}), Err(TokenError::Algorithm)),
        (json!({"alg": ""}), Err(TokenError::Algorithm)),
        (json!({"alg": "eddsa"}), Err(TokenError::Algorithm)),
        (json!({"alg": "HS256", "kid": "a"}), Err(TokenError::Algorithm)),
        (json!({"alg": "ES512", "kid": "a"}), Err(TokenError::Algorithm)),
        (json!({"kid": "a"}), Err(TokenError::Malformed)),
        (json!({"alg": ["EdDSA"]}), Err(TokenError::Malformed)),
        (json!({"alg": "EdDSA", "kid": 7}), Err(TokenError::Malformed)),
        (json!([]), Err(TokenError::Malformed)),
    ] {
        check(&jwt, &header.to_string(), &signer.token_with(&header, &claims()), expect);
    }
    // A key inside the token is ignored.
    let jwk = stranger.jwk();
    for header in [
        json!({"alg": "EdDSA", "kid": "a"}),
        json!({"alg": "EdDSA", "kid": "a", "jwk": jwk}),
        json!({"alg": "EdDSA", "jku": "https://evil.example.com/keys", "x5u": "https://evil.example.com"}),
    ] {
        let token = stranger.token_with(&header, &claims());
        check(&jwt, &header.to_string(), &token, Err(TokenError::Signature));
    }
}

#[tokio::test]
async fn malformed_and_forged_tokens_are_refused() {
    let signer = Signer::new("a");
    let jwt = verifier(&signer, |_| {}).await;
    let good = signer.token(&claims());
    check(&jwt, "good", &good, Ok("alice"));
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let (header, payload) = signed.split_once('.').unwrap();
    let none = base64(br#"{"alg":"none"}"#);
    // A verifier that used the public key as an HMAC secret would accept this token.
    let x = signer.jwk()["x"].as_str().unwrap().to_owned();
    let confused = format!("{}.{payload}", base64(br#"{"alg":"HS256","kid":"a"}"#));
    let tag = |key: &[u8]| {
        base64(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), confused.as_bytes()).as_ref())
    };
    let public = data_encoding::BASE64URL_NOPAD.decode(x.as_bytes()).unwrap();
    for (what, token, expect) in [
        ("no algorithm, no signature", format!("{none}.{payload}."), TokenError::Algorithm),
        ("no algorithm", format!("{none}.{payload}.{signature}"), TokenError::Algorithm),
        ("the public key as a secret", format!("{confused}.{}", tag(&public)), TokenError::Algorithm),
        ("its text as a secret", format!("{confused}.{}", tag(x.as_bytes())), TokenError::Algorithm),
        ("no signature", format!("{signed}."), TokenError::Signature),
        ("half a signature", format!("{signed}.{}", &signature[..40]), TokenError::Signature),
        ("another's claims", format!("{header}.{}.{signature}", base64(b"{}")), TokenError::Signature),
        ("two parts", signed.to_owned(), TokenError::Malformed),
        ("one part", header.to_owned(), TokenError::Malformed),
        ("five parts", format!("{good}.{signature}.{signature}"), TokenError::Malformed),
        ("padding", format!("{good}=="), TokenError::Malformed),
        ("another alphabet", format!("{signed}.+/{}", &signature[2..]), TokenError::Malformed),
        ("a byte more", format!("{good}\u{e9}"), TokenError::Malformed),
        ("dots", "...".to_owned(), TokenError::Malformed),
        ("nothing", " ".to_owned(), TokenError::Malformed),
        ("garbage", "garbage".to_owned(), TokenError::Malformed),
    ] {
        check(&jwt, what, &token, Err(expect));
    }
}

#[tokio::test]
async fn a_token_is_sent_once_as_a_bearer_token() {
    let signer = Signer::new("a");
    let jwt = verifier(&signer, |settings| settings.max_token_bytes = 1000).await;
    let good = signer.token(&claims());
    let too_long = invalid(&TokenError::TooLong { max_bytes: 1000 });
    for (what, values, expect) in [
        ("nothing", vec![], Err(missing())),
        ("another scheme", vec![format!("Basic {good}")], Err(missing())),
        ("no scheme", vec![good.clone()], Err(missing())),
        ("short", vec!["Bearer".to_owned()], Err(missing())),
        ("glued", vec![format!("Bearer{good}")], Err(missing())),
        ("lower case", vec![format!("bearer {good}")], principal("alice")),
        ("upper case", vec![format!("BEARER {good}")], principal("alice")),
        ("spaces", vec![format!("Bearer   {good} ")], principal("alice")),
        ("twice", vec![format!("Bearer {good}"); 2], Err(invalid(&TokenError::Several))),
        ("two", vec!["Basic x".to_owned(), format!("Bearer {good}")], Err(invalid(&TokenError::Several))),
        ("at the bound", vec![format!("Bearer {}", "x".repeat(1000))], Err(invalid(&TokenError::Malformed))),
        ("past the bound", vec![format!("Bearer {}", "x".repeat(1001))], Err(too_long.clone())),
        ("a megabyte", vec![format!("Bearer {}", "x".repeat(1 << 20))], Err(too_long)),
    ] {
        let Identified::Known(verdict) = jwt.identify(&head(&values)) else { panic!("{what}") };
        assert_eq!(verdict, expect, "{what}");
    }
    // A token in the query is ignored.
    let request = http::Request::post(format!("/mcp?access_token={good}")).body(()).unwrap();
    let Identified::Known(verdict) = jwt.identify(&request.into_parts().0) else { panic!("a query") };
    assert_eq!(verdict, Err(missing()));
}

#[tokio::test]
async fn required_scopes_are_checked() {
    let signer = Signer::new("a");
    let wanted = vec!["mcp:read".to_owned(), "mcp:write".to_owned()];
    let publisher = Publisher::start(Behaviour::keys(&[signer.jwk()])).await;
    let settings = Settings { scopes: wanted, ..settings(publisher.keys()) };
    let jwt = Jwt::start(settings, clock()).await.unwrap();
    let challenge = "Bearer resource_metadata=\"https://mcp.example.com/.well-known/oauth-protected-resource/mcp\", \
                     error=\"insufficient_scope\", error_description=\"the token lacks a scope\", \
                     scope=\"mcp:read mcp:write\"";
    for (scopes, is_enough) in [
        (json!({"scope": "mcp:write other mcp:read"}), true),
        (json!({"scp": ["mcp:read", "mcp:write"]}), true),
        (json!({"scp": "mcp:read mcp:write"}), true),
        (json!({"scope": "mcp:read", "scp": ["mcp:write"]}), true),
        (json!({"scope": "mcp:read"}), false),
        (json!({"scope": "mcp:read mcp:writer"}), false),
        (json!({"scope": "MCP:READ MCP:WRITE"}), false),
        (json!({"scope": ""}), false),
        (json!({}), false),
    ] {
        let verdict = verdict(&jwt, &signer.token(&claims_with(&scopes))).await;
        let denied = Denied::InsufficientScope { challenge: challenge.to_owned() };
        assert_eq!(verdict, if is_enough { principal("alice") } else { Err(denied) }, "{scopes}");
    }
}

#[tokio::test]
async fn the_client_can_be_part_of_the_principal() {
    let signer = Signer::new("a");
    let jwt = verifier(&signer, |settings| settings.principal = PrincipalClaims::SubjectAndClient).await;
    // Different pairs of subject and client must have different principals.
    let mut names = std::collections::BTreeSet::new();
    for (change, subject, client) in [
        (json!({"client_id": "app"}), "alice", "app"),
        (json!({"azp": "web"}), "alice", "web"),
        (json!({"sub": "a\",\"b", "client_id": "c"}), "a\",\"b", "c"),
        (json!({"sub": "a", "client_id": "b\",\"c"}), "a", "b\",\"c"),
    ] {
        let name = verdict(&jwt, &signer.token(&claims_with(&change))).await.unwrap();
        assert_eq!(name, Principal::new(json!([ISSUER, subject, client]).to_string()));
        assert!(names.insert(name));
    }
    for change in [json!({}), json!({"client_id": ""}), json!({"azp": "x".repeat(MAX_CLAIM_BYTES + 1)})] {
        check(&jwt, &change.to_string(), &signer.token(&claims_with(&change)), Err(TokenError::Client));
    }
}

#[tokio::test]
async fn a_token_expires_while_it_is_in_use() {
    let signer = Signer::new("a");
    let publisher = Publisher::start(Behaviour::keys(&[signer.jwk()])).await;
    let clock = clock();
    let jwt = Jwt::start(settings(publisher.keys()), clock.clone()).await.unwrap();
    let token = signer.token(&claims());
    assert_eq!(verdict(&jwt, &token).await, principal("alice"));
    clock.advance(Duration::from_secs(89));
    assert_eq!(verdict(&jwt, &token).await, principal("alice"));
    clock.advance(Duration::from_secs(1));
    assert_eq!(within("the end", verdict(&jwt, &token)).await, Err(invalid(&TokenError::Expired)));
}
