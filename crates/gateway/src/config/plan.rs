//! A checked configuration in the types of the lower crates. The rest of the gateway works from it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use steadfast::{Durability, Hosts, Origins, Quirks, ResponseMode, Rules, StoreUrl};
use steadfast_auth as auth;
use steadfast_engine::Options;
use steadfast_http as http;
use steadfast_http::listen;
use steadfast_http::listen::tls::Identity;
use steadfast_upstream as upstream;

use super::config_fault::ConfigFault;
use super::endpoint_identity::EndpointIdentity;
use super::file::{AllowList, DuplicateIds, EndpointTable, File, Response};

/// With `auth = "forward"`: how long the response to a call waits for the server's verdict on the
/// credentials, so that a client with an expired token gets a 401. Servers verify credentials
/// first, so most have answered by then. Until then a client cannot resume the response, so it must
/// not be long.
const AUTH_WAIT: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) listen: Vec<SocketAddr>,
    /// `None`: the default file.
    pub(crate) store: Option<StoreUrl>,
    pub(crate) durability: Durability,
    pub(crate) drain: Duration,
    pub(crate) log: String,
    pub(crate) tls: Option<TlsPlan>,
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) listener: listen::Limits,
    pub(crate) rules: Rules,
    pub(crate) endpoints: Vec<EndpointPlan>,
    /// The file with overrides applied, for the comparison with the next one.
    pub(crate) file: File,
    /// Faults that do not prevent a start, because they may be gone when the value is needed.
    pub(crate) warnings: Vec<ConfigFault>,
}

impl Plan {
    /// The files that the configuration names and that were read for it.
    pub(crate) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let of_endpoints =
            self.endpoints.iter().flat_map(|each| each.server_files.iter().chain(&each.auth_files));
        self.tls.iter().flat_map(|tls| &tls.files).chain(of_endpoints.map(|(path, _)| path))
    }

    /// Returns the keys whose new value needs a restart.
    pub(crate) fn keys_that_need_restart(&self, new: &Self) -> Vec<String> {
        let (old, new) = (&self.file, &new.file);
        let keys = [
            ("listen", old.listen != new.listen),
            ("store", old.store != new.store),
            ("durability", old.durability != new.durability),
            ("tls", old.tls.is_some() != new.tls.is_some()),
            ("admin", old.admin != new.admin),
            ("shutdown.delay", old.shutdown.delay != new.shutdown.delay),
            ("shutdown.flush", old.shutdown.flush != new.shutdown.flush),
            ("limits", old.limits != new.limits),
            ("session", old.session != new.session),
            ("server_requests", old.server_requests != new.server_requests),
        ];
        keys.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key.to_owned()).collect()
    }

    /// Restores the values that only a restart can change, so that the next reload is compared with
    /// what runs.
    pub(crate) fn keep_fixed(&mut self, running: Self) {
        let (new, old) = (&mut self.file, running.file);
        (new.listen, new.store, new.durability) = (old.listen, old.store, old.durability);
        (new.shutdown.delay, new.shutdown.flush) = (old.shutdown.delay, old.shutdown.flush);
        (new.limits, new.session) = (old.limits, old.session);
        (new.admin, new.server_requests) = (old.admin, old.server_requests);
        if new.tls.is_some() != old.tls.is_some() {
            new.tls = old.tls;
        }
        (self.listen, self.store, self.admin) = (running.listen, running.store, running.admin);
        self.listener = running.listener;
    }
}

#[derive(Clone, Debug)]
pub(crate) struct TlsPlan {
    /// The certificate and the key.
    pub(crate) files: [PathBuf; 2],
    pub(crate) identity: Identity,
}

#[derive(Clone, Debug)]
pub(crate) struct EndpointPlan {
    pub(crate) path: Arc<str>,
    pub(crate) identity: EndpointIdentity,
    pub(crate) backend: BackendPlan,
    pub(crate) auth: AuthPlan,
    pub(crate) options: Options,
    /// Files with the certificates for the server.
    pub(crate) server_files: FileDigests,
    /// Files with keys of the token issuer and the certificates to fetch them.
    pub(crate) auth_files: FileDigests,
    /// The table with `[defaults]` applied and secrets resolved.
    pub(crate) table: EndpointTable,
}

/// Files that were read for a plan, with the SHA-256 of their content.
pub(crate) type FileDigests = Vec<(PathBuf, [u8; 32])>;

/// How an endpoint authenticates its clients.
#[derive(Clone, Debug)]
pub(crate) enum AuthPlan {
    None,
    Forward,
    Jwt(Box<auth::Settings>),
}

/// The server behind an endpoint.
#[derive(Clone, Debug)]
pub(crate) enum BackendPlan {
    Demo,
    Upstream(Box<upstream::Config>),
}

impl EndpointPlan {
    /// The settings of the HTTP layer, except for `principal`.
    pub(crate) fn http(&self) -> http::Config {
        let table = &self.table;
        http::Config {
            hosts: match &table.hosts {
                AllowList::Loopback => Hosts::Loopback,
                AllowList::Any => Hosts::Any,
                AllowList::LoopbackAnd(names) => Hosts::LoopbackAnd(names.clone()),
            },
            origins: match &table.origins {
                AllowList::Loopback => Origins::Loopback,
                AllowList::Any => Origins::Any,
                AllowList::LoopbackAnd(origins) => Origins::LoopbackAnd(origins.clone()),
            },
            response: match table.response {
                Response::Stream => ResponseMode::Stream,
                Response::Json => ResponseMode::Json,
                Response::Adaptive => ResponseMode::Adaptive,
            },
            duplicate_ids: match table.duplicate_ids {
                DuplicateIds::ByClient => steadfast::DuplicateIds::ByClient,
                DuplicateIds::Reject => steadfast::DuplicateIds::Reject,
                DuplicateIds::Isolate => steadfast::DuplicateIds::Isolate,
            },
            quirks: if table.quirks { Quirks::Apply } else { Quirks::Ignore },
            revisions: table.revisions.0.clone(),
            max_request_bytes: table.max_request_bytes.to_usize(),
            keep_alive: table.keep_alive.0,
            auth_wait: if self.forwards_credentials() { AUTH_WAIT } else { Duration::ZERO },
            ..http::Config::default()
        }
    }

    fn forwards_credentials(&self) -> bool {
        let BackendPlan::Upstream(config) = &self.backend else { return false };
        matches!(config.credential, upstream::Credential::Forwarded)
    }
}
