//! Whether the values make sense, alone and together. Every fault is found, not only the first.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use steadfast::{Rules, StoreUrl};
use steadfast_http::listen;
use steadfast_http::listen::tls::{Identity, IdentityError};
use tracing_subscriber::EnvFilter;

use super::auth::{Auth, Jwt};
use super::endpoint::AskOrder;
use super::fault::{Fault, Place};
use super::file::{File, Tls};
use super::overrides::Override;
use super::plan::{EndpointPlan, Plan, TlsPlan};
use super::secret::World;
use super::tree::Tree;
use super::values::Time;

mod endpoint;
mod jwt;
mod program;
mod secure;

/// Threads of one listener. Each costs a stack and a descriptor or two.
const MAX_THREADS: usize = 1024;

/// Where values were written, to say so.
pub(crate) struct Written<'a> {
    pub(crate) tree: &'a Tree<'a>,
    pub(crate) overrides: &'a [Override],
}

impl Written<'_> {
    /// What was said last counts.
    fn place(&self, key: &str) -> Place {
        let says = |each: &&Override| {
            key.strip_prefix(&each.key()).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let over = self.overrides.iter().rev().find(says);
        over.map_or_else(|| self.tree.find(key), |over| Place::Named(over.origin.clone()))
    }
}

/// Collects faults on the way.
pub(super) struct Checks<'a> {
    written: &'a Written<'a>,
    world: &'a World<'a>,
    faults: Vec<Fault>,
    /// What may be right by the time that it is needed.
    warnings: Vec<Fault>,
}

pub(crate) fn check(file: File, written: &Written<'_>, world: &World<'_>) -> Result<Plan, Vec<Fault>> {
    let mut checks = Checks { written, world, faults: Vec::new(), warnings: Vec::new() };
    let listen = checks.listen(&file);
    let store = file.store.as_ref().and_then(|url| checks.store(url));
    let tls = file.tls.as_ref().and_then(|tls| checks.tls(tls));
    let admin = file.admin.listen.as_ref().and_then(|address| checks.address("admin.listen", address));
    if let Some(taken) = admin.filter(|admin| admin.port() != 0 && listen.contains(admin)) {
        checks.fault("admin.listen", format!("{taken} is taken by `listen`"), "another port");
    }
    checks.bytes(&file, store.as_ref());
    checks.log(&file.log);
    checks.times(&file);
    checks.defaults(&file);
    let endpoints = checks.endpoints(&file);
    let mut rules = Rules::default();
    file.limits.apply(&mut rules.limits);
    file.timing.apply(&mut rules.timing);
    if !file.endpoint.is_empty() && file.endpoint.iter().all(|each| each.ask_order == AskOrder::Strict) {
        // The store sees to it that no two processes ask at once.
        rules.limits.asks = rules.limits.asks.min(1);
    }
    let mut listener = listen::Limits::default();
    file.listener.apply(&mut listener);
    if let Some(tls) = &file.tls {
        listener.handshake = tls.handshake.0;
    }
    if !checks.faults.is_empty() {
        return Err(checks.faults);
    }
    let (durability, drain, log) = (file.durability.into(), file.drain.0, file.log.clone());
    let warnings = checks.warnings;
    Ok(Plan { warnings, listen, store, durability, drain, log, tls, admin, listener, rules, endpoints, file })
}

impl Checks<'_> {
    pub(super) fn fault(
        &mut self,
        key: impl Into<String>,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let fault = self.found(key.into(), what.into(), remedy.into());
        self.faults.push(fault);
    }

    pub(super) fn warn(
        &mut self,
        key: impl Into<String>,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let fault = self.found(key.into(), what.into(), remedy.into());
        self.warnings.push(fault);
    }

    fn found(&self, key: String, what: String, remedy: String) -> Fault {
        Fault { place: self.written.place(&key), key, what, remedy }
    }

    fn listen(&mut self, file: &File) -> Vec<SocketAddr> {
        let mut addresses = Vec::new();
        for (index, text) in file.listen.all().iter().enumerate() {
            let key = format!("listen{}", file.listen.step(index));
            let Some(address) = self.address(&key, text) else { continue };
            if address.port() != 0 && addresses.contains(&address) {
                self.fault(key, format!("{address} is listed before"), "each address once");
            }
            addresses.push(address);
        }
        if file.listen.all().is_empty() {
            self.fault("listen", "there is no address to listen on", "listen = \"127.0.0.1:7411\"");
        }
        addresses
    }

    fn address(&mut self, key: &str, text: &str) -> Option<SocketAddr> {
        let read = text.parse().ok();
        if read.is_none() {
            let remedy = "an IP address of this machine and a port, as 127.0.0.1:7411 or [::]:7411";
            self.fault(key, format!("{text:?} is no address to listen on"), remedy);
        }
        read
    }

    fn store(&mut self, url: &str) -> Option<StoreUrl> {
        let read = url.parse();
        if let Err(error) = &read {
            self.fault("store", format!("{error}"), "store = \"sqlite:/var/lib/steadfast/sessions.db\"");
        }
        read.ok()
    }

    /// A bound that the store does not apply protects nobody.
    fn bytes(&mut self, file: &File, store: Option<&StoreUrl>) {
        let plain = super::file::Limits::default();
        let in_memory = matches!(store, Some(StoreUrl::Memory));
        let in_a_file = matches!(store, None | Some(StoreUrl::Sqlite(_)));
        if file.limits.store_bytes != plain.store_bytes && !in_memory && !in_a_file {
            let remedy = "a bound of the database's own, as `maxmemory` of Redis; see docs/stores.md";
            self.fault("limits.store_bytes", "a database does not count what sessions hold", remedy);
        }
        if file.limits.principal_bytes != plain.principal_bytes && !in_memory {
            let what = "this store does not count what the sessions of a principal hold";
            let remedy = "`session_bytes` and `sessions_per_principal`, or store = \"memory:\"";
            self.fault("limits.principal_bytes", what, remedy);
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
            self.fault(key, "there is no file", remedy);
            return None;
        }
        match (self.world.read)(path.as_ref()) {
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
                format!("{filter:?} is no filter: {error}"),
                "\"info\", or \"info,steadfast_http=debug\"",
            );
        }
    }

    fn times(&mut self, file: &File) {
        self.not_zero("listener.header_timeout", file.listener.header_timeout);
        if file.listener.connections == 0 {
            self.fault("listener.connections", "nobody could connect", "at least 1");
        }
        if file.listener.threads > MAX_THREADS {
            let most = format!("at most {MAX_THREADS}; 0 for one for each core");
            self.fault("listener.threads", "more than any machine has use for", most);
        }
        if let Some(tls) = &file.tls {
            self.not_zero("tls.handshake", tls.handshake);
        }
    }

    pub(super) fn not_zero(&mut self, key: impl Into<String>, time: Time) {
        if time.0.is_zero() {
            self.fault(key, "no time at all is too short", "at least \"1ms\"");
        }
    }

    /// What is one endpoint's cannot be every endpoint's.
    fn defaults(&mut self, file: &File) {
        let plain = super::endpoint::Endpoint::default();
        let own = [
            ("path", file.defaults.path != plain.path),
            ("id", file.defaults.id.is_some()),
            ("upstream", file.defaults.upstream != plain.upstream),
            ("stdio", file.defaults.stdio.is_some()),
            ("demo", file.defaults.demo),
        ];
        for (name, is_set) in own {
            if is_set {
                self.fault(
                    format!("defaults.{name}"),
                    "endpoints cannot share it",
                    format!("`{name}` in [[endpoint]]"),
                );
            }
        }
    }

    /// An endpoint is at one address, and each address is one endpoint's.
    fn resources(&mut self, file: &File) {
        let mut seen = BTreeSet::new();
        let asking = file.endpoint.iter().enumerate().filter(|(_, each)| each.auth == Auth::Jwt);
        for (index, resource) in asking.filter_map(|(index, each)| Some((index, each.jwt.resource.as_ref()?)))
        {
            if !seen.insert(resource) {
                let what = format!("another endpoint is {resource} already");
                self.fault(
                    format!("endpoint[{index}].jwt.resource"),
                    what,
                    "the address that its clients use",
                );
            }
        }
        if file.defaults.jwt != Jwt::default() && !file.endpoint.iter().any(|each| each.auth == Auth::Jwt) {
            self.fault("defaults.jwt", "nobody asks for tokens", "auth = \"jwt\"");
        }
    }

    fn endpoints(&mut self, file: &File) -> Vec<EndpointPlan> {
        if file.endpoint.is_empty() {
            let remedy = "[[endpoint]] with upstream = \"http://127.0.0.1:8000/mcp\"";
            self.fault("endpoint", "there is nothing to serve", remedy);
        }
        let (mut paths, mut identities) = (BTreeSet::new(), BTreeMap::new());
        let mut plans = Vec::new();
        for (index, endpoint) in file.endpoint.iter().enumerate() {
            let at = format!("endpoint[{index}]");
            if !paths.insert(&endpoint.path) {
                let what = format!("another endpoint is at {} already", endpoint.path);
                self.fault(format!("{at}.path"), what, "a path of its own");
            }
            if endpoint.auth != Auth::Jwt && endpoint.jwt != file.defaults.jwt {
                let what = "nobody asks for tokens here";
                self.fault(
                    format!("{at}.jwt"),
                    what,
                    format!("auth = \"jwt\" in the endpoint {}", endpoint.path),
                );
            }
            let plan = self.endpoint(&at, endpoint);
            if let Some(plan) = &plan
                && let Some(other) = identities.insert(Arc::clone(plan.identity.name()), &endpoint.path)
                && *other != endpoint.path
            {
                let what =
                    format!("the endpoint {other} has the identity {:?} already", plan.identity.name());
                self.fault(format!("{at}.id"), what, "an `id` of its own");
            }
            plans.extend(plan);
        }
        self.resources(file);
        plans
    }
}
