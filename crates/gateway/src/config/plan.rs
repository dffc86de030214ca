//! A configuration that has been checked: what the rest of the gateway works from.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use steadfast::{Durability, Hosts, Origins, ResponseMode, Rules, StoreUrl};
use steadfast_auth as auth;
use steadfast_engine::{self as engine, Options};
use steadfast_http as http;
use steadfast_http::listen;
use steadfast_http::listen::tls::Identity;
use steadfast_upstream as upstream;

use super::endpoint::{AskOrder, Duplicates, Endpoint, Response};
use super::fault::Fault;
use super::file::File;
use super::identity::EndpointIdentity;
use super::values::Allowed;

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) listen: Vec<SocketAddr>,
    /// A file in the user's data folder unless said otherwise.
    pub(crate) store: Option<StoreUrl>,
    pub(crate) durability: Durability,
    pub(crate) drain: Duration,
    pub(crate) log: String,
    pub(crate) tls: Option<TlsPlan>,
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) listener: listen::Limits,
    pub(crate) rules: Rules,
    pub(crate) endpoints: Vec<EndpointPlan>,
    /// As it was written, to see what has changed.
    pub(crate) file: File,
    /// What is wrong now and may be right when it is needed.
    pub(crate) warnings: Vec<Fault>,
}

impl Plan {
    /// Every file that was read for it.
    pub(crate) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let of_endpoints =
            self.endpoints.iter().flat_map(|each| each.server_files.iter().chain(&each.auth_files));
        self.tls.iter().flat_map(|tls| &tls.files).chain(of_endpoints.map(|(path, _)| path))
    }

    /// What cannot change stays what it was when the gateway started.
    pub(crate) fn keep_fixed(&mut self, started: Self) {
        let (new, old) = (&mut self.file, started.file);
        (new.listen, new.store, new.durability) = (old.listen, old.store, old.durability);
        (new.admin, new.listener) = (old.admin, old.listener);
        (new.limits, new.timing) = (old.limits, old.timing);
        (self.listen, self.store, self.admin) = (started.listen, started.store, started.admin);
        self.listener = started.listener;
        match (&mut new.tls, old.tls) {
            (Some(new), Some(old)) => new.handshake = old.handshake,
            (new, old) => *new = old,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct TlsPlan {
    /// The files that it was read from.
    pub(crate) files: [PathBuf; 2],
    pub(crate) identity: Identity,
}

#[derive(Clone, Debug)]
pub(crate) struct EndpointPlan {
    pub(crate) path: Arc<str>,
    pub(crate) identity: EndpointIdentity,
    pub(crate) behind: Behind,
    pub(crate) auth: AuthPlan,
    /// Files that say how the server is reached, and who may use the endpoint.
    pub(crate) server_files: Named,
    pub(crate) auth_files: Named,
    /// As it was written, with secrets in the place of their names.
    pub(crate) written: Endpoint,
}

/// Files that a plan was made with, by what was in them.
pub(crate) type Named = Vec<(PathBuf, [u8; 32])>;

/// Who may use an endpoint.
#[derive(Clone, Debug)]
pub(crate) enum AuthPlan {
    None,
    Forward,
    Jwt(Box<auth::Settings>),
}

/// The server behind an endpoint.
#[derive(Clone, Debug)]
pub(crate) enum Behind {
    Demo,
    Upstream(Box<upstream::Config>),
}

impl EndpointPlan {
    /// All but who is calling.
    pub(crate) fn http(&self) -> http::Config {
        let mut config = http::Config {
            hosts: match &self.written.hosts {
                Allowed::Loopback => Hosts::Loopback,
                Allowed::Any => Hosts::Any,
                Allowed::And(names) => Hosts::LoopbackAnd(names.clone()),
            },
            origins: match &self.written.origins {
                Allowed::Loopback => Origins::Loopback,
                Allowed::Any => Origins::Any,
                Allowed::And(list) => Origins::LoopbackAnd(list.clone()),
            },
            response: match self.written.response {
                Response::Stream => ResponseMode::Stream,
                Response::Json => ResponseMode::Json,
                Response::Adaptive => ResponseMode::Adaptive,
            },
            ..http::Config::default()
        };
        self.written.http.apply(&mut config);
        if !self.shows_clients() {
            config.auth_wait = Duration::ZERO;
        }
        config
    }

    /// Whether there is a server that verifies the credentials of its clients itself.
    fn shows_clients(&self) -> bool {
        let Behind::Upstream(config) = &self.behind else { return false };
        matches!(config.credential, upstream::Credential::Forwarded)
    }

    pub(crate) fn options(&self) -> Options {
        let mut options = Options {
            duplicates: match self.written.duplicates {
                Duplicates::Reject => engine::Duplicates::Reject,
                Duplicates::Isolate => engine::Duplicates::Isolate,
            },
            ask_order: match self.written.ask_order {
                AskOrder::Concurrent => engine::AskOrder::Concurrent,
                AskOrder::Strict => engine::AskOrder::Strict,
            },
            ..Options::default()
        };
        self.written.engine.apply(&mut options);
        options
    }
}
