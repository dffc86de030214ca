//! How PostgreSQL is used, and its address as people write it.

use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// The longest name of a schema. Channels are named after it and a node, and names end at 63 bytes.
const LONGEST_SCHEMA: usize = 40;

/// A beat is waited for this long, however short `node_ttl` is: whoever gives up too soon is never heard.
const SHORTEST_WAIT: Duration = Duration::from_millis(250);

/// How PostgreSQL is used. The password in it is not shown.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    pub address: Address,
    /// The authorities to believe, in PEM, instead of those of the operating system.
    pub ca: Option<PathBuf>,
    /// Where the tables are, for those who share a database.
    pub schema: String,
    /// Connections for commands, at most. One more listens for news, and one shows that this process is alive.
    pub connections: usize,
    pub connect_timeout: Duration,
    /// How long one request may take.
    pub response_timeout: Duration,
    /// How long a command is tried again while the server does not answer. After that its caller is told.
    pub patience: Duration,
    /// How often this process shows that it is alive, and how long others wait for that before they take it for dead.
    pub heartbeat: Duration,
    pub node_ttl: Duration,
    /// How often to look for changes of other processes of which the news was lost.
    pub poll_interval: Duration,
    /// Whether to signal what other processes change. Tests that count signals do without.
    #[doc(hidden)]
    pub hears_others: bool,
}

/// Where the server is, and who asks.
#[derive(Clone, Debug)]
pub struct Address(pub(super) Config);

impl PostgresOptions {
    /// Reads an address as people write it: `postgres://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]`. Settings may follow, as in
    /// `?schema=NAME&node_ttl=3000`:
    ///
    /// - `schema`: where the tables are (`steadfast`)
    /// - `node_ttl`: after how many milliseconds of silence a process is taken for dead (3000)
    /// - `connections`: how many there may be for commands (8)
    /// - `sslmode`: `verify-full` (or `require`, which is the same here) for TLS with a certificate that is verified, `disable`
    ///   for none. Without it, TLS unless the server is on this machine.
    /// - `sslrootcert`: a file with the authorities to believe, instead of those of the operating system
    ///
    /// and whatever else the client library knows. `None` if it is no such address.
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
                "sslmode" => drop(options.address.0.ssl_mode(mode(value)?)),
                _ => options.ca = Some(value.into()),
            }
        }
        is_schema(&options.schema).then_some(options)
    }

    /// For the connection on which this process shows that it is alive, and nothing else waits: a beat that is not answered is
    /// given up, and its connection with it, while there is time for another.
    pub(super) fn for_beats(&self) -> Self {
        let within = |part: u32| (self.node_ttl / part).max(SHORTEST_WAIT);
        Self {
            connections: 1,
            connect_timeout: self.connect_timeout.min(within(2)),
            response_timeout: self.response_timeout.min(within(4)),
            patience: self.patience.min(within(4)),
            ..self.clone()
        }
    }

    fn new(mut config: Config) -> Self {
        let is_near = config.get_hosts().iter().all(is_on_this_machine);
        config.ssl_mode(if is_near { SslMode::Disable } else { SslMode::Require });
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
            patience: Duration::from_secs(4),
            heartbeat: Duration::from_millis(750),
            node_ttl: Duration::from_secs(3),
            poll_interval: Duration::from_secs(1),
            hears_others: true,
        }
    }
}

/// There is no mode in which a server is believed without a certificate, and none that does without TLS if it cannot be had.
fn mode(name: &str) -> Option<SslMode> {
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

/// Names that need no thought between quotes, and none that belongs to the database itself.
pub(super) fn is_schema(name: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    (1..=LONGEST_SCHEMA).contains(&name.len()) && name.chars().all(is_plain) && !name.starts_with("pg_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
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
    fn tls_is_left_out_on_this_machine_or_when_told_to() {
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
