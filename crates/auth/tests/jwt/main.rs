//! Tests of token verification: valid and hostile tokens, and publishers of keys that work or
//! misbehave.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod keys;
mod secure;
mod support;
mod tokens;
mod vectors;
