//! What stands between a client and a server that protects itself: its credentials, and TLS.

mod outside {
    mod credentials;
    mod front;
    mod secure;
}
