//! Tests with signatures of other implementations: OpenSSL for each algorithm, and the examples of
//! the RFCs.

use http::Uri;
use steadfast_auth::{Algorithm, Jwt, Keys, Settings, TokenError};

use crate::support::{base64, clock, invalid, principal, settings, verdict};

const KEYS: &str = include_str!("openssl_keys.json");
const TOKENS: &str = include_str!("openssl_tokens.txt");

async fn verifier(keys: &str, change: impl FnOnce(&mut Settings)) -> Jwt {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), keys).unwrap();
    let mut settings = settings(Keys::File(file.path().to_owned()));
    change(&mut settings);
    Jwt::start(settings, clock()).await.unwrap()
}

/// Returns algorithm, key and token of each line.
fn tokens() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    TOKENS.lines().map(|line| {
        let mut parts = line.split(' ');
        (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap())
    })
}

#[tokio::test]
async fn each_algorithm_is_supported() {
    let jwt = verifier(KEYS, |_| {}).await;
    let mut seen = Vec::new();
    for (algorithm, key, token) in tokens() {
        // A modulus of 1024 bits is too short: it can be factored.
        let expect = if key == "small" { Err(invalid(&TokenError::Signature)) } else { principal("alice") };
        assert_eq!(verdict(&jwt, token).await, expect, "{algorithm} {key}");
        seen.push(algorithm);
        // One changed character makes the signature invalid.
        let middle = token.len() - 20;
        let letter = if token.as_bytes()[middle] == b'A' { "B" } else { "A" };
        let changed = format!("{}{letter}{}", &token[..middle], &token[middle + 1..]);
        assert_eq!(verdict(&jwt, &changed).await, Err(invalid(&TokenError::Signature)), "{algorithm} {key}");
    }
    let missing: Vec<_> = Algorithm::ALL.into_iter().filter(|one| !seen.contains(&one.name())).collect();
    assert_eq!(missing, []);
}

#[tokio::test]
async fn only_the_configured_algorithms_are_accepted() {
    for allowed in Algorithm::ALL {
        let jwt = verifier(KEYS, |settings| settings.algorithms = vec![allowed]).await;
        for (algorithm, _, token) in tokens().filter(|(_, key, _)| *key != "small") {
            let expect = if algorithm == allowed.name() {
                principal("alice")
            } else {
                Err(invalid(&TokenError::Algorithm))
            };
            assert_eq!(verdict(&jwt, token).await, expect, "{algorithm} where {allowed} is allowed");
        }
    }
}

/// A signature is valid for its own algorithm only, even with the same key.
#[tokio::test]
async fn the_header_cannot_change_the_algorithm() {
    let jwt = verifier(KEYS, |_| {}).await;
    for (algorithm, key, token) in tokens().filter(|(_, key, _)| *key != "small") {
        let (_, rest) = token.split_once('.').unwrap();
        for other in Algorithm::ALL.into_iter().filter(|other| other.name() != algorithm) {
            let header = base64(format!(r#"{{"alg":"{other}","kid":"{key}"}}"#).as_bytes());
            let denied = verdict(&jwt, &format!("{header}.{rest}")).await.unwrap_err();
            let (wrong, unknown) = (invalid(&TokenError::Signature), invalid(&TokenError::UnknownKey));
            assert!(denied == wrong || denied == unknown, "{algorithm} as {other}: {denied:?}");
        }
    }
}

#[tokio::test]
async fn the_examples_of_the_rfcs_are_verified() {
    // RFC 7515, A.3, and RFC 8037, A.4. Their claims are not those of an access token; claims are
    // checked after the signature.
    let es256 = (
        r#"{"keys":[{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}"#,
        "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
    );
    let eddsa = (
        r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#,
        "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg",
    );
    for (keys, token) in [es256, eddsa] {
        let jwt = verifier(keys, |_| {}).await;
        assert_eq!(verdict(&jwt, token).await, Err(invalid(&TokenError::Claims)), "{token}");
    }
}

#[tokio::test]
async fn a_file_without_keys_fails_the_start() {
    for text in ["", "{}", r#"{"keys":[]}"#, "<html>"] {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let settings = Settings::new(
            Uri::from_static("https://mcp.example.com/mcp"),
            "i",
            Keys::File(file.path().to_owned()),
        );
        let error = Jwt::start(settings, clock()).await.unwrap_err().to_string();
        assert!(error.contains(file.path().to_str().unwrap()), "{error}");
    }
    let settings = settings(Keys::File("/nowhere/keys.json".into()));
    let error = Jwt::start(settings, clock()).await.unwrap_err().to_string();
    assert!(error.contains("/nowhere/keys.json") && error.contains("No such file"), "{error}");
}
