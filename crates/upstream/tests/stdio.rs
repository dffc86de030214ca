//! ProcessPool that behave, and programs that do not, each a real process.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "in tests")]

mod stdio {
    mod support;

    mod calls;
    mod ends;
    mod healing;
    mod outliving;
    mod shared;
    mod stateless;
}
