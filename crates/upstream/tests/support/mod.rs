//! What tests of the upstream are made of: a gateway in front of a real server or a scripted one,
//! and clients that see every byte.
//!
//! Clients and handlers are those of the library's own tests, the scripted server is that of the
//! client's.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part of this")]

pub(crate) mod host;
pub(crate) mod relay;

#[path = "../../../steadfast/tests/support/gates.rs"]
pub(crate) mod gates;
#[path = "../../../steadfast/tests/support/handler.rs"]
pub(crate) mod handler;
#[path = "../../../steadfast/tests/support/http.rs"]
pub(crate) mod http;
#[path = "../../../steadfast/tests/support/input.rs"]
mod input;
#[path = "../../../steadfast/tests/support/host.rs"]
pub(crate) mod library;
#[path = "../../../steadfast/tests/support/lifecycle.rs"]
pub(crate) mod lifecycle;
#[path = "../../../steadfast/tests/support/modern.rs"]
pub(crate) mod modern;
#[path = "../../../steadfast/tests/support/place.rs"]
pub(crate) mod place;
#[path = "../../../steadfast/tests/support/questions.rs"]
pub(crate) mod questions;
#[path = "../../../steadfast/tests/support/rng.rs"]
pub(crate) mod rng;
#[path = "../../../client/tests/support/server.rs"]
pub(crate) mod server;
#[path = "../../../steadfast/tests/support/session.rs"]
pub(crate) mod session;
#[path = "../../../steadfast/tests/support/sse.rs"]
pub(crate) mod sse;
#[path = "../../../steadfast/tests/support/tasks.rs"]
pub(crate) mod tasks;
#[path = "../../../steadfast/tests/support/wire.rs"]
mod wire;

use std::future::Future;
use std::time::Duration;

pub(crate) use gates::Gates;
pub(crate) use handler::TestHandler;
pub(crate) use host::{Builder, Host};
pub(crate) use http::{Http, Reply, Request};
pub(crate) use lifecycle::Heard;
pub(crate) use place::{Backing, Place};
pub(crate) use relay::Relay;
pub(crate) use rng::Rng;
pub(crate) use serde_json::{Value, json};
pub(crate) use session::Session;
pub(crate) use sse::{Frame, Stream};

/// Waits for what must come. Panics after a time that is long for every machine, so that a hang is
/// a failure.
pub(crate) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(20), work).await {
        Ok(done) => done,
        Err(_) => panic!("waited too long for {what}"),
    }
}
