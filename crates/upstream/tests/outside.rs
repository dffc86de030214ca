//! What stands between a client and a server that protects itself: its credentials, and TLS.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod outside {
    mod credentials;
    mod front;
    mod secure;
}
