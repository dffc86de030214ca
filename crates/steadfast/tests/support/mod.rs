//! What tests over real HTTP are made of: a host that serves a handler made for tests, and clients
//! that see every byte.
//!
//! Tests control what happens when through gates and a clock of their own. The timeouts in here
//! only find hangs.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part of this")]

pub(crate) mod gates;
pub(crate) mod handler;
pub(crate) mod host;
pub(crate) mod http;
mod input;
pub(crate) mod lifecycle;
pub(crate) mod modern;
pub(crate) mod place;
pub(crate) mod questions;
pub(crate) mod recorder;
pub(crate) mod rng;
pub(crate) mod session;
pub(crate) mod sse;
pub(crate) mod tasks;
mod wire;

use std::future::Future;
use std::time::Duration;

pub(crate) use gates::Gates;
pub(crate) use handler::TestHandler;
pub(crate) use host::Host;
pub(crate) use http::{Http, Reply, Request};
pub(crate) use lifecycle::Heard;
pub(crate) use modern::Modern;
pub(crate) use place::{Backing, Place};
pub(crate) use rng::Rng;
pub(crate) use serde_json::{Value, json};
pub(crate) use session::Session;
pub(crate) use sse::{Frame, Stream};

/// What a test sets a host up with.
pub(crate) type Builder = steadfast::Builder<TestHandler>;

/// Waits for what must come. Panics after a time that is long for every machine, so that a hang is
/// a failure.
pub(crate) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(20), work).await {
        Ok(done) => done,
        Err(_) => panic!("waited too long for {what}"),
    }
}
