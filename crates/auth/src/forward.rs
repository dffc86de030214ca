//! [`Forward`]: derives the principal from a hash of the credentials, for endpoints whose upstream
//! server verifies the credentials.

use data_encoding::HEXLOWER;
use http::header::AUTHORIZATION;
use http::request::Parts;
use ring::digest::{Context, SHA256};
use steadfast_engine::Principal;
use steadfast_http::{Denied, Identified, Identify};

/// Hashed in front of the credentials. No other hash in the workspace starts with it, so the hashes
/// cannot be used elsewhere.
const DOMAIN: &[u8] = b"steadfast principal of credentials\0";

/// Gives each value of `Authorization` its own principal, and requests without the header the
/// anonymous one. Verifies nothing: the upstream server decides what the credentials allow.
/// Sessions of different credentials stay separate.
#[derive(Clone, Debug, Default)]
pub struct Forward {
    prefix: String,
}

impl Forward {
    /// Every principal starts with `prefix`, so that endpoints that share a store have different
    /// principals.
    pub fn with_prefix(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into() }
    }
}

impl Identify for Forward {
    fn identify(&self, parts: &Parts) -> Identified {
        let mut values = parts.headers.get_all(AUTHORIZATION).iter();
        Identified::Known(match (values.next(), values.next()) {
            (None, _) => Ok(Principal::new(self.prefix.as_str())),
            (Some(value), None) => Ok(Principal::new(fingerprint(&self.prefix, value.as_bytes()))),
            // It is undefined which of several headers counts.
            (Some(_), Some(_)) => Err(Denied::Unauthenticated { challenge: "Bearer".to_owned() }),
        })
    }
}

/// Returns `prefix` and a hash that identifies the credentials and cannot be used in their place.
fn fingerprint(prefix: &str, credentials: &[u8]) -> String {
    let mut hash = Context::new(&SHA256);
    hash.update(DOMAIN);
    hash.update(credentials);
    format!("{prefix}{}{}", Principal::CREDENTIAL_MARK, HEXLOWER.encode(hash.finish().as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(headers: &[&str]) -> Result<Principal, Denied> {
        let mut request = http::Request::post("/mcp");
        for value in headers {
            request = request.header(AUTHORIZATION, *value);
        }
        match Forward::default().identify(&request.body(()).unwrap().into_parts().0) {
            Identified::Known(known) => known,
            Identified::Pending(_) => panic!("a hash needs no I/O"),
        }
    }

    #[test]
    fn every_principal_starts_with_the_prefix() {
        for (request, start) in [
            (http::Request::post("/mcp"), "files "),
            (http::Request::post("/mcp").header(AUTHORIZATION, "Bearer alice"), "files sha256:"),
        ] {
            let parts = request.body(()).unwrap().into_parts().0;
            let Identified::Known(Ok(principal)) = Forward::with_prefix("files ").identify(&parts) else {
                panic!("a hash needs no I/O");
            };
            assert!(principal.as_str().starts_with(start), "{principal:?}");
        }
    }

    #[test]
    fn different_credentials_have_different_hashes() {
        assert_eq!(principal(&[]), Ok(Principal::anonymous()));
        let alice = principal(&["Bearer alice"]).unwrap();
        assert_eq!(principal(&["Bearer alice"]), Ok(alice.clone()));
        assert_ne!(principal(&["Bearer bob"]), Ok(alice.clone()));
        assert_ne!(principal(&["bearer alice"]), Ok(alice.clone()));
        assert!(alice.as_str().starts_with("sha256:") && alice.as_str().len() == 71, "{alice:?}");
        // The hash differs from a plain hash of the header.
        let plain = HEXLOWER.encode(ring::digest::digest(&SHA256, b"Bearer alice").as_ref());
        assert!(!alice.as_str().contains(&plain));
        let both = principal(&["Bearer alice", "Bearer bob"]);
        assert_eq!(both, Err(Denied::Unauthenticated { challenge: "Bearer".to_owned() }));
    }
}
