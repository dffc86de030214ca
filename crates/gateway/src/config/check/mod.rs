//! Checks the values of a configuration, alone and together, and builds the [`Plan`]. Reports every
//! fault, not only the first one.

mod endpoints;
mod jwt;
mod pem_files;
mod program;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use steadfast::{Rules, StoreUrl};
use steadfast_http::listen;
use steadfast_http::listen::tls::{Identity, IdentityError};
use tracing_subscriber::EnvFilter;

use super::config_fault::{ConfigFault, Position};
use super::file::{Auth, EndpointTable, File, JwtTable, ServerRequestOrder, TimeSpan, Tls};
use super::inputs::Environment;
use super::parse::overrides::Override;
use super::parse::toml_positions::SourceTree;
use super::plan::{EndpointPlan, Plan, TlsPlan};

/// Where each value was written.
pub(crate) struct Positions<'a> {
    pub(crate) tree: &'a SourceTree<'a>,
    pub(crate) overrides: &'a [Override],
}

impl Positions<'_> {
    /// Returns the position of the value that is used: the last override of the key, or else the
    /// file.
    fn find(&self, key: &str) -> Position {
        let sets_key = |each: &&Override| {
            key.strip_prefix(&each.key()).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let last = self.overrides.iter().rev().find(sets_key);
        last.map_or_else(|| self.tree.find(key), |each| Position::EnvOrFlag(each.origin.clone()))
    }
}

/// Collects faults.
pub(super) struct Checks<'a> {
    positions: &'a Positions<'a>,
    environment: &'a Environment<'a>,
    faults: Vec<ConfigFault>,
    /// Faults that may be gone when the value is needed.
    warnings: Vec<ConfigFault>,
}

pub(crate) fn check(
    file: File,
    positions: &Positions<'_>,
    environment: &Environment<'_>,
) -> Result<Plan, Vec<ConfigFault>> {
    let mut checks = Checks { positions, environment, faults: Vec::new(), warnings: Vec::new() };
    let listen = checks.listen(&file);
    let store = file.store.as_ref().and_then(|url| checks.store(url));
    let tls = file.tls.as_ref().and_then(|tls| checks.tls(tls));
    let admin = file.admin.listen.as_ref().and_then(|address| checks.address("admin.listen", address));
    if let Some(address) = admin.filter(|admin| admin.port() != 0 && listen.contains(admin)) {
        checks.fault("admin.listen", format!("`listen` uses {address} already"), "another port");
    }
    checks.limits(&file, store.as_ref());
    checks.log(&file.log);
    checks.defaults(&file);
    let endpoints = checks.endpoints(&file);
    if !checks.faults.is_empty() {
        return Err(checks.faults);
    }
    let (durability, drain, log) = (file.durability.into(), file.shutdown.drain.0, file.log.clone());
    let (listener, rules, warnings) = (listener_limits(&file), rules(&file), checks.warnings);
    Ok(Plan { warnings, listen, store, durability, drain, log, tls, admin, listener, rules, endpoints, file })
}

fn listener_limits(file: &File) -> listen::Limits {
    listen::Limits {
        connections: file.limits.connections,
        drain_delay: file.shutdown.delay.0,
        shutdown_grace: file.shutdown.flush.0,
        ..listen::Limits::default()
    }
}

fn rules(file: &File) -> Rules {
    let mut rules = Rules::default();
    rules.limits.sessions = file.limits.sessions;
    rules.limits.sessions_per_principal = file.limits.sessions_per_principal;
    rules.limits.calls = file.limits.calls;
    rules.limits.store_bytes = file.limits.store_bytes.0;
    rules.limits.session_bytes = file.limits.session_bytes.0;
    rules.limits.stream_bytes = file.limits.stream_bytes.0;
    rules.limits.server_requests = match file.server_requests.order {
        ServerRequestOrder::Concurrent => file.server_requests.concurrency,
        // The store ensures that no two gateways send one at the same time.
        ServerRequestOrder::Strict => file.server_requests.concurrency.min(1),
    };
    rules.timing.idle = file.session.idle_timeout.0;
    rules.timing.grace = file.session.grace.0;
    rules.timing.retention = file.session.retention.0;
    rules
}

impl Checks<'_> {
    pub(super) fn fault(
        &mut self,
        key: impl Into<String>,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let fault = self.located(key.into(), what.into(), remedy.into());
        self.faults.push(fault);
    }

    pub(super) fn warn(
        &mut self,
        key: impl Into<String>,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let fault = self.located(key.into(), what.into(), remedy.into());
        self.warnings.push(fault);
    }

    fn located(&self, key: String, what: String, remedy: String) -> ConfigFault {
        ConfigFault { position: self.positions.find(&key), key, what, remedy }
    }

    fn listen(&mut self, file: &File) -> Vec<SocketAddr> {
        let mut addresses = Vec::new();
        for (index, text) in file.listen.all().iter().enumerate() {
            let key = format!("listen{}", file.listen.key_suffix(index));
            let Some(address) = self.address(&key, text) else { continue };
            if address.port() != 0 && addresses.contains(&address) {
                self.fault(key, format!("{address} is listed twice"), "each address once");
            }
            addresses.push(address);
        }
        if file.listen.all().is_empty() {
            self.fault("listen", "there is no address to listen on", "listen = \"127.0.0.1:7411\"");
        }
        addresses
    }

    fn address(&mut self, key: &str, text: &str) -> Option<SocketAddr> {
        let address = text.parse().ok();
        if address.is_none() {
            let remedy = "an IP address of this machine and a port, such as 127.0.0.1:7411 or [::]:7411";
            self.fault(key, format!("{text:?} is not an address to listen on"), remedy);
        }
        address
    }

    fn store(&mut self, url: &str) -> Option<StoreUrl> {
        let store = url.parse();
        if let Err(error) = &store {
            self.fault("store", format!("{error}"), "store = \"sqlite:/var/lib/steadfast/sessions.db\"");
        }
        store.ok()
    }

    fn limits(&mut self, file: &File, store: Option<&StoreUrl>) {
        if file.limits.connections == 0 {
            self.fault("limits.connections", "no client could connect", "at least 1");
        }
        // A bound that the store ignores would protect nothing.
        let counts_bytes = matches!(store, None | Some(StoreUrl::Memory | StoreUrl::Sqlite(_)));
        if !counts_bytes && file.limits.store_bytes != File::default().limits.store_bytes {
            let remedy = "a limit of the database itself, such as `maxmemory` of Redis; see docs/stores.md";
            self.fault("limits.store_bytes", "this store does not count the bytes of all sessions", remedy);
        }
    }

    fn tls(&mut self, tls: &Tls) -> Option<TlsPlan> {
        let certificate = self.pem("tls.certificate", &tls.certificate);
        let key = self.pem("tls.key", &tls.key);
        match Identity::from_pem(&certificate?, &key?) {
            Ok(identity) => {
                let files = [PathBuf::from(&tls.certificate), PathBuf::from(&tls.key)];
                Some(TlsPlan { files, identity })
            }
            Err(error) => {
                let at = if error == IdentityError::NoKey { "tls.key" } else { "tls.certificate" };
                self.fault(at, error.to_string(), "the PEM files of a certificate and of its key");
                None
            }
        }
    }

    fn pem(&mut self, key: &str, path: &str) -> Option<String> {
        let remedy = "the path of a PEM file";
        if path.is_empty() {
            self.fault(key, "the file is not set", remedy);
            return None;
        }
        match (self.environment.read_file)(path.as_ref()) {
            Ok(text) => Some(text),
            Err(error) => {
                self.fault(key, format!("{path} cannot be read: {error}"), remedy);
                None
            }
        }
    }

    fn log(&mut self, filter: &str) {
        if let Err(error) = EnvFilter::try_new(filter) {
            self.fault(
                "log",
                format!("{filter:?} is not a filter: {error}"),
                "\"info\", or \"info,steadfast_http=debug\"",
            );
        }
    }

    pub(super) fn not_zero(&mut self, key: impl Into<String>, time: TimeSpan) {
        if time.0.is_zero() {
            self.fault(key, "the duration must not be zero", "at least \"1ms\"");
        }
    }

    /// Endpoints cannot share these keys.
    fn defaults(&mut self, file: &File) {
        let plain = EndpointTable::default();
        let own = [
            ("path", file.defaults.path != plain.path),
            ("id", file.defaults.id.is_some()),
            ("upstream", file.defaults.upstream != plain.upstream),
            ("stdio", file.defaults.stdio.is_some()),
            ("demo", file.defaults.demo),
        ];
        for (name, is_set) in own {
            if is_set {
                let remedy = format!("`{name}` in [[endpoint]]");
                self.fault(format!("defaults.{name}"), "endpoints cannot share it", remedy);
            }
        }
    }

    fn endpoints(&mut self, file: &File) -> Vec<EndpointPlan> {
        if file.endpoint.is_empty() {
            let remedy = "[[endpoint]] with upstream = \"http://127.0.0.1:8000/mcp\"";
            self.fault("endpoint", "there is no endpoint", remedy);
        }
        let (mut paths, mut identities) = (BTreeSet::new(), BTreeMap::new());
        let mut plans = Vec::new();
        for (index, table) in file.endpoint.iter().enumerate() {
            let at = format!("endpoint[{index}]");
            if !paths.insert(&table.path) {
                let what = format!("another endpoint has the path {}", table.path);
                self.fault(format!("{at}.path"), what, "a different path");
            }
            if table.auth != Auth::Jwt && table.jwt != file.defaults.jwt {
                let remedy = format!("auth = \"jwt\" in the endpoint {}", table.path);
                self.fault(format!("{at}.jwt"), "the endpoint does not verify tokens", remedy);
            }
            let plan = self.endpoint(&at, table, file);
            if let Some(plan) = &plan
                && let Some(other) = identities.insert(Arc::clone(plan.identity.name()), &table.path)
                && *other != table.path
            {
                let what =
                    format!("the endpoint {other} has the identity {:?} as well", plan.identity.name());
                self.fault(format!("{at}.id"), what, "a different `id`");
            }
            plans.extend(plan);
        }
        self.resources(file);
        plans
    }

    /// Endpoints with `auth = "jwt"` need different resources.
    fn resources(&mut self, file: &File) {
        let mut seen = BTreeSet::new();
        for (index, table) in file.endpoint.iter().enumerate().filter(|(_, table)| table.auth == Auth::Jwt) {
            if let Some(resource) = &table.jwt.resource
                && !seen.insert(resource)
            {
                let what = format!("another endpoint has the resource {resource}");
                let key = format!("endpoint[{index}].jwt.resource");
                self.fault(key, what, "the URL that clients of this endpoint use");
            }
        }
        if file.defaults.jwt != JwtTable::default() && file.endpoint.iter().all(|each| each.auth != Auth::Jwt)
        {
            self.fault("defaults.jwt", "no endpoint verifies tokens", "auth = \"jwt\"");
        }
    }
}
