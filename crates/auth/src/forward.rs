//! Credentials that somebody else verifies.

use data_encoding::HEXLOWER;
use http::header::AUTHORIZATION;
use http::request::Parts;
use ring::digest::{Context, SHA256};
use steadfast_engine::Principal;
use steadfast_http::{Denied, Identified, Identify};

/// Nothing else that is hashed begins like this, so that no hash is of use elsewhere.
const DOMAIN: &[u8] = b"steadfast principal of credentials\0";

/// A principal for each value of `Authorization`, and one for whoever shows none. The server behind us says who may do what;
/// here the sessions of different credentials are kept apart, and no more.
#[derive(Clone, Copy, Debug, Default)]
pub struct Forward;

impl Identify for Forward {
    fn identify(&self, parts: &Parts) -> Identified {
        let mut shown = parts.headers.get_all(AUTHORIZATION).iter();
        Identified::Known(match (shown.next(), shown.next()) {
            (None, _) => Ok(Principal::anonymous()),
            (Some(value), None) => Ok(Principal::new(fingerprint(value.as_bytes()))),
            // Which of them counts is anybody's guess.
            (Some(_), Some(_)) => Err(Denied::Unauthenticated { challenge: "Bearer".to_owned() }),
        })
    }
}

/// Enough to know credentials again, and nothing to use.
fn fingerprint(credentials: &[u8]) -> String {
    let mut hash = Context::new(&SHA256);
    hash.update(DOMAIN);
    hash.update(credentials);
    format!("sha256:{}", HEXLOWER.encode(hash.finish().as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(headers: &[&str]) -> Result<Principal, Denied> {
        let mut request = http::Request::post("/mcp");
        for value in headers {
            request = request.header(AUTHORIZATION, *value);
        }
        match Forward.identify(&request.body(()).unwrap().into_parts().0) {
            Identified::Known(known) => known,
            Identified::Pending(_) => panic!("nobody has to be asked"),
        }
    }

    #[test]
    fn credentials_are_told_apart_and_cannot_be_read() {
        assert_eq!(principal(&[]), Ok(Principal::anonymous()));
        let alice = principal(&["Bearer alice"]).unwrap();
        assert_eq!(principal(&["Bearer alice"]), Ok(alice.clone()));
        assert_ne!(principal(&["Bearer bob"]), Ok(alice.clone()));
        assert_ne!(principal(&["bearer alice"]), Ok(alice.clone()));
        assert!(alice.as_str().starts_with("sha256:") && alice.as_str().len() == 71, "{alice:?}");
        // Not what anybody gets who hashes the header.
        let plain = HEXLOWER.encode(ring::digest::digest(&SHA256, b"Bearer alice").as_ref());
        assert!(!alice.as_str().contains(&plain));
        let both = principal(&["Bearer alice", "Bearer bob"]);
        assert_eq!(both, Err(Denied::Unauthenticated { challenge: "Bearer".to_owned() }));
    }
}
