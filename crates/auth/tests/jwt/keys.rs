//! Tests of fetching keys: slow publishers, rotated keys, failures.

use std::time::Duration;

use steadfast_auth::{Fetching, Jwt, Settings, TokenError};
use steadfast_engine::ManualClock;
use steadfast_http::{Denied, Identified};

use crate::support::{
    Behaviour, NOW, Publisher, Signer, claims, claims_with, clock, identify, invalid, json, principal,
    settings, verdict, within,
};

/// Returns a token that does not expire during a test.
fn long_lived_token(signer: &Signer) -> String {
    signer.token(&claims_with(&json!({"exp": NOW + 10_000_000})))
}

struct Setup {
    publisher: Publisher,
    clock: std::sync::Arc<ManualClock>,
    jwt: Jwt,
}

/// Starts a publisher and a verifier that has sent one request to it.
async fn setup(behaviour: Behaviour, change: impl FnOnce(&mut Settings)) -> Setup {
    let publisher = Publisher::start(behaviour).await;
    let clock = clock();
    let mut settings = settings(publisher.keys());
    change(&mut settings);
    let jwt = Jwt::start(settings, clock.clone()).await.unwrap();
    publisher.wait_for_requests(1).await;
    Setup { publisher, clock, jwt }
}

fn unavailable(seconds: u64) -> Denied {
    Denied::Unavailable { retry_after: Duration::from_secs(seconds) }
}

#[tokio::test]
async fn cached_keys_need_no_fetch() {
    let signer = Signer::new("a");
    let Setup { publisher, jwt, .. } = setup(Behaviour::keys(&[signer.jwk()]), |_| {}).await;
    let token = signer.token(&claims());
    assert_eq!(verdict(&jwt, &token).await, principal("alice"));
    for _ in 0..10 {
        assert!(matches!(identify(&jwt, &token), Identified::Known(Ok(_))));
    }
    assert_eq!(publisher.requests(), 1);
}

#[tokio::test]
async fn rotated_keys_are_fetched() {
    let (old, new) = (Signer::new("old"), Signer::new("new"));
    let Setup { publisher, clock, jwt } = setup(Behaviour::keys(&[old.jwk()]), |_| {}).await;
    assert_eq!(verdict(&jwt, &long_lived_token(&old)).await, principal("alice"));
    publisher.publish(Behaviour::keys(&[old.jwk(), new.jwk()]));
    // The last fetch is too recent for another one.
    assert_eq!(verdict(&jwt, &long_lived_token(&new)).await, Err(invalid(&TokenError::UnknownKey)));
    assert_eq!(publisher.requests(), 1);
    clock.advance(Duration::from_secs(5));
    assert_eq!(verdict(&jwt, &long_lived_token(&new)).await, principal("alice"));
    assert_eq!(verdict(&jwt, &long_lived_token(&old)).await, principal("alice"));
    assert_eq!(publisher.requests(), 2);
    // A key that the publisher removes is accepted until the next fetch.
    publisher.publish(Behaviour::keys(&[new.jwk()]));
    clock.advance(Fetching::default().fresh - Duration::from_millis(1));
    assert_eq!(verdict(&jwt, &long_lived_token(&old)).await, principal("alice"));
    assert_eq!(publisher.requests(), 2);
    clock.advance(Duration::from_millis(1));
    assert_eq!(verdict(&jwt, &long_lived_token(&old)).await, Err(invalid(&TokenError::UnknownKey)));
    assert_eq!(verdict(&jwt, &long_lived_token(&new)).await, principal("alice"));
    assert_eq!(publisher.requests(), 3);
}

#[tokio::test]
async fn a_hundred_unknown_keys_cause_one_fetch() {
    let (signer, new) = (Signer::new("a"), Signer::new("new"));
    let Setup { publisher, clock, jwt } = setup(Behaviour::keys(&[signer.jwk()]), |_| {}).await;
    assert_eq!(verdict(&jwt, &long_lived_token(&signer)).await, principal("alice"));
    clock.advance(Duration::from_secs(5));
    publisher.publish(Behaviour::keys(&[signer.jwk(), new.jwk()]));
    publisher.hold(true);
    let stranger = Signer::new("stranger");
    let waiting: Vec<_> = (0..100)
        .map(|n| {
            let token = long_lived_token(if n == 0 { &new } else { &stranger });
            let jwt = jwt.clone();
            tokio::spawn(async move { verdict(&jwt, &token).await })
        })
        .collect();
    publisher.wait_for_requests(2).await;
    // A token with a known key does not wait for the fetch.
    assert!(matches!(identify(&jwt, &long_lived_token(&signer)), Identified::Known(Ok(_))));
    publisher.hold(false);
    for (n, verdict) in waiting.into_iter().enumerate() {
        let expect = if n == 0 { principal("alice") } else { Err(invalid(&TokenError::UnknownKey)) };
        assert_eq!(within("a verdict", verdict).await.unwrap(), expect, "{n}");
    }
    assert_eq!(publisher.requests(), 2);
}

/// The request that started a fetch may be dropped; the other requests still get the keys.
#[tokio::test]
async fn a_fetch_survives_the_request_that_started_it() {
    let signer = Signer::new("a");
    let publisher = Publisher::start(Behaviour::keys(&[signer.jwk()])).await;
    publisher.hold(true);
    let jwt = Jwt::start(settings(publisher.keys()), clock()).await.unwrap();
    let token = signer.token(&claims());
    let Identified::Pending(first) = identify(&jwt, &token) else { panic!("there are no keys") };
    publisher.wait_for_requests(1).await;
    assert!(tokio::time::timeout(Duration::ZERO, first).await.is_err());
    publisher.hold(false);
    assert_eq!(verdict(&jwt, &token).await, principal("alice"));
    assert_eq!(publisher.requests(), 1);
}

/// Without keys a token can be neither accepted nor refused, so the response is 503.
#[tokio::test]
async fn a_failing_publisher_makes_the_endpoint_unavailable() {
    let signer = Signer::new("a");
    let bounds = |settings: &mut Settings| {
        settings.fetching.timeout = Duration::from_millis(300);
        settings.fetching.max_bytes = 10_000;
    };
    let mut large = signer.jwk();
    large["padding"] = "x".repeat(10_000).into();
    for (what, behaviour) in [
        ("down", Behaviour::Close),
        ("slow", Behaviour::Stall),
        ("huge", Behaviour::Flood),
        ("large", Behaviour::keys(&[large])),
        ("garbage", Behaviour::Respond(200, "<html>".to_owned())),
        ("empty", Behaviour::keys(&[])),
        ("secrets", Behaviour::keys(&[json!({"kty": "oct", "k": "AAAA"})])),
        ("elsewhere", Behaviour::Respond(302, json!({"keys": [signer.jwk()]}).to_string())),
        ("failing", Behaviour::Respond(500, json!({"keys": [signer.jwk()]}).to_string())),
    ] {
        let Setup { publisher, clock, jwt } = setup(behaviour, bounds).await;
        let token = long_lived_token(&signer);
        assert_eq!(verdict(&jwt, &token).await, Err(unavailable(5)), "{what}");
        clock.advance(Duration::from_secs(2));
        assert_eq!(verdict(&jwt, &token).await, Err(unavailable(3)), "{what}");
        assert_eq!(publisher.requests(), 1, "{what}");
        // A malformed token is refused without keys.
        assert_eq!(verdict(&jwt, "garbage").await, Err(invalid(&TokenError::Malformed)), "{what}");
        publisher.publish(Behaviour::keys(&[signer.jwk()]));
        clock.advance(Duration::from_secs(3));
        assert_eq!(verdict(&jwt, &token).await, principal("alice"), "{what}");
        assert_eq!(publisher.requests(), 2, "{what}");
    }
}

#[tokio::test]
async fn stale_keys_are_used_while_fetching_fails() {
    let (signer, new) = (Signer::new("a"), Signer::new("new"));
    let Setup { publisher, clock, jwt } = setup(Behaviour::keys(&[signer.jwk()]), |_| {}).await;
    let token = long_lived_token(&signer);
    assert_eq!(verdict(&jwt, &token).await, principal("alice"));
    publisher.publish(Behaviour::Respond(503, String::new()));
    clock.advance(Fetching::default().fresh);
    assert_eq!(verdict(&jwt, &token).await, principal("alice"));
    assert_eq!(publisher.requests(), 2);
    // The number of requests does not change the number of fetches.
    for _ in 0..5 {
        assert_eq!(verdict(&jwt, &token).await, principal("alice"));
    }
    assert_eq!(publisher.requests(), 2);
    // An unknown key cannot be fetched now.
    assert_eq!(verdict(&jwt, &long_lived_token(&new)).await, Err(unavailable(5)));
    let Fetching { fresh, stale, .. } = Fetching::default();
    clock.advance(stale - fresh - Duration::from_millis(1));
    assert_eq!(verdict(&jwt, &token).await, principal("alice"));
    clock.advance(Duration::from_millis(1));
    let retry_after = Duration::from_millis(4999);
    assert_eq!(verdict(&jwt, &token).await, Err(Denied::Unavailable { retry_after }));
    publisher.publish(Behaviour::keys(&[signer.jwk()]));
    clock.advance(Duration::from_secs(5));
    assert_eq!(verdict(&jwt, &token).await, principal("alice"));
}

/// A token that names a key is verified with that key only. A token that names none needs a single
/// key.
#[tokio::test]
async fn a_key_is_chosen_by_its_id() {
    let (a, b) = (Signer::new("a"), Signer::new("b"));
    let Setup { jwt, .. } = setup(Behaviour::keys(&[a.jwk(), b.jwk()]), |_| {}).await;
    let as_key = |kid: &str| a.token_with(&json!({"alg": "EdDSA", "kid": kid}), &claims());
    assert_eq!(verdict(&jwt, &as_key("a")).await, principal("alice"));
    assert_eq!(verdict(&jwt, &as_key("b")).await, Err(invalid(&TokenError::Signature)));
    for kid in ["", "A", "../../etc/passwd", "' OR 1=1 --", "a\u{0}", "http://evil.example.com/keys"] {
        assert_eq!(verdict(&jwt, &as_key(kid)).await, Err(invalid(&TokenError::UnknownKey)), "{kid:?}");
    }
    let without_id = a.token_with(&json!({"alg": "EdDSA"}), &claims());
    assert_eq!(verdict(&jwt, &without_id).await, Err(invalid(&TokenError::AmbiguousKey)));
}
