//! Tokens, good and hostile, and the keys that tell them apart, from publishers good and hostile.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

mod jwt {
    mod keys;
    mod secure;
    mod tokens;
    mod vectors;
}
