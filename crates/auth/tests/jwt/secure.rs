//! Tests that keys are fetched over TLS only from a server with a trusted certificate.

use steadfast_auth::{Jwt, Keys};
use steadfast_http::Denied;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::secure::{Age, Secure};
use crate::support::{Signer, claims, clock, json, principal, settings, verdict};

/// Starts an HTTPS server that responds with this text.
async fn publish(text: String) -> Secure {
    Secure::listen(Age::InTime, move |mut stream| {
        let text = text.clone();
        async move {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let length = text.len();
            let answer = format!("HTTP/1.1 200 x\r\ncontent-length: {length}\r\n\r\n{text}");
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
        }
    })
    .await
}

#[tokio::test]
async fn keys_are_fetched_only_from_a_server_with_a_trusted_certificate() {
    let signer = Signer::new("a");
    let publisher = publish(json!({"keys": [signer.jwk()]}).to_string()).await;
    let keys = Keys::Url(publisher.url("/keys"));
    let token = signer.token(&claims());
    let distrusting = Jwt::start(settings(keys.clone()), clock()).await.unwrap();
    assert!(matches!(verdict(&distrusting, &token).await, Err(Denied::Unavailable { .. })));
    let mut settings = settings(keys);
    settings.tls = publisher.tls();
    let jwt = Jwt::start(settings, clock()).await.unwrap();
    assert_eq!(verdict(&jwt, &token).await, principal("alice"));
}
