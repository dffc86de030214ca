//! Keys that come late, change, or do not come at all.

use std::time::Duration;

use steadfast_auth::{Fetching, Jwt, Settings, TokenError};
use steadfast_engine::ManualClock;
use steadfast_http::{Denied, Identified};

use crate::support::{
    Act, NOW, Publisher, Signer, claims, claims_with, clock, identify, invalid, json, principal, settings,
    verdict, within,
};

/// A token that outlives every test.
fn lasting(signer: &Signer) -> String {
    signer.token(&claims_with(&json!({"exp": NOW + 10_000_000})))
}

struct Scene {
    publisher: Publisher,
    clock: std::sync::Arc<ManualClock>,
    jwt: Jwt,
}

/// A publisher and a verifier that has asked it once.
async fn scene(act: Act, change: impl FnOnce(&mut Settings)) -> Scene {
    let publisher = Publisher::start(act).await;
    let clock = clock();
    let mut settings = settings(publisher.keys());
    change(&mut settings);
    let jwt = Jwt::start(settings, clock.clone()).await.unwrap();
    publisher.asked_at_least(1).await;
    Scene { publisher, clock, jwt }
}

fn unavailable(seconds: u64) -> Denied {
    Denied::Unavailable { retry_after: Duration::from_secs(seconds) }
}

#[tokio::test]
async fn keys_are_fetched_once_and_then_known_at_once() {
    let signer = Signer::new("a");
    let Scene { publisher, jwt, .. } = scene(Act::keys(&[signer.jwk()]), |_| {}).await;
    let token = signer.token(&claims());
    assert_eq!(verdict(&jwt, &token).await, principal("alice"));
    for _ in 0..10 {
        assert!(matches!(identify(&jwt, &token), Identified::Known(Ok(_))));
    }
    assert_eq!(publisher.asked(), 1);
}

#[tokio::test]
async fn keys_change_while_tokens_are_in_use() {
    let (old, new) = (Signer::new("old"), Signer::new("new"));
    let Scene { publisher, clock, jwt } = scene(Act::keys(&[old.jwk()]), |_| {}).await;
    assert_eq!(verdict(&jwt, &lasting(&old)).await, principal("alice"));
    publisher.publish(Act::keys(&[old.jwk(), new.jwk()]));
    // Not so soon after the last look.
    assert_eq!(verdict(&jwt, &lasting(&new)).await, Err(invalid(&TokenError::UnknownKey)));
    assert_eq!(publisher.asked(), 1);
    clock.advance(Duration::from_secs(5));
    assert_eq!(verdict(&jwt, &lasting(&new)).await, principal("alice"));
    assert_eq!(verdict(&jwt, &lasting(&old)).await, principal("alice"));
    assert_eq!(publisher.asked(), 2);
    // A key that is taken back is good until the next look.
    publisher.publish(Act::keys(&[new.jwk()]));
    clock.advance(Fetching::default().fresh - Duration::from_millis(1));
    assert_eq!(verdict(&jwt, &lasting(&old)).await, principal("alice"));
    assert_eq!(publisher.asked(), 2);
    clock.advance(Duration::from_millis(1));
    assert_eq!(verdict(&jwt, &lasting(&old)).await, Err(invalid(&TokenError::UnknownKey)));
    assert_eq!(verdict(&jwt, &lasting(&new)).await, principal("alice"));
    assert_eq!(publisher.asked(), 3);
}

#[tokio::test]
async fn a_hundred_unknown_keys_are_one_look() {
    let (signer, new) = (Signer::new("a"), Signer::new("new"));
    let Scene { publisher, clock, jwt } = scene(Act::keys(&[signer.jwk()]), |_| {}).await;
    assert_eq!(verdict(&jwt, &lasting(&signer)).await, principal("alice"));
    clock.advance(Duration::from_secs(5));
    publisher.publish(Act::keys(&[signer.jwk(), new.jwk()]));
    publisher.hold(true);
    let stranger = Signer::new("stranger");
    let waiting: Vec<_> = (0..100)
        .map(|n| {
            let (jwt, token) = (jwt.clone(), if n == 0 { lasting(&new) } else { lasting(&stranger) });
            tokio::spawn(async move { verdict(&jwt, &token).await })
        })
        .collect();
    publisher.asked_at_least(2).await;
    // Whoever has a key that is known does not wait.
    assert!(matches!(identify(&jwt, &lasting(&signer)), Identified::Known(Ok(_))));
    publisher.hold(false);
    for (n, verdict) in waiting.into_iter().enumerate() {
        let expect = if n == 0 { principal("alice") } else { Err(invalid(&TokenError::UnknownKey)) };
        assert_eq!(within("a verdict", verdict).await.unwrap(), expect, "{n}");
    }
    assert_eq!(publisher.asked(), 2);
}

/// Whoever began a look may go: the others still get what it finds.
#[tokio::test]
async fn a_look_does_not_end_with_its_first_reader() {
    let signer = Signer::new("a");
    let publisher = Publisher::start(Act::keys(&[signer.jwk()])).await;
    publisher.hold(true);
    let jwt = Jwt::start(settings(publisher.keys()), clock()).await.unwrap();
    let token = signer.token(&claims());
    let Identified::Pending(first) = identify(&jwt, &token) else { panic!("there are no keys") };
    publisher.asked_at_least(1).await;
    assert!(tokio::time::timeout(Duration::ZERO, first).await.is_err());
    publisher.hold(false);
    assert_eq!(verdict(&jwt, &token).await, principal("alice"));
    assert_eq!(publisher.asked(), 1);
}

/// Without keys nobody can be told, and nobody is to blame.
#[tokio::test]
async fn a_publisher_that_is_of_no_use_is_no_fault_of_the_client() {
    let signer = Signer::new("a");
    let bounds = |settings: &mut Settings| {
        settings.fetching.timeout = Duration::from_millis(300);
        settings.fetching.max_bytes = 10_000;
    };
    let mut large = signer.jwk();
    large["padding"] = "x".repeat(10_000).into();
    for (what, act) in [
        ("down", Act::HangUp),
        ("slow", Act::Stall),
        ("huge", Act::Flood),
        ("large", Act::keys(&[large])),
        ("garbage", Act::Answer(200, "<html>".to_owned())),
        ("empty", Act::keys(&[])),
        ("secrets", Act::keys(&[json!({"kty": "oct", "k": "AAAA"})])),
        ("elsewhere", Act::Answer(302, json!({"keys": [signer.jwk()]}).to_string())),
        ("failing", Act::Answer(500, json!({"keys": [signer.jwk()]}).to_string())),
    ] {
        let Scene { publisher, clock, jwt } = scene(act, bounds).await;
        let token = lasting(&signer);
        assert_eq!(verdict(&jwt, &token).await, Err(unavailable(5)), "{what}");
        clock.advance(Duration::from_secs(2));
        assert_eq!(verdict(&jwt, &token).await, Err(unavailable(3)), "{what}");
        assert_eq!(publisher.asked(), 1, "{what}");
        // What is wrong with a token itself needs no keys.
        assert_eq!(verdict(&jwt, "garbage").await, Err(invalid(&TokenError::Malformed)), "{what}");
        publisher.publish(Act::keys(&[signer.jwk()]));
        clock.advance(Duration::from_secs(3));
        assert_eq!(verdict(&jwt, &token).await, principal("alice"), "{what}");
        assert_eq!(publisher.asked(), 2, "{what}");
    }
}

#[tokio::test]
async fn keys_stay_in_use_while_newer_ones_cannot_be_had() {
    let (signer, new) = (Signer::new("a"), Signer::new("new"));
    let Scene { publisher, clock, jwt } = scene(Act::keys(&[signer.jwk()]), |_| {}).await;
    let token = lasting(&signer);
    assert_eq!(verdict(&jwt, &token).await, principal("alice"));
    publisher.publish(Act::Answer(503, String::new()));
    clock.advance(Fetching::default().fresh);
    assert_eq!(verdict(&jwt, &token).await, principal("alice"));
    assert_eq!(publisher.asked(), 2);
    // One look in a while, however many come.
    for _ in 0..5 {
        assert_eq!(verdict(&jwt, &token).await, principal("alice"));
    }
    assert_eq!(publisher.asked(), 2);
    // Of a key that is not known nobody can tell now.
    assert_eq!(verdict(&jwt, &lasting(&new)).await, Err(unavailable(5)));
    let Fetching { fresh, stale, .. } = Fetching::default();
    clock.advance(stale - fresh - Duration::from_millis(1));
    assert_eq!(verdict(&jwt, &token).await, principal("alice"));
    clock.advance(Duration::from_millis(1));
    let retry_after = Duration::from_millis(4999);
    assert_eq!(verdict(&jwt, &token).await, Err(Denied::Unavailable { retry_after }));
    publisher.publish(Act::keys(&[signer.jwk()]));
    clock.advance(Duration::from_secs(5));
    assert_eq!(verdict(&jwt, &token).await, principal("alice"));
}

/// A key that is named is never guessed, and one that is not named must be the only one.
#[tokio::test]
async fn a_key_is_chosen_by_its_name() {
    let (a, b) = (Signer::new("a"), Signer::new("b"));
    let Scene { jwt, .. } = scene(Act::keys(&[a.jwk(), b.jwk()]), |_| {}).await;
    let as_key = |kid: &str| a.token_with(&json!({"alg": "EdDSA", "kid": kid}), &claims());
    assert_eq!(verdict(&jwt, &as_key("a")).await, principal("alice"));
    assert_eq!(verdict(&jwt, &as_key("b")).await, Err(invalid(&TokenError::Signature)));
    for kid in ["", "A", "../../etc/passwd", "' OR 1=1 --", "a\u{0}", "http://evil.example.com/keys"] {
        assert_eq!(verdict(&jwt, &as_key(kid)).await, Err(invalid(&TokenError::UnknownKey)), "{kid:?}");
    }
    let nameless = a.token_with(&json!({"alg": "EdDSA"}), &claims());
    assert_eq!(verdict(&jwt, &nameless).await, Err(invalid(&TokenError::AmbiguousKey)));
}
