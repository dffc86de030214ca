//! The same for one endpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use steadfast_upstream as upstream;
use steadfast_upstream::{Calls, Credential, Program, Server};

use super::Checks;
use crate::config::auth::Auth;
use crate::config::endpoint::{Endpoint, Sharing, Stdio};
use crate::config::identity::{self, EndpointIdentity};
use crate::config::plan::{Behind, EndpointPlan};
use crate::config::setting::Setting as _;
use crate::config::values::Allowed;

/// Headers that are the gateway's own business.
const OURS: [&str; 13] = [
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

/// Sessions of the server's that one client may have. Each costs the server what a client of its own would, and a program is started
/// for each.
const MAX_SPREAD: usize = 64;

impl Checks<'_> {
    /// `None` if there was a fault that leaves nothing to build on; every fault is noted.
    pub(super) fn endpoint(&mut self, at: &str, written: &Endpoint) -> Option<EndpointPlan> {
        self.path(at, &written.path);
        self.id(at, written.id.as_deref());
        self.names(&format!("{at}.hosts"), &written.hosts, is_host, "names such as mcp.example.com");
        self.names(
            &format!("{at}.origins"),
            &written.origins,
            is_origin,
            "origins such as https://app.example.com",
        );
        for (key, time) in [
            ("http.keep_alive", written.http.keep_alive),
            ("http.body_timeout", written.http.body_timeout),
            ("engine.sweep_interval", written.engine.sweep_interval),
            ("timeouts.connect", written.timeouts.connect),
            ("timeouts.head", written.timeouts.head),
            ("timeouts.call", written.timeouts.call),
            ("vigil.silence", written.vigil.silence),
        ] {
            self.not_zero(format!("{at}.{key}"), time);
        }
        if let Some(time) = written.timeouts.control {
            self.not_zero(format!("{at}.timeouts.control"), time);
        }
        if written.spread.get() > MAX_SPREAD {
            let what =
                format!("{} sessions of the server's for one of a client's are too many", written.spread);
            self.fault(format!("{at}.spread"), what, format!("at most {MAX_SPREAD}"));
        }
        let mut written = written.clone();
        self.resolve(&format!("{at}.headers"), &mut written.headers);
        if let Some(stdio) = &mut written.stdio {
            self.resolve(&format!("{at}.stdio.env"), &mut stdio.env);
        }
        let (auth, auth_files) = self.auth(at, &written);
        let (tls, server_files) = self.server_tls(at, &written);
        let mut behind = self.behind(at, &written)?;
        if let Behind::Upstream(config) = &mut behind {
            config.tls = tls;
        }
        let identity =
            EndpointIdentity::new(written.id.as_deref(), &written.path, &behind, &self.world.folder);
        let path = written.path.as_str().into();
        Some(EndpointPlan { path, identity, behind, auth, server_files, auth_files, written })
    }

    fn path(&mut self, at: &str, path: &str) {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-._~".contains(c);
        if !path.starts_with('/') || path.contains("//") || !path.chars().all(is_plain) {
            let what = format!("{path:?} is no path");
            self.fault(format!("{at}.path"), what, "a slash and plain letters, as /mcp or /team/files");
        }
    }

    fn id(&mut self, at: &str, id: Option<&str>) {
        if let Some(id) = id.filter(|id| !identity::is_valid(id)) {
            let what = format!("{id:?} is no identity");
            let remedy =
                format!("1 to {} letters, digits and dashes, as files-server", identity::MAX_ID_CHARS);
            self.fault(format!("{at}.id"), what, remedy);
        }
    }

    fn names(&mut self, key: &str, allowed: &Allowed, is_fine: fn(&str) -> bool, remedy: &str) {
        let Allowed::And(names) = allowed else { return };
        for (index, name) in names.iter().enumerate().filter(|(_, name)| !is_fine(name)) {
            self.fault(format!("{key}[{index}]"), format!("{name:?} would match nothing"), remedy);
        }
    }

    fn resolve(&mut self, key: &str, values: &mut BTreeMap<String, String>) {
        for (name, value) in values {
            match self.world.secret(value) {
                Ok(secret) => *value = secret,
                Err(why) => {
                    self.fault(format!("{key}.{name}"), why, "a value, \"env:NAME\" or \"file:PATH\"")
                }
            }
        }
    }

    fn behind(&mut self, at: &str, written: &Endpoint) -> Option<Behind> {
        let urls = written.upstream.all();
        match (urls.is_empty(), &written.stdio, written.demo) {
            (true, None, true) => Some(Behind::Demo),
            (false, None, false) => {
                let server = self.replicas(at, written)?;
                Some(Behind::Upstream(Box::new(self.upstream(at, written, server))))
            }
            (true, Some(stdio), false) => {
                let server = self.program(at, written, stdio)?;
                Some(Behind::Upstream(Box::new(self.upstream(at, written, server))))
            }
            (true, None, false) => {
                let remedy = "upstream = \"http://127.0.0.1:8000/mcp\", or stdio = { command = \"…\" }";
                self.fault(at, "there is no server behind it", remedy);
                None
            }
            _ => {
                self.fault(
                    at,
                    "there is more than one server behind it",
                    "one of `upstream`, `stdio` and `demo`",
                );
                None
            }
        }
    }

    fn replicas(&mut self, at: &str, written: &Endpoint) -> Option<Server> {
        let urls = &written.upstream;
        let mut seen = BTreeSet::new();
        let mut replicas = Vec::new();
        for (index, text) in urls.all().iter().enumerate() {
            let key = format!("{at}.upstream{}", urls.step(index));
            match server_at(text) {
                Ok(uri) => replicas.push(uri),
                Err((what, remedy)) => self.fault(&key, what, remedy),
            }
            if !seen.insert(text) {
                self.fault(key, format!("{text} is listed before"), "each replica once");
            }
        }
        let headers = self.headers(&format!("{at}.headers"), &written.headers);
        (replicas.len() == urls.all().len()).then_some(Server::Http { replicas, headers })
    }

    fn program(&mut self, at: &str, written: &Endpoint, stdio: &Stdio) -> Option<Server> {
        if !written.headers.is_empty() {
            let remedy = "`stdio.env` for what it has to know";
            self.fault(format!("{at}.headers"), "a program gets no headers", remedy);
        }
        if written.auth == Auth::Forward {
            let remedy = "auth = \"none\" or \"jwt\"";
            self.fault(format!("{at}.auth"), "a program cannot be shown a client's credentials", remedy);
        }
        if !written.standalone {
            let what = "while several calls run, a program asks where nobody would read it";
            self.fault(format!("{at}.standalone"), what, "standalone = true");
        }
        if stdio.processes == 0 {
            let what = "no process at all is too few";
            self.fault(format!("{at}.stdio.processes"), what, "as many as there are sessions at a time");
        }
        if let Some(folder) =
            stdio.folder.as_ref().filter(|folder| !(self.world.is_folder)(Path::new(folder)))
        {
            self.fault(format!("{at}.stdio.folder"), format!("{folder} is no folder"), "one that is there");
        }
        if stdio.command.is_empty() {
            self.fault(format!("{at}.stdio.command"), "there is no program", "its path, or its name in PATH");
            return None;
        }
        self.look_for_program(at, stdio);
        let mut plain = upstream::Stdio::new(Program {
            command: stdio.command.clone(),
            arguments: stdio.args.clone(),
            environment: stdio.env.clone(),
            folder: stdio.folder.as_ref().map(Into::into),
        });
        plain.sharing = match stdio.sharing {
            Sharing::PerSession => upstream::Sharing::PerSession,
            Sharing::Shared => upstream::Sharing::Shared,
        };
        stdio.line_bytes.put(&mut plain.line_bytes);
        stdio.farewell.put(&mut plain.farewell);
        plain.processes = stdio.processes;
        Some(Server::Stdio(plain))
    }

    fn upstream(&mut self, at: &str, written: &Endpoint, server: Server) -> upstream::Config {
        let mut config = match &server {
            Server::Http { .. } => upstream::Config::http(Vec::new()),
            Server::Stdio(stdio) => upstream::Config::stdio(stdio.program.clone()),
        };
        config.server = server;
        config.credential = self.credential(at, written, &mut config.server);
        config.calls =
            Calls { concurrency: written.concurrency, spread: written.spread, waiting: written.waiting };
        (config.standalone, config.patience) = (written.standalone, written.patience.0);
        written.timeouts.apply(&mut config.timeouts);
        written.backoff.apply(&mut config.backoff);
        written.vigil.apply(&mut config.vigil);
        written.answers.apply(&mut config.limits);
        config
    }

    /// `Authorization` among the headers is the gateway's own credential.
    fn credential(&mut self, at: &str, written: &Endpoint, server: &mut Server) -> Credential {
        let own = match server {
            Server::Http { headers, .. } => headers.remove(header::AUTHORIZATION),
            Server::Stdio(_) => None,
        };
        match (own, &written.auth) {
            (Some(_), Auth::Forward) => {
                let what = "the server gets the client's own credentials, so it cannot get these";
                self.fault(format!("{at}.auth"), what, "auth = \"none\", or no `Authorization` in `headers`");
                Credential::Forwarded
            }
            (None, Auth::Forward) => Credential::Forwarded,
            (Some(own), Auth::None | Auth::Jwt) => Credential::Own(own),
            (None, Auth::None | Auth::Jwt) => Credential::None,
        }
    }

    fn headers(&mut self, key: &str, written: &BTreeMap<String, String>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in written {
            let at = format!("{key}.{name}");
            match (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                (Ok(name), _) if OURS.contains(&name.as_str()) => {
                    self.fault(at, "the gateway sets this header itself", "another name");
                }
                (Ok(name), Ok(mut value)) => {
                    value.set_sensitive(true);
                    headers.insert(name, value);
                }
                (Err(_), _) => self.fault(at, "this is no name of a header", "letters, digits and dashes"),
                (_, Err(_)) => {
                    self.fault(at, "its value cannot be sent in a header", "one line of plain text")
                }
            }
        }
        headers
    }
}

fn server_at(text: &str) -> Result<Uri, (String, &'static str)> {
    let remedy = "http://HOST:PORT/PATH, or https://HOST/PATH";
    let uri: Uri = text.parse().map_err(|error| (format!("{text:?} is no address: {error}"), remedy))?;
    match uri.scheme_str() {
        Some("http" | "https")
            if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) =>
        {
            // The address is logged, and it is a label of metrics.
            let what = "the address of a server must not have credentials in it".to_owned();
            Err((what, "headers = { Authorization = \"env:NAME\" }"))
        }
        Some("http" | "https") if uri.host().is_some_and(|host| !host.is_empty()) => Ok(uri),
        _ => Err((format!("{text:?} is not the address of a server"), remedy)),
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
