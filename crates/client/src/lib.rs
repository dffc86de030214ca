//! An MCP client for every protocol revision. Each call ends in exactly one outcome.
//!
//! A [`Client`] speaks 2025-03-26, 2025-06-18 and 2025-11-25, which have sessions, and 2026-07-28,
//! which is stateless. The revision is configured or detected ([`Era`]). Every [`Call`] ends in one
//! [`Answer`] or one [`Error`]. An error says which side is to blame ([`Error::blame`]) and whether
//! the call may have taken effect ([`Error::effect`]).
//!
//! - If a stream breaks before the answer, the client resumes it, provided that the server sent
//!   event ids. Otherwise the outcome is [unknown](Error::OutcomeUnknown), and the client does not
//!   retry the call.
//! - If the server has lost the session, the client opens a new one, once for all affected calls.
//! - The [`ClientHandler`] answers server requests (sampling, elicitation, roots) concurrently, up
//!   to [`Limits::server_requests`]. Further requests are queued. While the queue is full, the
//!   client stops reading their streams. [`ServerRequestOrder::Strict`] handles them one by one.
//! - If a stateless call requires input, the handler provides it and the client repeats the call
//!   with the input.
//! - If a server with sessions sends an answer in the response to another request, the answer still
//!   reaches its call.
//! - Payloads are JSON texts and are passed on unchanged.
//!
//! The client needs a tokio runtime. It has one task for each call, for each server request and for
//! the standalone stream. The tasks end with the client.
//!
//! ```no_run
//! use steadfast_client::{ Answer, BoxFuture, Bytes, CallEvent, Client, ClientHandler, Config,
//! ErrorObject, ServerRequest, };
//!
//! /// Accepts every request of the server.
//! struct AcceptAll;
//!
//! impl ClientHandler for AcceptAll { fn on_server_request(&self, _request: ServerRequest) ->
//! BoxFuture<'_, Result<Bytes, ErrorObject>> { Box::pin(async {
//! Ok(Bytes::from_static(br#"{"action":"accept","content":{}}"#)) }) } }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let mut config = Config::new("http://localhost:8080/mcp".parse()?);
//! config.capabilities = r#"{"elicitation":{}}"#.to_owned();
//! let client = Client::connect(config, AcceptAll).await?;
//! let mut call = client.call("tools/call", Some(r#"{"name":"deploy","arguments":{}}"#))?;
//! let outcome = loop {
//!     match call.next().await {
//!         CallEvent::Notification(notification) => println!("{}", notification.method),
//!         CallEvent::Done(outcome) => break outcome,
//!     }
//! };
//! match outcome {
//!     Ok(Answer::Result(json)) => println!("{}", String::from_utf8_lossy(&json)),
//!     Ok(Answer::Error(json)) => println!("tool failed: {}", String::from_utf8_lossy(&json)),
//!     Err(error) => println!("{error} ({:?}, {:?})", error.blame(), error.effect()),
//! }
//! client.close().await?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod call;
mod client;
mod config;
mod error;
mod handler;
mod legacy;
mod modern;
mod negotiation;
mod peer;
mod server_requests;
mod shared;
pub mod transport;

pub use bytes::Bytes;
pub use call::{Call, CallEvent, CallObserver, CallOptions, Canceller, PreparedCall};
pub use client::{Client, OpenSession};
pub use config::{Backoff, Config, Era, Limits, ServerRequestOrder, StandaloneStream, Timeouts};
pub use error::{Blame, Effect, Error, Wait};
pub use handler::{
    BoxFuture, ClientHandler, Event, LostSessionAction, Misrouting, Notification, ReplayRequest,
    ServerRequest,
};
pub use http::{HeaderMap, Uri};
pub use peer::{Answer, CloseCause, EventStream, ServerResponse, StreamEnd};
pub use steadfast_wire::rpc::ErrorObject;
pub use steadfast_wire::{RequestId, Revision};
