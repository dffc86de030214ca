//! Keys that come over TLS.

use steadfast_auth::{Jwt, Keys};
use steadfast_http::Denied;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::secure::{Age, Secure};
use crate::support::{Signer, claims, clock, json, principal, settings, verdict};

/// Publishes this text.
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
async fn keys_are_believed_from_whoever_proves_its_name() {
    let signer = Signer::new("a");
    let publisher = publish(json!({"keys": [signer.jwk()]}).to_string()).await;
    let keys = Keys::Url(publisher.url("/keys"));
    let token = signer.token(&claims());
    let stranger = Jwt::start(settings(keys.clone()), clock()).await.unwrap();
    assert!(matches!(verdict(&stranger, &token).await, Err(Denied::Unavailable { .. })));
    let mut settings = settings(keys);
    settings.tls = publisher.tls();
    let jwt = Jwt::start(settings, clock()).await.unwrap();
    assert_eq!(verdict(&jwt, &token).await, principal("alice"));
}
