//! `steadfast serve`: flags, each of which is a key of the configuration file.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};
use steadfast::StoreUrl;
use toml::{Table, Value};

use crate::config::Override;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).multiple(false))]
#[command(after_help = "\
Examples:
  steadfast serve --upstream http://127.0.0.1:8000/mcp     in front of a server
  steadfast serve --upstream https://mcp.example.com/mcp    the same, over TLS
  steadfast serve --upstream http://a:8000/mcp --upstream http://b:8000/mcp
                                                           in front of its replicas
  steadfast serve --stdio 'npx -y @modelcontextprotocol/server-everything stdio'
                                                           in front of a program
  steadfast serve --config steadfast.toml                  several endpoints, and every setting
  steadfast serve --demo                                   try it; sessions are kept in a file of yours
  steadfast serve --demo --store memory:                   nothing is written anywhere
  steadfast serve --demo --listen 127.0.0.1:0              any free port; the URL is printed

`steadfast config example` prints a configuration file to start from. A key of it can also be set by a variable:
STEADFAST__ADMIN__LISTEN is `listen` of `[admin]`. Flags go before variables, and these before the file.

Logs go to stderr; RUST_LOG=debug shows more.")]
pub(crate) struct Serve {
    /// Serve what is at this URL; repeat it for replicas of one server
    #[arg(long, value_name = "URL", group = "what")]
    pub(crate) upstream: Vec<String>,

    /// Serve this program, which speaks on its standard input and output. Quotes work as in a shell
    #[arg(long, value_name = "COMMAND", group = "what")]
    pub(crate) stdio: Option<String>,

    /// Serve what this file says, and follow its changes
    #[arg(long, value_name = "FILE", group = "what")]
    pub(crate) config: Option<PathBuf>,

    /// Serve the built-in demo server
    #[arg(long, group = "what")]
    pub(crate) demo: bool,

    /// Where to listen [default: 127.0.0.1:7411]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,

    /// Where sessions are kept: `memory:`, `sqlite:PATH`, `redis://HOST` or `postgres://HOST/DATABASE` [default: a file in your data folder]
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<StoreAddress>,

    /// What an acknowledged step survives [default: process]
    #[arg(long, value_enum)]
    pub(crate) durability: Option<DurabilityFlag>,

    /// How long running calls may take to finish after SIGTERM, in seconds [default: 10]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) drain: Option<Milliseconds>,

    /// Where health checks and metrics are served [default: nowhere]
    #[arg(long, value_name = "ADDR")]
    pub(crate) admin: Option<SocketAddr>,

    /// Where clients find the endpoint [default: /mcp]
    #[arg(long, value_name = "PATH", conflicts_with = "config")]
    pub(crate) path: Option<String>,

    /// The identity of the endpoint: gateways that share a store share the sessions of endpoints
    /// with the same identity
    /// [default: a hash of the path and the server]
    #[arg(long, value_name = "ID", conflicts_with = "config")]
    pub(crate) id: Option<String>,

    /// Calls at a time in one session of the server's; more wait [default: no bound]
    #[arg(long, value_name = "N", conflicts_with = "config")]
    pub(crate) concurrency: Option<NonZeroUsize>,

    /// Sessions of the server's for one of a client's, if its tools keep nothing in them [default: 1]
    #[arg(long, value_name = "N", conflicts_with = "config")]
    pub(crate) spread: Option<NonZeroUsize>,

    /// How clients prove who they are [default: none]
    #[arg(long, value_enum, conflicts_with = "config")]
    pub(crate) auth: Option<AuthFlag>,

    /// Whether the server's requests to a client go out together or one at a time [default: concurrent]
    #[arg(long, value_enum, conflicts_with = "config")]
    pub(crate) order: Option<OrderFlag>,

    /// Host names to answer to, besides loopback names (repeatable)
    #[arg(long = "allow-host", value_name = "NAME", conflicts_with = "config")]
    pub(crate) allow_hosts: Vec<String>,

    /// Web pages to serve, besides those on this machine, like https://app.example.com (repeatable)
    #[arg(long = "allow-origin", value_name = "ORIGIN", conflicts_with = "config")]
    pub(crate) allow_origins: Vec<String>,
}

/// An address that was found to be good, as it was written: printed, a [`StoreUrl`] keeps its secrets to itself.
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

impl Serve {
    /// The flags as what they are: keys that go before those of the file. Fails if a command cannot be split.
    pub(crate) fn overrides(&self) -> Result<Vec<Override>, UnbalancedQuotes> {
        let mut over = Vec::new();
        let mut set = |flag: &str, path: &[&str], value: Option<String>| {
            over.extend(value.map(|value| Override::new(flag, path, value)));
        };
        set("--listen", &["listen"], self.listen.map(|address| address.to_string()));
        set("--store", &["store"], self.store.as_ref().map(|store| store.0.clone()));
        set("--durability", &["durability"], self.durability.as_ref().map(name));
        set("--drain", &["drain"], self.drain.map(|drain| format!("{}ms", drain.0)));
        set("--admin", &["admin", "listen"], self.admin.map(|address| address.to_string()));
        if let Some((flag, endpoint)) = self.endpoint()? {
            over.push(Override::new(flag, &["endpoint"], vec![Value::Table(endpoint)]));
        }
        Ok(over)
    }

    /// The one endpoint that the flags describe, unless there is a file.
    fn endpoint(&self) -> Result<Option<(&'static str, Table)>, UnbalancedQuotes> {
        let mut table = Table::new();
        let mut set =
            |key: &str, value: Option<Value>| drop(value.map(|value| table.insert(key.into(), value)));
        let count = |number: NonZeroUsize| Value::Integer(i64::try_from(number.get()).unwrap_or(i64::MAX));
        let list = |names: &[String]| (!names.is_empty()).then(|| names.to_vec().into());
        set("path", self.path.clone().map(Value::from));
        set("id", self.id.clone().map(Value::from));
        set("concurrency", self.concurrency.map(count));
        set("spread", self.spread.map(count));
        set("auth", self.auth.as_ref().map(name).map(Value::from));
        set("ask_order", self.order.as_ref().map(name).map(Value::from));
        set("hosts", list(&self.allow_hosts));
        set("origins", list(&self.allow_origins));
        if self.config.is_some() {
            return Ok(None);
        }
        let flag = if let Some(command) = &self.stdio {
            set("stdio", Some(Value::Table(program(command)?)));
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

/// The user: a quote in a command is not closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnbalancedQuotes(pub(crate) String);

fn program(command: &str) -> Result<Table, UnbalancedQuotes> {
    let mut words = shlex::split(command).ok_or_else(|| UnbalancedQuotes(command.to_owned()))?;
    let first = if words.is_empty() { String::new() } else { words.remove(0) };
    Ok(Table::from_iter([("command".to_owned(), first.into()), ("args".to_owned(), words.into())]))
}

/// As it is written in the file.
fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum DurabilityFlag {
    /// The end of the process, however it comes
    Process,
    /// A power cut as well, at the price of a disk flush for each group of steps
    Power,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum AuthFlag {
    /// Not at all: whoever reaches the endpoint may use it
    None,
    /// The server decides: it gets each client's Authorization as it came
    Forward,
    /// By access tokens, which are verified here. Which ones are good is said by the variables STEADFAST__DEFAULTS__JWT__ISSUER,
    /// STEADFAST__DEFAULTS__JWT__KEYS and STEADFAST__DEFAULTS__JWT__RESOURCE, or by a file: see --config
    Jwt,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OrderFlag {
    /// As many as the limit `asks` allows
    Concurrent,
    /// One at a time
    Strict,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Milliseconds(u128);

fn seconds(text: &str) -> Result<Milliseconds, String> {
    let seconds: f64 = text.parse().map_err(|_| "write a number of seconds".to_owned())?;
    let time = std::time::Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?;
    Ok(Milliseconds(time.as_millis()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_store_is_passed_on_with_its_secrets_and_not_printed() {
        let text = "redis://me:secret@host:1";
        let address: StoreAddress = text.parse().expect("an address");
        assert_eq!(address.0, text);
        assert!(!format!("{address:?}").contains("secret"));
        assert!("nowhere://me:secret@host".parse::<StoreAddress>().is_err());
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
