//! Requests without sessions on their way through: a client, an endpoint of ours, and a server
//! behind it, over real sockets.
#![allow(clippy::unwrap_used, reason = "in tests")]

#[path = "../../client/tests/support/mod.rs"]
mod support;

mod stateless {
    mod front;

    mod answers;
    mod eras;
    mod library;
    #[cfg(unix)]
    mod programs;
    mod subscriptions;
}
