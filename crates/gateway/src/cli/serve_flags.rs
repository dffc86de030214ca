//! The flags of `steadfast serve`. Each sets a key of the configuration file.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};
use steadfast::{Revision, StoreUrl};
use toml::{Table, Value};

use crate::config::{Auth, CallLimit, DuplicateIds, Durability, Override, ServerRequestOrder, TimeSpan};

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("server").required(true).multiple(false))]
#[command(after_help = "\
Examples:
  steadfast serve --upstream http://127.0.0.1:8000/mcp     in front of a server
  steadfast serve --upstream https://mcp.example.com/mcp   in front of a server with TLS
  steadfast serve --upstream http://a:8000/mcp --upstream http://b:8000/mcp
                                                           in front of two replicas of a server
  steadfast serve --stdio 'npx -y @modelcontextprotocol/server-everything stdio'
                                                           in front of a program
  steadfast serve --stdio 'uvx mcp-server-git' --env GITHUB_TOKEN
                                                           a program that inherits this variable
  steadfast serve --config steadfast.toml                  several endpoints, and every setting
  steadfast serve --demo                                   the demo server; sessions are in a file
  steadfast serve --demo --store memory:                   the demo server; sessions are in memory
  steadfast serve --demo --listen 127.0.0.1:0              any free port; the URL is printed

`steadfast config example` prints a configuration file. Environment variables override its keys:
STEADFAST__ADMIN__LISTEN is `listen` of `[admin]`. Flags override variables.

Logs go to stderr; RUST_LOG=debug shows more.")]
pub(crate) struct ServeFlags {
    /// The URL of the server; repeat it for replicas of one server
    #[arg(long, value_name = "URL", group = "server")]
    pub(crate) upstream: Vec<String>,

    /// The server as a program that uses the stdio transport. Quotes work as in a shell
    #[arg(long, value_name = "COMMAND", group = "server")]
    pub(crate) stdio: Option<String>,

    /// Set an environment variable of the program of --stdio, or with NAME alone let it inherit the
    /// gateway's value (repeatable). The program also inherits PATH, HOME, LANG and others that
    /// hold no secrets
    #[arg(long = "env", value_name = "NAME[=VALUE]", requires = "stdio", value_parser = variable)]
    pub(crate) variables: Vec<Variable>,

    /// A configuration file. The gateway reloads it when it changes
    #[arg(long, value_name = "FILE", group = "server")]
    pub(crate) config: Option<PathBuf>,

    /// Serve the built-in demo server
    #[arg(long, group = "server")]
    pub(crate) demo: bool,

    /// The address to listen on [default: 127.0.0.1:7411]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,

    /// The session store: `memory:`, `sqlite:PATH`, `redis://HOST` or `postgres://HOST/DATABASE`
    /// [default: a SQLite file in your data folder]
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<StoreAddress>,

    /// Which failures a committed change survives [default: process]
    #[arg(long, value_enum)]
    pub(crate) durability: Option<Durability>,

    /// How long running calls may take to finish after SIGTERM, for example 1m30s [default: 10s]
    #[arg(long, value_name = "DURATION")]
    pub(crate) drain: Option<TimeSpan>,

    /// The address for health checks and metrics [default: none]
    #[arg(long, value_name = "ADDR")]
    pub(crate) admin: Option<SocketAddr>,

    /// Whether clients get requests of servers at once or one after the other [default: concurrent]
    #[arg(long, value_enum)]
    pub(crate) server_request_order: Option<ServerRequestOrder>,

    /// The path of the endpoint [default: /mcp]
    #[arg(long, value_name = "PATH", conflicts_with = "config")]
    pub(crate) path: Option<String>,

    /// The identity of the endpoint: gateways that share a store share the sessions of endpoints
    /// with the same identity [default: a hash of the path and the server]
    #[arg(long, value_name = "ID", conflicts_with = "config")]
    pub(crate) id: Option<String>,

    /// Calls in flight in one upstream session: `auto` (one if the server loses or mixes up
    /// parallel calls), `unlimited`, or a number; further calls are queued [default: auto]
    #[arg(long, value_name = "N", conflicts_with = "config")]
    pub(crate) concurrency: Option<CallLimit>,

    /// Upstream sessions to use per client session, for servers whose tools keep no session state
    /// [default: 1]
    #[arg(long, value_name = "N", conflicts_with = "config")]
    pub(crate) upstream_sessions: Option<NonZeroUsize>,

    /// How clients are authenticated [default: none]
    #[arg(long, value_enum, conflicts_with = "config")]
    pub(crate) auth: Option<Auth>,

    /// What happens to a request whose id is already in flight [default: by-client]
    #[arg(long, value_enum, conflicts_with = "config")]
    pub(crate) duplicate_ids: Option<DuplicateIds>,

    /// The protocol revisions that clients may use: `all`, `legacy` (those with sessions), or a
    /// list such as 2025-11-25,2026-07-28 [default: all]
    #[arg(long, value_name = "REVISIONS", value_delimiter = ',', conflicts_with = "config")]
    pub(crate) revisions: Vec<String>,

    /// Accept this host name, besides loopback names (repeatable)
    #[arg(long = "allow-host", value_name = "NAME", conflicts_with = "config")]
    pub(crate) allow_hosts: Vec<String>,

    /// Accept web pages of this origin, besides those of this machine, such as
    /// https://app.example.com (repeatable)
    #[arg(long = "allow-origin", value_name = "ORIGIN", conflicts_with = "config")]
    pub(crate) allow_origins: Vec<String>,
}

/// The text of a valid [`StoreUrl`]. The text is kept because a `StoreUrl` is printed without its
/// password.
#[derive(Clone)]
pub(crate) struct StoreAddress(String);

impl std::str::FromStr for StoreAddress {
    type Err = <StoreUrl as std::str::FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<StoreUrl>().map(|_| Self(text.to_owned()))
    }
}

impl std::fmt::Debug for StoreAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StoreAddress")
    }
}

impl ServeFlags {
    /// Returns the keys that the flags set. Fails if the command of `--stdio` has unbalanced
    /// quotes.
    pub(crate) fn overrides(&self) -> Result<Vec<Override>, UnbalancedQuotes> {
        let mut over = Vec::new();
        let mut set = |flag: &str, path: &[&str], value: Option<String>| {
            over.extend(value.map(|value| Override::new(flag, path, value)));
        };
        set("--listen", &["listen"], self.listen.map(|address| address.to_string()));
        set("--store", &["store"], self.store.as_ref().map(|store| store.0.clone()));
        set("--durability", &["durability"], self.durability.as_ref().map(name));
        set("--drain", &["shutdown", "drain"], self.drain.map(|drain| drain.to_string()));
        set("--admin", &["admin", "listen"], self.admin.map(|address| address.to_string()));
        let order = self.server_request_order.as_ref().map(name);
        set("--server-request-order", &["server_requests", "order"], order);
        if let Some((flag, endpoint)) = self.endpoint()? {
            over.push(Override::new(flag, &["endpoint"], vec![Value::Table(endpoint)]));
        }
        Ok(over)
    }

    /// Returns the endpoint that the flags describe, and the flag that names its server. `None`
    /// with `--config`.
    fn endpoint(&self) -> Result<Option<(&'static str, Table)>, UnbalancedQuotes> {
        let mut table = Table::new();
        let mut set =
            |key: &str, value: Option<Value>| drop(value.map(|value| table.insert(key.into(), value)));
        let count = |number: NonZeroUsize| Value::Integer(i64::try_from(number.get()).unwrap_or(i64::MAX));
        let list = |names: &[String]| (!names.is_empty()).then(|| names.to_vec().into());
        set("path", self.path.clone().map(Value::from));
        set("id", self.id.clone().map(Value::from));
        set("concurrency", self.concurrency.and_then(|limit| Value::try_from(limit).ok()));
        set("upstream_sessions", self.upstream_sessions.map(count));
        set("auth", self.auth.as_ref().map(name).map(Value::from));
        set("duplicate_ids", self.duplicate_ids.as_ref().map(name).map(Value::from));
        set(
            "revisions",
            match &self.revisions[..] {
                [word] if Revision::parse(word).is_none() => Some(word.clone().into()),
                revisions => list(revisions),
            },
        );
        set("hosts", list(&self.allow_hosts));
        set("origins", list(&self.allow_origins));
        if self.config.is_some() {
            return Ok(None);
        }
        let flag = if let Some(command) = &self.stdio {
            let mut stdio = program(command)?;
            let (set_here, inherited): (Vec<_>, Vec<_>) =
                self.variables.iter().partition(|variable| variable.value.is_some());
            let values = set_here
                .into_iter()
                .filter_map(|Variable { name, value }| Some((name.clone(), value.clone()?.into())));
            stdio.insert("env".into(), Value::Table(values.collect()));
            let names: Vec<_> = inherited.into_iter().map(|variable| variable.name.clone()).collect();
            stdio.insert("inherit_env".into(), names.into());
            set("stdio", Some(Value::Table(stdio)));
            "--stdio"
        } else if self.demo {
            set("demo", Some(true.into()));
            "--demo"
        } else {
            set("upstream", Some(self.upstream.clone().into()));
            "--upstream"
        };
        Ok(Some((flag, table)))
    }
}

/// A command with a quote that is not closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnbalancedQuotes(pub(crate) String);

fn program(command: &str) -> Result<Table, UnbalancedQuotes> {
    let mut words = shlex::split(command).ok_or_else(|| UnbalancedQuotes(command.to_owned()))?;
    let first = if words.is_empty() { String::new() } else { words.remove(0) };
    Ok(Table::from_iter([("command".to_owned(), first.into()), ("args".to_owned(), words.into())]))
}

/// Returns the value as it is written in the file.
fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// An environment variable of a program. Without a value the program inherits the value of the
/// gateway.
#[derive(Clone)]
pub(crate) struct Variable {
    name: String,
    value: Option<String>,
}

/// Leaves out the value, which may be secret.
impl std::fmt::Debug for Variable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Variable").field("name", &self.name).finish_non_exhaustive()
    }
}

fn variable(text: &str) -> Result<Variable, String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (text, None),
    };
    if name.is_empty() {
        return Err("write NAME or NAME=VALUE".to_owned());
    }
    Ok(Variable { name: name.to_owned(), value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_url_keeps_its_password_and_does_not_print_it() {
        let text = "redis://me:secret@host:1";
        let address: StoreAddress = text.parse().expect("an address");
        assert_eq!(address.0, text);
        assert!(!format!("{address:?}").contains("secret"));
        assert!("nowhere://me:secret@host".parse::<StoreAddress>().is_err());
    }

    #[test]
    fn variables_of_a_program_are_inherited_or_set() {
        let read = |text| variable(text).map(|variable| (variable.name, variable.value));
        assert_eq!(read("TOKEN"), Ok(("TOKEN".to_owned(), None)));
        assert_eq!(read("A=b=c"), Ok(("A".to_owned(), Some("b=c".to_owned()))));
        assert_eq!(read("A="), Ok(("A".to_owned(), Some(String::new()))));
        for text in ["", "=x"] {
            assert_eq!(read(text), Err("write NAME or NAME=VALUE".to_owned()));
        }
        assert!(!format!("{:?}", variable("A=secret").expect("a variable")).contains("secret"));
    }

    #[test]
    fn commands_are_split_as_in_a_shell() {
        for (command, expect) in [
            ("server", Some(vec!["server"])),
            ("npx -y 'a b' stdio", Some(vec!["npx", "-y", "a b", "stdio"])),
            (r#"say "it's" a\ b"#, Some(vec!["say", "it's", "a b"])),
            ("  server   --flag=''  ", Some(vec!["server", "--flag="])),
            ("server $HOME *.txt", Some(vec!["server", "$HOME", "*.txt"])),
            ("server 'open", None),
        ] {
            let words = program(command).ok().map(|table| {
                let arguments = table["args"].as_array().expect("a list");
                let all = std::iter::once(&table["command"]).chain(arguments);
                all.map(|word| word.as_str().expect("a text").to_owned()).collect::<Vec<_>>()
            });
            let expect: Option<Vec<String>> =
                expect.map(|words| words.into_iter().map(str::to_owned).collect());
            assert_eq!(words, expect, "{command}");
        }
    }
}
