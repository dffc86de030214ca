//! What stands between a client and a server that protects itself: its credentials, and TLS.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support {
    #[path = "../../../client/tests/support/secure.rs"]
    mod secure;

    pub(crate) use secure::{Age, Secure};
}

mod outside {
    mod credentials;
    mod front;
    mod secure;
}
