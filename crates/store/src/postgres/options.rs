//! [`PostgresOptions`]: how to reach and use PostgreSQL. Parses its address.

use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// The longest name of a schema. The name of a channel consists of the schema and a node id, and
/// PostgreSQL truncates names at 63 bytes.
const MAX_SCHEMA_NAME_LENGTH: usize = 40;

/// The shortest time to wait for the reply to a heartbeat, however short `node_ttl` is. With a
/// shorter wait, every heartbeat might fail.
const MIN_HEARTBEAT_TIMEOUT: Duration = Duration::from_millis(250);

/// How to reach and use PostgreSQL. The `Debug` output does not contain the password.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// The server and the credentials.
    pub address: Address,
    /// A PEM file with the certificate authorities to trust, instead of those of the operating
    /// system.
    pub ca: Option<PathBuf>,
    /// The schema with the tables, for stores that share a database.
    pub schema: String,
    /// The largest number of connections for commands. The store uses two more: one for hints, and
    /// one for heartbeats.
    pub connections: usize,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long one request may take.
    pub response_timeout: Duration,
    /// How long a request is retried while the server does not reply. After that the operation
    /// fails.
    pub retry_window: Duration,
    /// How often this process sends a heartbeat.
    pub heartbeat: Duration,
    /// After how long without a heartbeat a node counts as dead.
    pub node_ttl: Duration,
    /// How often nodes poll for changes of other processes whose hint was lost.
    pub poll_interval: Duration,
    /// Whether to send and receive hints, and to signal what other processes change. Tests that
    /// count signals turn this off.
    #[doc(hidden)]
    pub receives_hints: bool,
}

/// The address of the server, with user, password and database.
#[derive(Clone, Debug)]
pub struct Address(pub(super) Config);

impl PostgresOptions {
    /// Parses an address: `postgres://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]`. Settings may
    /// follow, as in `?schema=NAME&node_ttl=3000`:
    ///
    /// - `schema`: the schema with the tables (default `steadfast`)
    /// - `node_ttl`: after how many milliseconds without a heartbeat a process counts as dead
    ///   (3000)
    /// - `connections`: the largest number of connections for commands (8)
    /// - `sslmode`: `verify-full` or `require` for TLS (both verify the certificate), `disable` for
    ///   no TLS. The default is TLS unless the server is on this machine.
    /// - `sslrootcert`: a file with the certificate authorities to trust, instead of those of the
    ///   operating system
    ///
    /// All other settings go to the client library. Returns `None` if the address is invalid.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, settings) = text.split_once('?').unwrap_or((text, ""));
        let (mut own, mut others) = (Vec::new(), Vec::new());
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            match setting.split_once('=')? {
                (name @ ("schema" | "node_ttl" | "connections" | "sslmode" | "sslrootcert"), value) => {
                    own.push((name, value));
                }
                _ => others.push(setting),
            }
        }
        let is_address = address.starts_with("postgres://") || address.starts_with("postgresql://");
        let config: Config = format!("{address}?{}", others.join("&")).parse().ok()?;
        if !is_address || config.get_hosts().is_empty() {
            return None;
        }
        let mut options = Self::new(config);
        for (name, value) in own {
            match name {
                "schema" => value.clone_into(&mut options.schema),
                "node_ttl" => {
                    options.node_ttl = Duration::from_millis(value.parse().ok().filter(|ttl| *ttl >= 100)?);
                    options.heartbeat = options.node_ttl / 4;
                }
                "connections" => options.connections = value.parse().ok().filter(|count| *count > 0)?,
                "sslmode" => drop(options.address.0.ssl_mode(parse_ssl_mode(value)?)),
                _ => options.ca = Some(value.into()),
            }
        }
        is_valid_schema_name(&options.schema).then_some(options)
    }

    /// Returns the options for the connection that sends only heartbeats. A heartbeat without a
    /// reply is given up, and its connection closed, while there is still time for another one.
    pub(super) fn for_heartbeats(&self) -> Self {
        let within = |part: u32| (self.node_ttl / part).max(MIN_HEARTBEAT_TIMEOUT);
        Self {
            connections: 1,
            connect_timeout: self.connect_timeout.min(within(2)),
            response_timeout: self.response_timeout.min(within(4)),
            retry_window: self.retry_window.min(within(4)),
            ..self.clone()
        }
    }

    fn new(mut config: Config) -> Self {
        let is_local = config.get_hosts().iter().all(is_on_this_machine);
        config.ssl_mode(if is_local { SslMode::Disable } else { SslMode::Require });
        if config.get_application_name().is_none() {
            config.application_name("steadfast");
        }
        Self {
            address: Address(config),
            ca: None,
            schema: "steadfast".to_owned(),
            connections: 8,
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(2),
            retry_window: Duration::from_secs(4),
            heartbeat: Duration::from_millis(750),
            node_ttl: Duration::from_secs(3),
            poll_interval: Duration::from_secs(1),
            receives_hints: true,
        }
    }
}

/// Parses `sslmode`. No mode accepts a server without a verified certificate, and none falls back
/// to a connection without TLS.
fn parse_ssl_mode(name: &str) -> Option<SslMode> {
    match name {
        "disable" => Some(SslMode::Disable),
        "require" | "verify-full" => Some(SslMode::Require),
        _ => None,
    }
}

fn is_on_this_machine(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    }
}

/// Returns true if a name is allowed: it needs no escaping between quotes, and is not reserved by
/// PostgreSQL.
pub(super) fn is_valid_schema_name(name: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    (1..=MAX_SCHEMA_NAME_LENGTH).contains(&name.len())
        && name.chars().all(is_plain)
        && !name.starts_with("pg_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed() {
        let parsed = |text: &str| PostgresOptions::parse(text).unwrap_or_else(|| panic!("{text}"));
        let plain = parsed("postgres://h");
        assert_eq!((plain.schema.as_str(), plain.connections, plain.ca), ("steadfast", 8, None));
        let all = "postgresql://u:p@h:1/d?schema=x&node_ttl=1000&connections=2&sslrootcert=/ca.pem&connect_timeout=7";
        let all = parsed(all);
        assert_eq!((all.address.0.get_user(), all.address.0.get_dbname()), (Some("u"), Some("d")));
        assert_eq!((all.address.0.get_password(), all.address.0.get_ports()), (Some(&b"p"[..]), &[1][..]));
        assert_eq!((all.schema.as_str(), all.connections, all.ca), ("x", 2, Some("/ca.pem".into())));
        assert_eq!((all.node_ttl.as_millis(), all.heartbeat.as_millis()), (1000, 250));
        for bad in [
            "postgres:",
            "postgres://",
            "http://h",
            "host=h",
            "postgres://h?what=1",
            "postgres://h?node_ttl=1",
            "postgres://h?connections=0",
            "postgres://h?schema=",
            "postgres://h?schema=a\"b",
            "postgres://h?schema=pg_x",
            "postgres://h?schema=abcdefghijabcdefghijabcdefghijabcdefghijx",
            "postgres://h?sslmode=prefer",
            "postgres://h?sslmode=verify-ca",
        ] {
            assert!(PostgresOptions::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn tls_is_used_unless_the_server_is_local_or_it_is_disabled() {
        let mode = |text: &str| PostgresOptions::parse(text).expect("an address").address.0.get_ssl_mode();
        for local in
            ["postgres://localhost", "postgres://127.0.0.1", "postgres://[::1]", "postgres://%2Frun%2Fpg"]
        {
            assert_eq!(mode(local), SslMode::Disable, "{local}");
        }
        assert_eq!(mode("postgres://localhost?sslmode=require"), SslMode::Require);
        assert_eq!(mode("postgres://h"), SslMode::Require);
        assert_eq!(mode("postgres://localhost,h"), SslMode::Require);
        assert_eq!(mode("postgres://h?sslmode=verify-full"), SslMode::Require);
        assert_eq!(mode("postgres://h?sslmode=disable"), SslMode::Disable);
    }

    #[test]
    fn passwords_are_not_shown() {
        let options = PostgresOptions::parse("postgres://u:s3cret@h").expect("an address");
        assert!(!format!("{options:?}").contains("s3cret"));
    }
}
