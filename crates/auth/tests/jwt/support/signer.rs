//! [`Signer`]: a private key that signs tokens.

use data_encoding::BASE64URL_NOPAD;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};

pub(crate) struct Signer {
    id: String,
    key: Ed25519KeyPair,
}

impl Signer {
    pub(crate) fn new(id: &str) -> Self {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
        let key = Ed25519KeyPair::from_pkcs8(document.as_ref()).expect("a key");
        Self { id: id.to_owned(), key }
    }

    /// Returns the public key as a JSON Web Key.
    pub(crate) fn jwk(&self) -> Value {
        let x = base64(self.key.public_key().as_ref());
        json!({"kty": "OKP", "crv": "Ed25519", "kid": self.id, "x": x})
    }

    pub(crate) fn token(&self, claims: &Value) -> String {
        self.token_with(&json!({"alg": "EdDSA", "kid": self.id}), claims)
    }

    pub(crate) fn token_with(&self, header: &Value, claims: &Value) -> String {
        self.token_of(&header.to_string(), &claims.to_string())
    }

    pub(crate) fn token_of(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", base64(header.as_bytes()), base64(claims.as_bytes()));
        let signature = self.key.sign(signed.as_bytes());
        format!("{signed}.{}", base64(signature.as_ref()))
    }
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    BASE64URL_NOPAD.encode(bytes)
}
