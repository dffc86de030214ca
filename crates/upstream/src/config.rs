//! Configuration of an upstream: the server, the limits, the timeouts and the credentials.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Uri};
use steadfast_client::transport::Tls;
use steadfast_client::{Backoff, Limits, Timeouts};

use crate::replicas::dns::Resolver;

/// The longest time that a server may take for a call. The deadline of the engine usually comes
/// first.
const MAX_CALL_DURATION: Duration = Duration::from_secs(24 * 60 * 60);

/// Configuration of an upstream.
#[derive(Clone, Debug)]
pub struct Config {
    pub server: Server,
    /// Resolves the host names of the server's addresses.
    pub resolver: Resolver,
    pub calls: Calls,
    pub credential: Credential,
    /// Which certificates to trust, and which certificate to present, at `https` addresses.
    pub tls: Tls,
    /// Whether to hold the standalone stream, on which a server sends messages that belong to no
    /// call.
    pub standalone: bool,
    /// How long after taking over a lease this node opens the standalone stream again. If the
    /// previous holder was only stopped, it keeps the old stream until it runs again. Some servers
    /// send nothing on a second stream, not even after the first one has ended.
    pub standalone_reopen_delay: Duration,
    /// How long a call waits for a server that cannot be reached, or for another replica, before it
    /// fails.
    pub unavailable_timeout: Duration,
    pub health_check: HealthCheck,
    /// Includes the number of tools and pages of `tools/list` that are read for annotations.
    pub limits: Limits,
    pub timeouts: Timeouts,
    pub backoff: Backoff,
}

impl Config {
    /// Returns the default configuration for a server at these addresses.
    pub fn http(replicas: Vec<Uri>) -> Self {
        Self::of(Server::Http { replicas, headers: HeaderMap::new() })
    }

    /// Returns the default configuration for a stdio program. Its timeouts are longer, because a
    /// program may have to be downloaded before it starts.
    pub fn stdio(program: Program) -> Self {
        let mut config = Self::of(Server::Stdio(Stdio::new(program)));
        config.timeouts.control = Duration::from_secs(120);
        config
    }

    fn of(server: Server) -> Self {
        // A dead machine does not refuse connections, so only this timeout reveals it. A call that
        // can go to another replica must not wait long.
        let connect = Duration::from_secs(3);
        let timeouts =
            Timeouts { connect, head: MAX_CALL_DURATION, call: MAX_CALL_DURATION, ..Timeouts::default() };
        Self {
            server,
            resolver: Resolver::System,
            calls: Calls::default(),
            credential: Credential::None,
            tls: Tls::public(),
            standalone: true,
            standalone_reopen_delay: Duration::from_secs(5),
            unavailable_timeout: Duration::from_secs(10),
            health_check: HealthCheck::default(),
            limits: Limits::default(),
            timeouts,
            // A call waits while the client reconnects to the call's stream.
            backoff: Backoff {
                longest: Duration::from_secs(2),
                attempts: 5,
                standalone_retry: Duration::from_secs(15),
                ..Backoff::default()
            },
        }
    }
}

/// When a replica counts as down that accepts connections and sends nothing, such as a stopped
/// process. Applies only while another replica is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// If a replica owes a response and has sent no bytes for this long, the gateway probes it. If
    /// the replica does not respond to the probe, it gets no new sessions and calls.
    pub silence: Duration,
    /// If the replica has then failed all probes for this long, the calls that wait for it fail
    /// over. A server that does one thing at a time responds to no probe while it is busy, possibly
    /// with such a call.
    pub failover_after: Duration,
}

impl Default for HealthCheck {
    fn default() -> Self {
        Self { silence: Duration::from_secs(5), failover_after: Duration::from_secs(30) }
    }
}

impl Config {
    /// Returns true if the server is this program with these settings.
    pub(crate) fn runs_program(&self, stdio: &Stdio) -> bool {
        matches!(&self.server, Server::Stdio(own) if own == stdio)
    }
}

/// How the server is reached.
#[derive(Clone)]
pub enum Server {
    /// Over HTTP. Each address is a replica. An address that resolves to several IP addresses is as
    /// many replicas.
    Http {
        replicas: Vec<Uri>,
        /// Sent with every request.
        headers: HeaderMap,
    },
    /// A program that communicates over its standard input and output.
    Stdio(Stdio),
}

/// Omits the values of headers, which may be secrets.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { replicas, headers } => {
                let names: Vec<_> = headers.keys().collect();
                f.debug_struct("Http").field("replicas", replicas).field("headers", &names).finish()
            }
            Self::Stdio(stdio) => f.debug_tuple("Stdio").field(stdio).finish(),
        }
    }
}

/// How a stdio program is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stdio {
    pub program: Program,
    pub sharing: Sharing,
    /// The longest line that the program may write.
    pub line_bytes: usize,
    /// How long the program may take to answer `initialize` before it is killed. Longer than a
    /// client waits for its session ([`Timeouts::control`]): a program that has to be downloaded
    /// first is then ready for the next client.
    pub initialize_timeout: Duration,
    /// How long the program may take to exit after its input was closed, and again after SIGTERM.
    pub exit_timeout: Duration,
    /// How many processes may run at a time. If a session needs another one, the idle process that
    /// was not used for the longest time ends. The session is refused if all are in use.
    pub processes: usize,
    /// How long a process runs without a request while sessions use it. `None`: as long as the
    /// sessions live. Set this only for a program that keeps no state between requests: a process
    /// that has ended is started again for the next request.
    pub idle_timeout: Option<Duration>,
    /// How long a process keeps running without a session and without a request in flight.
    pub idle: Duration,
}

impl Stdio {
    pub fn new(program: Program) -> Self {
        Self {
            program,
            sharing: Sharing::PerSession,
            line_bytes: 32 << 20,
            initialize_timeout: Duration::from_secs(180),
            exit_timeout: Duration::from_secs(2),
            processes: 256,
            idle_timeout: None,
            idle: Duration::from_secs(5 * 60),
        }
    }
}

/// The program to start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    pub command: String,
    pub arguments: Vec<String>,
    /// Environment variables that are set for the program, besides those that it inherits.
    pub environment: BTreeMap<String, String>,
    /// Names of environment variables of the gateway that the program inherits. It always inherits
    /// `PATH`, `HOME` and a few others that hold no secrets.
    pub inherit: Vec<String>,
    /// The working directory. By default that of the gateway.
    pub folder: Option<PathBuf>,
}

/// How many processes of a program are started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// One process per session, so that clients do not affect each other.
    #[default]
    PerSession,
    /// One process that all sessions share.
    Shared,
}

/// How many calls the server gets at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls {
    /// How many calls one upstream session gets at a time. Further calls are queued.
    pub concurrency: Concurrency,
    /// Number of upstream sessions to use per client session, for servers whose tools keep no
    /// session state. If there are several, each gets one call at a time, or up to `concurrency`
    /// calls if that is a number.
    pub upstream_sessions: NonZeroUsize,
    /// Maximum number of queued calls per client session. Further calls are refused.
    pub max_queued: usize,
}

/// How many calls one upstream session gets at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Concurrency {
    /// Any number if the server answers parallel calls correctly, otherwise one. The gateway finds
    /// that out.
    #[default]
    Auto,
    Unlimited,
    AtMost(NonZeroUsize),
}

/// `None` is no limit.
impl From<Option<NonZeroUsize>> for Concurrency {
    fn from(limit: Option<NonZeroUsize>) -> Self {
        limit.map_or(Self::Unlimited, Self::AtMost)
    }
}

impl Calls {
    /// Returns true if the configuration limits the number of concurrent calls of a client session.
    pub(crate) fn are_bounded(&self) -> bool {
        matches!(self.concurrency, Concurrency::AtMost(_)) || self.are_spread()
    }

    /// Returns true if the gateway decides whether an upstream session gets one call at a time.
    pub(crate) fn are_adapted(&self) -> bool {
        self.concurrency == Concurrency::Auto && !self.are_spread()
    }

    /// Returns true if the configuration lets an upstream session have one call at a time.
    pub(crate) fn are_serial(&self) -> bool {
        match self.concurrency {
            Concurrency::AtMost(most) => most == NonZeroUsize::MIN,
            Concurrency::Auto | Concurrency::Unlimited => self.are_spread(),
        }
    }

    fn are_spread(&self) -> bool {
        self.upstream_sessions > NonZeroUsize::MIN
    }
}

impl Default for Calls {
    fn default() -> Self {
        Self { concurrency: Concurrency::Auto, upstream_sessions: NonZeroUsize::MIN, max_queued: 1024 }
    }
}

/// Which credentials the gateway sends to the server.
#[derive(Clone)]
pub enum Credential {
    None,
    /// The client's `Authorization` header, unchanged.
    Forwarded,
    /// One `Authorization` header, for all clients.
    Own(HeaderValue),
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Forwarded => "Forwarded",
            Self::Own(_) => "Own(…)",
        })
    }
}
