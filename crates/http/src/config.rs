//! What an endpoint can be told.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use steadfast_engine::Principal;

use crate::identify::{Denied, PrincipalOf};

/// Settings of one endpoint. The defaults are safe on a developer's machine: loopback names only.
#[derive(Clone)]
pub struct Config {
    /// Which `Host` values are served.
    pub hosts: Hosts,
    /// Which `Origin` values are served, if one is sent.
    pub origins: Origins,
    /// Who is calling.
    pub principal: PrincipalOf,
    pub response: ResponseMode,
    /// The largest POST body.
    pub max_body_bytes: usize,
    /// How long a client may take to send a body.
    pub body_timeout: Duration,
    /// The largest `params` of `initialize`. They are kept for as long as the session lives.
    pub max_initialize_bytes: usize,
    /// The largest sum of header names and values.
    pub max_header_bytes: usize,
    /// The longest batch of 2025-03-26.
    pub max_batch: usize,
    /// A stream that has been silent for this long gets a comment, so that no proxy takes it for dead.
    pub keep_alive: Duration,
    /// How long a client should wait before it comes back to a stream that broke off.
    pub retry: Duration,
    /// How long the head of the response to a call waits for the word of a server that verifies the client's credentials itself: a
    /// client fetches others for a 401, and not for an error that comes after the head. Zero where nobody would say anything.
    pub auth_wait: Duration,
    /// Connections are sent away after this long, to come back; for balancers that cut long responses.
    pub max_connection_age: Option<Duration>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            hosts: Hosts::Loopback,
            origins: Origins::Loopback,
            principal: Arc::new(|_: &Parts| Ok::<_, Denied>(Principal::anonymous())),
            response: ResponseMode::default(),
            max_body_bytes: 4 << 20,
            body_timeout: Duration::from_secs(30),
            max_initialize_bytes: 64 << 10,
            max_header_bytes: 32 << 10,
            max_batch: 100,
            keep_alive: Duration::from_secs(15),
            retry: Duration::from_secs(1),
            auth_wait: Duration::ZERO,
            max_connection_age: None,
        }
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("hosts", &self.hosts)
            .field("origins", &self.origins)
            .finish_non_exhaustive()
    }
}

/// Which hosts a server answers to. Without this check a web page can reach a local server by DNS rebinding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// `localhost`, `127.0.0.1` and `[::1]`, with any port.
    Loopback,
    /// Loopback names, and these, with any port unless they have one.
    LoopbackAnd(Vec<String>),
    /// These names, with any port unless they have one.
    Only(Vec<String>),
    /// Every name. For servers behind a proxy that checks.
    Any,
}

/// Which web pages may talk to a server. Requests without `Origin` come from no web page and pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origins {
    /// Pages from `localhost`, `127.0.0.1` and `[::1]`, with any port.
    Loopback,
    /// Pages from this machine, and exactly these origins, like `https://app.example.com`.
    LoopbackAnd(Vec<String>),
    /// Exactly these origins.
    Only(Vec<String>),
    Any,
}

/// How calls are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResponseMode {
    /// Always a stream: it can be resumed.
    #[default]
    Stream,
    /// Always plain JSON once the call is done. Cheap, but an answer that is lost on the way is lost to the
    /// client. Progress and the like go to the standalone stream.
    Json,
    /// Plain JSON for a call that is answered at once, a stream for the rest.
    Adaptive,
}
