//! Whose session it is: endpoints share a store and no session.

use std::fmt::Write as _;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::request::Parts;
use sha2::{Digest as _, Sha256};
use steadfast::{Denied, Principal};
use steadfast_http::PrincipalOf;

use crate::config::Auth;

/// An endpoint's share of all principals. Each of its principals begins with its path and a space, which no path has.
#[derive(Clone, Debug)]
pub(crate) struct Namespace {
    prefix: Arc<str>,
}

impl Namespace {
    pub(crate) fn of(path: &str) -> Self {
        Self { prefix: format!("{path} ").into() }
    }

    pub(crate) fn path(&self) -> &str {
        self.prefix.trim_end()
    }

    pub(crate) fn has(&self, principal: &Principal) -> bool {
        principal.as_str().starts_with(&*self.prefix)
    }

    /// Two endpoints that follow each other at one path are not the same.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.prefix, &other.prefix)
    }

    /// Who is calling, by what the endpoint asks for.
    pub(crate) fn principals(&self, auth: &Auth) -> PrincipalOf {
        let namespace = self.clone();
        match auth {
            Auth::None => {
                let everybody = namespace.principal("");
                Arc::new(move |_: &Parts| Ok::<_, Denied>(everybody.clone()))
            }
            Auth::Forward => Arc::new(move |parts: &Parts| namespace.holder(parts)),
        }
    }

    /// Whoever shows these credentials. Nobody's are needed here: the server says whether they are needed there.
    fn holder(&self, parts: &Parts) -> Result<Principal, Denied> {
        let mut shown = parts.headers.get_all(AUTHORIZATION).iter();
        match (shown.next(), shown.next()) {
            (None, _) => Ok(self.principal("")),
            (Some(credentials), None) => Ok(self.principal(&fingerprint(credentials.as_bytes()))),
            (Some(_), Some(_)) => Err(Denied::Unauthenticated { challenge: "Bearer".into() }),
        }
    }

    fn principal(&self, name: &str) -> Principal {
        Principal::new(format!("{}{name}", self.prefix))
    }
}

/// What is kept of credentials: enough to know them again, and nothing to use.
fn fingerprint(credentials: &[u8]) -> String {
    Sha256::digest(credentials).iter().fold("sha256:".to_owned(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
