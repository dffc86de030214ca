//! An MCP client of every revision that nobody has to wait for in vain.
//!
//! A [`Client`] speaks 2025-03-26, 2025-06-18 and 2025-11-25, which have sessions, and 2026-07-28, which has none; which one
//! it is, is configured or found out ([`Era`]). Every [`Call`] ends in one [`Answer`] or one [`Error`], and an error says who
//! is to blame and whether the call may have taken effect.
//!
//! - A stream that breaks before the answer is resumed if the server gave event ids; if that is impossible, the outcome is
//!   [unknown](Error::OutcomeUnknown), and the call is not repeated.
//! - A session that the server has forgotten is opened again, once for all calls that notice.
//! - The server's asks (sampling, elicitation, roots) are handled side by side, up to [`Limits::asks`]; more of them wait,
//!   and then their streams do. [`Order::Strict`] handles them one by one.
//! - A stateless call that asks for input gets it from the same [`Owner`], and is repeated with it.
//! - An answer that a server with sessions sends in the response to another request reaches its call all the same.
//! - Payloads are JSON text and stay as they came.
//!
//! The client lives in a tokio runtime: it has a task for each call, each ask in hand and the standalone stream, and they
//! end with it.
//!
//! ```no_run
//! use steadfast_client::{Answer, Ask, Boxed, Bytes, Client, Config, ErrorObject, Owner, Step};
//!
//! /// Says yes to whatever the server asks.
//! struct Agreeable;
//!
//! impl Owner for Agreeable {
//!     fn answer(&self, _ask: Ask) -> Boxed<'_, Result<Bytes, ErrorObject>> {
//!         Box::pin(async { Ok(Bytes::from_static(br#"{"action":"accept","content":{}}"#)) })
//!     }
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let mut config = Config::new("http://localhost:8080/mcp".parse()?);
//! config.capabilities = r#"{"elicitation":{}}"#.to_owned();
//! let client = Client::connect(config, Agreeable).await?;
//! let mut call = client.call("tools/call", Some(r#"{"name":"deploy","arguments":{}}"#))?;
//! let outcome = loop {
//!     match call.next().await {
//!         Step::Notification(notification) => println!("{}", notification.method),
//!         Step::Done(outcome) => break outcome,
//!     }
//! };
//! match outcome {
//!     Ok(Answer::Result(result)) => println!("{}", String::from_utf8_lossy(&result)),
//!     Ok(Answer::Error(error)) => println!("the tool failed: {}", String::from_utf8_lossy(&error)),
//!     Err(error) => println!("{error} (blame: {:?}, effect: {:?})", error.blame(), error.effect()),
//! }
//! client.close().await?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod asks;
mod call;
mod client;
mod config;
mod era;
mod errand;
mod error;
mod in_flight;
pub mod incoming;
mod legacy;
mod link;
mod message;
mod modern;
mod owner;
mod resume;
mod shared;
pub mod transport;

pub use bytes::Bytes;
pub use call::{Call, CallOptions, Canceller, Step};
pub use client::{Client, OpenSession};
pub use config::{Backoff, Config, Era, Limits, Order, Standalone, Timeouts};
pub use errand::{Errand, Listener};
pub use error::{Blame, Effect, Error, Wait};
pub use http::{HeaderMap, Uri};
pub use message::Answer;
pub use owner::{Ask, Boxed, Event, Notification, Owner, RaceSign, Repeat, Succession};
pub use steadfast_wire::rpc::ErrorObject;
pub use steadfast_wire::{RequestId, Revision};
