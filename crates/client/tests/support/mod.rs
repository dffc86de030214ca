//! Test support: a scripted server that sends exact bytes, and client handlers that record what
//! they receive.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part of this")]

pub(crate) mod handler;
pub(crate) mod server;

use std::future::Future;
use std::time::Duration;

pub(crate) use handler::{Counting, Recorder};
pub(crate) use serde_json::{Value, json};
pub(crate) use server::{Act, Reply, Request, Server};
use steadfast_client::{Answer, Backoff, Client, ClientHandler, Config, Era, Error, Revision};

/// Awaits something that must happen. Panics after a time that suffices on every machine, so that a
/// hang is a failure.
pub(crate) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(20), work).await {
        Ok(done) => done,
        Err(_) => panic!("waited too long for {what}"),
    }
}

/// A configuration for a server of the newest revision with sessions, with short backoff.
pub(crate) fn config(server: &Server) -> Config {
    let mut config = Config::new(server.url());
    config.era = Era::Session(Revision::V2025_11_25);
    config.timeouts.misrouted = Duration::ZERO;
    config.backoff = Backoff {
        first: Duration::from_millis(5),
        longest: Duration::from_millis(400),
        attempts: 4,
        ..Backoff::default()
    };
    config
}

pub(crate) async fn connect(config: Config, handler: impl ClientHandler) -> Client {
    within("a connection", Client::connect(config, handler)).await.expect("the server is there")
}

/// Calls a tool and waits for its answer.
pub(crate) async fn call(client: &Client, tool: &str) -> Result<Answer, Error> {
    let params = json!({"name": tool, "arguments": {}}).to_string();
    within("the answer", client.call("tools/call", Some(&params)).expect("there is room").answer()).await
}

/// The JSON value of a successful result.
pub(crate) fn value(answer: Result<Answer, Error>) -> Value {
    match answer {
        Ok(Answer::Result(text)) => serde_json::from_slice(&text).expect("a result is JSON"),
        other => panic!("no result: {other:?}"),
    }
}
