//! Checks one endpoint and builds its plan.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use steadfast_engine::{Options, ServerRequestOrder as EngineOrder};
use steadfast_upstream as upstream;
use steadfast_upstream::{Credential, Program, Server};

use super::Checks;
use crate::config::endpoint_identity::{self, EndpointIdentity};
use crate::config::file::{AllowList, Auth, EndpointTable, File, ServerRequestOrder, Sharing, Stdio};
use crate::config::plan::{BackendPlan, EndpointPlan};

/// Headers that the gateway sets itself.
const RESERVED_HEADERS: [&str; 13] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// The largest `upstream_sessions`. Each costs the server as much as another client, and a program
/// is started for each.
const MAX_UPSTREAM_SESSIONS: usize = 64;

/// How much longer the upstream waits for an answer than the engine, so that the engine's deadline
/// comes first.
const DEADLINE_MARGIN: Duration = Duration::from_secs(60);

impl Checks<'_> {
    /// Returns `None` if a fault leaves nothing to build a plan from. Records every fault.
    pub(super) fn endpoint(&mut self, at: &str, table: &EndpointTable, file: &File) -> Option<EndpointPlan> {
        self.path(at, &table.path);
        self.id(at, table.id.as_deref());
        self.names(&format!("{at}.hosts"), &table.hosts, is_host, "names such as mcp.example.com");
        self.names(
            &format!("{at}.origins"),
            &table.origins,
            is_origin,
            "origins such as https://app.example.com",
        );
        self.not_zero(format!("{at}.keep_alive"), table.keep_alive);
        self.not_zero(format!("{at}.timeouts.call"), table.timeouts.call);
        self.not_zero(format!("{at}.health_check.silence"), table.health_check.silence);
        if let Some(time) = table.timeouts.control {
            self.not_zero(format!("{at}.timeouts.control"), time);
        }
        if table.upstream_sessions.get() > MAX_UPSTREAM_SESSIONS {
            let what =
                format!("{} upstream sessions per client session are too many", table.upstream_sessions);
            self.fault(format!("{at}.upstream_sessions"), what, format!("at most {MAX_UPSTREAM_SESSIONS}"));
        }
        let mut table = table.clone();
        self.resolve(&format!("{at}.headers"), &mut table.headers);
        if let Some(stdio) = &mut table.stdio {
            self.resolve(&format!("{at}.stdio.env"), &mut stdio.env);
        }
        let (auth, auth_files) = self.auth(at, &table);
        let (tls, server_files) = self.upstream_tls(at, &table.upstream_tls);
        let mut backend = self.backend(at, &table)?;
        if let BackendPlan::Upstream(config) = &mut backend {
            config.tls = tls;
            config.limits.server_requests = file.server_requests.concurrency;
        }
        let (id, cwd) = (table.id.as_deref(), &self.environment.cwd);
        let identity = EndpointIdentity::new(id, &table.path, &backend, cwd);
        let (path, options) = (table.path.as_str().into(), options(file, &table));
        Some(EndpointPlan { path, identity, backend, auth, options, server_files, auth_files, table })
    }

    fn path(&mut self, at: &str, path: &str) {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-._~".contains(c);
        if !path.starts_with('/') || path.contains("//") || !path.chars().all(is_plain) {
            let what = format!("{path:?} is not a path");
            self.fault(
                format!("{at}.path"),
                what,
                "a slash and plain characters, such as /mcp or /team/files",
            );
        }
    }

    fn id(&mut self, at: &str, id: Option<&str>) {
        if let Some(id) = id.filter(|id| !endpoint_identity::is_valid(id)) {
            let what = format!("{id:?} is not an identity");
            let remedy = format!(
                "1 to {} letters, digits and dashes, such as files-server",
                endpoint_identity::MAX_ID_CHARS
            );
            self.fault(format!("{at}.id"), what, remedy);
        }
    }

    fn names(&mut self, key: &str, allowed: &AllowList, is_valid: fn(&str) -> bool, remedy: &str) {
        let AllowList::LoopbackAnd(names) = allowed else { return };
        for (index, name) in names.iter().enumerate().filter(|(_, name)| !is_valid(name)) {
            self.fault(format!("{key}[{index}]"), format!("{name:?} matches nothing"), remedy);
        }
    }

    fn resolve(&mut self, key: &str, values: &mut BTreeMap<String, String>) {
        for (name, value) in values {
            match self.environment.resolve(value) {
                Ok(secret) => *value = secret,
                Err(why) => {
                    self.fault(format!("{key}.{name}"), why, "a value, \"env:NAME\" or \"file:PATH\"")
                }
            }
        }
    }

    fn backend(&mut self, at: &str, table: &EndpointTable) -> Option<BackendPlan> {
        let urls = table.upstream.all();
        match (urls.is_empty(), &table.stdio, table.demo) {
            (true, None, true) => Some(BackendPlan::Demo),
            (false, None, false) => {
                let server = self.replicas(at, table)?;
                Some(BackendPlan::Upstream(Box::new(self.upstream(at, table, server))))
            }
            (true, Some(stdio), false) => {
                let server = self.program(at, table, stdio)?;
                Some(BackendPlan::Upstream(Box::new(self.upstream(at, table, server))))
            }
            (true, None, false) => {
                let remedy = "upstream = \"http://127.0.0.1:8000/mcp\", or stdio = { command = \"…\" }";
                self.fault(at, "the endpoint has no server", remedy);
                None
            }
            _ => {
                self.fault(
                    at,
                    "the endpoint has more than one server",
                    "one of `upstream`, `stdio` and `demo`",
                );
                None
            }
        }
    }

    fn replicas(&mut self, at: &str, table: &EndpointTable) -> Option<Server> {
        let urls = &table.upstream;
        let mut seen = BTreeSet::new();
        let mut replicas = Vec::new();
        for (index, text) in urls.all().iter().enumerate() {
            let key = format!("{at}.upstream{}", urls.key_suffix(index));
            match server_url(text) {
                Ok(uri) => replicas.push(uri),
                Err((what, remedy)) => self.fault(&key, what, remedy),
            }
            if !seen.insert(text) {
                self.fault(key, format!("{text} is listed twice"), "each replica once");
            }
        }
        let headers = self.headers(&format!("{at}.headers"), &table.headers);
        (replicas.len() == urls.all().len()).then_some(Server::Http { replicas, headers })
    }

    fn program(&mut self, at: &str, table: &EndpointTable, stdio: &Stdio) -> Option<Server> {
        if !table.headers.is_empty() {
            let remedy = "`stdio.env` for secrets of the program";
            self.fault(format!("{at}.headers"), "a program gets no HTTP headers", remedy);
        }
        if table.auth == Auth::Forward {
            let remedy = "auth = \"none\" or \"jwt\"";
            self.fault(format!("{at}.auth"), "a program cannot receive the credentials of clients", remedy);
        }
        if stdio.max_processes == 0 {
            let what = "no process could be started";
            self.fault(format!("{at}.stdio.max_processes"), what, "the number of sessions at a time");
        }
        if stdio.idle_timeout.is_some_and(|timeout| timeout.0.is_zero()) {
            let what = "no process would live until its next call";
            self.fault(format!("{at}.stdio.idle_timeout"), what, "a time, or leave it out");
        }
        let is_missing = |cwd: &&String| !(self.environment.is_directory)(Path::new(cwd));
        if let Some(cwd) = stdio.cwd.as_ref().filter(is_missing) {
            self.fault(
                format!("{at}.stdio.cwd"),
                format!("{cwd} is not a directory"),
                "an existing directory",
            );
        }
        if stdio.command.is_empty() {
            self.fault(
                format!("{at}.stdio.command"),
                "the program is not set",
                "its path, or its name in PATH",
            );
            return None;
        }
        self.inherited_variables(at, stdio);
        self.find_program(at, stdio);
        let mut server = upstream::Stdio::new(Program {
            command: stdio.command.clone(),
            arguments: stdio.args.clone(),
            environment: stdio.env.clone(),
            inherit: stdio.inherit_env.clone(),
            folder: stdio.cwd.as_ref().map(Into::into),
        });
        server.sharing = match stdio.sharing {
            Sharing::PerSession => upstream::Sharing::PerSession,
            Sharing::Shared => upstream::Sharing::Shared,
        };
        server.line_bytes = table.max_response_bytes.to_usize();
        server.processes = stdio.max_processes;
        server.idle_timeout = stdio.idle_timeout.map(|timeout| timeout.0);
        Some(Server::Stdio(server))
    }

    fn upstream(&mut self, at: &str, table: &EndpointTable, server: Server) -> upstream::Config {
        let mut config = match &server {
            Server::Http { .. } => upstream::Config::http(Vec::new()),
            Server::Stdio(stdio) => upstream::Config::stdio(stdio.program.clone()),
        };
        config.server = server;
        config.credential = self.credential(at, table, &mut config.server);
        config.calls.concurrency = table.concurrency.0;
        config.calls.upstream_sessions = table.upstream_sessions;
        config.unavailable_timeout = table.timeouts.unavailable.0;
        config.health_check.silence = table.health_check.silence.0;
        config.health_check.failover_after = table.health_check.failover_after.0;
        let longest_call = table.timeouts.call.0.saturating_add(DEADLINE_MARGIN);
        config.timeouts.call = config.timeouts.call.max(longest_call);
        config.timeouts.head = config.timeouts.head.max(longest_call);
        if let Some(control) = table.timeouts.control {
            config.timeouts.control = control.0;
        }
        let max_bytes = table.max_response_bytes.to_usize();
        let limits = &mut config.limits;
        (limits.body_bytes, limits.line_bytes, limits.event_bytes) = (max_bytes, max_bytes, max_bytes);
        config
    }

    /// An `Authorization` header is the credential of the gateway.
    fn credential(&mut self, at: &str, table: &EndpointTable, server: &mut Server) -> Credential {
        let own = match server {
            Server::Http { headers, .. } => headers.remove(header::AUTHORIZATION),
            Server::Stdio(_) => None,
        };
        match (own, &table.auth) {
            (Some(_), Auth::Forward) => {
                let what = "the server gets the credentials of the client instead of the `Authorization` in `headers`";
                self.fault(format!("{at}.auth"), what, "auth = \"none\", or no `Authorization` in `headers`");
                Credential::Forwarded
            }
            (None, Auth::Forward) => Credential::Forwarded,
            (Some(own), Auth::None | Auth::Jwt) => Credential::Own(own),
            (None, Auth::None | Auth::Jwt) => Credential::None,
        }
    }

    fn headers(&mut self, key: &str, values: &BTreeMap<String, String>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in values {
            let at = format!("{key}.{name}");
            match (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                (Ok(name), _) if RESERVED_HEADERS.contains(&name.as_str()) => {
                    self.fault(at, "the gateway sets this header itself", "another name");
                }
                (Ok(name), Ok(mut value)) => {
                    value.set_sensitive(true);
                    headers.insert(name, value);
                }
                (Err(_), _) => self.fault(at, "this is not a header name", "letters, digits and dashes"),
                (_, Err(_)) => self.fault(at, "the value is not a header value", "one line of plain text"),
            }
        }
        headers
    }
}

fn server_url(text: &str) -> Result<Uri, (String, &'static str)> {
    let remedy = "http://HOST:PORT/PATH, or https://HOST/PATH";
    let uri: Uri = text.parse().map_err(|error| (format!("{text:?} is not a URL: {error}"), remedy))?;
    match uri.scheme_str() {
        Some("http" | "https")
            if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) =>
        {
            // The URL is logged, and is a label of metrics.
            let what = "the URL of a server must not contain credentials".to_owned();
            Err((what, "headers = { Authorization = \"env:NAME\" }"))
        }
        Some("http" | "https") if uri.host().is_some_and(|host| !host.is_empty()) => Ok(uri),
        _ => Err((format!("{text:?} is not the URL of a server"), remedy)),
    }
}

fn is_host(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    !name.is_empty() && name.chars().all(is_plain)
}

fn is_origin(origin: &str) -> bool {
    origin.split_once("://").is_some_and(|(scheme, authority)| {
        !scheme.is_empty()
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
            && is_host(authority)
    })
}

fn options(file: &File, table: &EndpointTable) -> Options {
    Options {
        call_deadline: table.timeouts.call.0,
        heartbeat: table.heartbeat.0,
        server_request_deadline: file.server_requests.deadline.0,
        server_request_order: match file.server_requests.order {
            ServerRequestOrder::Concurrent => EngineOrder::Concurrent,
            ServerRequestOrder::Strict => EngineOrder::Strict,
        },
        queued_server_requests: file.server_requests.queue,
        exchanges: file.limits.stateless_requests,
        resume_grace: table.modern.resume_grace.0,
        ..Options::default()
    }
}
