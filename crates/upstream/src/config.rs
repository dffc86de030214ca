//! What an upstream can be told.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Uri};
use steadfast_client::transport::Tls;
use steadfast_client::{Backoff, Limits, Timeouts};

use crate::names::Names;

/// How long a server may take. The engine's own deadline comes first, unless somebody has made that longer than this.
const LONGEST_CALL: Duration = Duration::from_secs(24 * 60 * 60);

/// Where the server is, how it wants to be treated, and every bound.
#[derive(Clone, Debug)]
pub struct Config {
    pub server: Server,
    /// Who knows where the hosts of its addresses are.
    pub names: Names,
    pub calls: Calls,
    pub credential: Credential,
    /// Whom to believe, and what to show, at `https` addresses.
    pub tls: Tls,
    /// Whether to hold the stream open on which a server sends what belongs to no call.
    pub standalone: bool,
    /// How long after it took over from another process this one opens that stream again. Whoever was only stopped has the old
    /// one until it wakes up, and some servers say nothing on a second one, not even when the first is gone.
    pub relisten: Duration,
    /// How long a server that cannot be reached is waited for, and looked for elsewhere, before its callers are told.
    pub patience: Duration,
    pub vigil: Vigil,
    /// Among them the tools and pages of `tools/list` that are read for annotations.
    pub limits: Limits,
    pub timeouts: Timeouts,
    pub backoff: Backoff,
}

impl Config {
    /// Every default, for the server at these addresses.
    pub fn http(replicas: Vec<Uri>) -> Self {
        Self::of(Server::Http { replicas, headers: HeaderMap::new() })
    }

    /// Every default, for a server that is a program. One that has to be downloaded first takes its time to start.
    pub fn stdio(program: Program) -> Self {
        let mut config = Self::of(Server::Stdio(Stdio::new(program)));
        config.timeouts.control = Duration::from_secs(120);
        config
    }

    fn of(server: Server) -> Self {
        // A dead machine is noticed by its silence: a call that has another to go to must not wait long.
        let connect = Duration::from_secs(3);
        let timeouts = Timeouts { connect, head: LONGEST_CALL, call: LONGEST_CALL, ..Timeouts::default() };
        Self {
            server,
            names: Names::System,
            calls: Calls::default(),
            credential: Credential::None,
            tls: Tls::public(),
            standalone: true,
            relisten: Duration::from_secs(5),
            patience: Duration::from_secs(10),
            vigil: Vigil::default(),
            limits: Limits::default(),
            timeouts,
            // A call waits for as long as its stream is looked for.
            backoff: Backoff {
                longest: Duration::from_secs(2),
                attempts: 5,
                seldom: Duration::from_secs(15),
                ..Backoff::default()
            },
        }
    }
}

/// How soon a replica is noticed that is there and answers nothing, such as a process that is stopped. Only if there is another one
/// that is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vigil {
    /// How long a replica that is to answer something may say nothing at all before it is tried. If it does not answer that either,
    /// nobody new goes there.
    pub silence: Duration,
    /// For how long after that it may leave trials unanswered, before calls that wait there are given up. A server that does one thing
    /// at a time answers nobody while it is busy, and what it is busy with may be one of them.
    pub endurance: Duration,
}

impl Default for Vigil {
    fn default() -> Self {
        Self { silence: Duration::from_secs(5), endurance: Duration::from_secs(30) }
    }
}

impl Config {
    /// Whether the server is this program, run in this way.
    pub(crate) fn runs(&self, stdio: &Stdio) -> bool {
        matches!(&self.server, Server::Stdio(own) if own == stdio)
    }
}

/// What the server is.
#[derive(Clone)]
pub enum Server {
    /// Reached over HTTP. Each address is a replica, and one that resolves to several is as many.
    Http {
        replicas: Vec<Uri>,
        /// Sent with every request.
        headers: HeaderMap,
    },
    /// A program that speaks on its standard input and output.
    Stdio(Stdio),
}

/// Leaves out the values of headers, which may be secrets.
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

/// How a program is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stdio {
    pub program: Program,
    pub sharing: Sharing,
    /// The longest line that it may write.
    pub line_bytes: usize,
    /// How long it may take to answer `initialize`, before it is ended. Longer than one who opens a session waits
    /// ([`Timeouts::control`]): what has to be downloaded first is there for the next.
    pub opening: Duration,
    /// How long it may take to end by itself after its input was closed, and again after it was told to.
    pub farewell: Duration,
    /// Programs at a time. One more is refused.
    pub processes: usize,
    /// How long a process runs on that has no session and no request in flight.
    pub idle: Duration,
}

impl Stdio {
    pub fn new(program: Program) -> Self {
        Self {
            program,
            sharing: Sharing::PerSession,
            line_bytes: 32 << 20,
            opening: Duration::from_secs(180),
            farewell: Duration::from_secs(2),
            processes: 256,
            idle: Duration::from_secs(5 * 60),
        }
    }
}

/// What is started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    pub command: String,
    pub arguments: Vec<String>,
    /// Variables that are set for it, besides those that it receives from this process.
    pub environment: BTreeMap<String, String>,
    /// Variables of this process that it receives by name. Without a name it receives `PATH`, `HOME` and a
    /// few others that hold no secrets.
    pub inherit: Vec<String>,
    /// Where it is started, if not where this process was.
    pub folder: Option<PathBuf>,
}

/// How many processes a program is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// One for each session: what one client does is nothing to another.
    #[default]
    PerSession,
    /// One for all.
    Shared,
}

/// How many calls the server takes at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls {
    /// Calls at a time in one session of the server's, for servers that lose track of more. More wait.
    pub concurrency: Option<NonZeroUsize>,
    /// Sessions of the server's that the calls of one client session may be spread over; only for servers whose tools keep
    /// nothing in a session. Each takes one call at a time, or as many as `concurrency` says.
    pub spread: NonZeroUsize,
    /// Calls of one client session that may wait. One more is refused.
    pub waiting: usize,
}

impl Calls {
    /// Whether the server takes only so many of a session at a time.
    pub(crate) fn are_bounded(&self) -> bool {
        self.concurrency.is_some() || self.spread > NonZeroUsize::MIN
    }

    /// Whether an upstream session gets one call at a time.
    pub(crate) fn are_serial(&self) -> bool {
        match self.concurrency {
            Some(most) => most == NonZeroUsize::MIN,
            None => self.spread > NonZeroUsize::MIN,
        }
    }
}

impl Default for Calls {
    fn default() -> Self {
        Self { concurrency: None, spread: NonZeroUsize::MIN, waiting: 1024 }
    }
}

/// What the server is shown to prove that we may use it.
#[derive(Clone)]
pub enum Credential {
    None,
    /// The client's own `Authorization`, as it came.
    Forwarded,
    /// This value of `Authorization`, whoever calls.
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
