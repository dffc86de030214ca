//! What a client is told before it starts.

use std::fmt;
use std::time::Duration;

use http::{HeaderMap, Uri};
use steadfast_wire::Revision;

/// Where the server is, who we are, and every bound.
#[derive(Clone)]
pub struct Config {
    pub url: Uri,
    pub era: Era,
    /// What the owner can do, as the JSON text of an object. Servers ask for nothing else.
    pub capabilities: String,
    /// Who we are, as the JSON text of an object with `name` and `version`.
    pub info: String,
    /// Sent with every request, such as `Authorization`.
    pub headers: HeaderMap,
    /// Whether to hold the standalone stream of a session open.
    pub standalone: Standalone,
    pub order: Order,
    pub limits: Limits,
    pub timeouts: Timeouts,
    pub backoff: Backoff,
    /// The first id of ours, and the first progress token. Whoever resumes a session begins where the server has seen none.
    pub first_id: i64,
}

impl Config {
    /// Every default, for an owner that can do nothing but call.
    pub fn new(url: Uri) -> Self {
        let info = concat!(r#"{"name":"steadfast","version":""#, env!("CARGO_PKG_VERSION"), r#""}"#);
        Self {
            url,
            era: Era::Probe,
            capabilities: "{}".to_owned(),
            info: info.to_owned(),
            headers: HeaderMap::new(),
            standalone: Standalone::Closed,
            order: Order::Concurrent,
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            backoff: Backoff::default(),
            first_id: 1,
        }
    }
}

/// Leaves out the values of headers, which may be secrets.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.keys().collect();
        let mut text = f.debug_struct("Config");
        text.field("url", &self.url).field("era", &self.era).field("headers", &names);
        text.field("standalone", &self.standalone).field("order", &self.order);
        text.field("limits", &self.limits).field("timeouts", &self.timeouts).field("backoff", &self.backoff);
        text.finish_non_exhaustive()
    }
}

/// Which revision to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// Ask the server, once, when connecting: `server/discover` first, `initialize` if it does not know that.
    Probe,
    /// Open a session and offer this revision; the server may answer with another that has sessions.
    Session(Revision),
    /// 2026-07-28.
    Stateless,
}

/// What becomes of the stream that a server may use for messages of no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standalone {
    Closed,
    Held,
}

/// How asks are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As many at once as [`Limits::asks`] allows.
    Concurrent,
    /// One at a time, in the order of their arrival; an answer is on its way before the next ask is begun.
    Strict,
}

/// How much a server may make us hold, and an owner may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Calls at a time. One more is refused: [`Error::TooManyCalls`](crate::Error::TooManyCalls).
    pub calls: usize,
    /// Asks that are handled at a time. More wait.
    pub asks: usize,
    /// Asks that wait. When so many do, no stream that carries another is read on.
    pub waiting_asks: usize,
    /// Notifications of a call that its owner has not taken. When so many wait, the call's stream is not read on.
    pub notifications: usize,
    /// The longest JSON body of an answer.
    pub body_bytes: usize,
    /// The longest line of an event stream.
    pub line_bytes: usize,
    /// The longest event of an event stream.
    pub event_bytes: usize,
    /// The longest head of an answer; hyper wants at least 8 KiB.
    pub head_bytes: usize,
    /// Headers of an answer.
    pub headers: usize,
    /// Messages in one batch of 2025-03-26.
    pub batch: usize,
    /// Tools whose annotations are remembered. Only those that have some count; the oldest is forgotten first.
    pub tools: usize,
    /// Pages of `tools/list` that are read to find the annotations of one tool.
    pub pages: usize,
    /// How often one call may come back and ask for more input.
    pub rounds: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            calls: 1024,
            asks: 64,
            waiting_asks: 64,
            notifications: 64,
            // As large as the largest answers that are in use, with room: images and files in base64.
            body_bytes: 32 << 20,
            line_bytes: 32 << 20,
            event_bytes: 32 << 20,
            head_bytes: 64 << 10,
            headers: 100,
            batch: 100,
            tools: 1024,
            pages: 32,
            rounds: 8,
        }
    }
}

/// How long to wait for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection.
    pub connect: Duration,
    /// For the head of an answer to a call. A server that answers in JSON sends it when the call is done.
    pub head: Duration,
    /// For a whole call, all resumptions, asks and rounds included. `subscriptions/listen` has no such bound.
    pub call: Duration,
    /// For everything that is no call: `initialize`, notifications, answers, DELETE, the head of a GET.
    pub control: Duration,
    /// For a server that mixes up its responses: how long a call whose response held no answer waits for the response to
    /// another call to hold it, and how long a call that was answered in this way still reads its own response.
    pub misrouted: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            head: Duration::from_secs(300),
            call: Duration::from_secs(600),
            control: Duration::from_secs(30),
            misrouted: Duration::from_secs(1),
        }
    }
}

/// When to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The wait before the first attempt, if the server has not said how long; each later one is twice as long.
    pub first: Duration,
    /// The longest wait of our own choice.
    pub longest: Duration,
    /// The longest wait that a server may choose.
    pub longest_retry: Duration,
    /// Failures in a row after which to give up.
    pub attempts: u32,
    /// The wait between later attempts to open the standalone stream of a server that is away: nobody calls a server only to find
    /// out whether it can be heard again.
    pub seldom: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(250),
            longest: Duration::from_secs(30),
            longest_retry: Duration::from_secs(600),
            attempts: 8,
            seldom: Duration::from_secs(30),
        }
    }
}

impl Backoff {
    /// The wait after so many failures in a row.
    pub(crate) fn wait(&self, failures: u32) -> Duration {
        let doubled = 2u32.saturating_pow(failures.saturating_sub(1));
        self.first.saturating_mul(doubled).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let (first, longest) = (Duration::from_secs(1), Duration::from_secs(5));
        let backoff = Backoff { first, longest, ..Backoff::default() };
        for (failures, seconds) in [(0, 1), (1, 1), (2, 2), (3, 4), (4, 5), (40, 5), (u32::MAX, 5)] {
            assert_eq!(backoff.wait(failures).as_secs(), seconds, "{failures}");
        }
    }

    #[test]
    fn headers_are_not_printed() {
        let mut config = Config::new(Uri::from_static("http://localhost/mcp"));
        config.headers.insert("authorization", http::HeaderValue::from_static("Bearer secret"));
        let text = format!("{config:?}");
        assert!(text.contains("authorization") && !text.contains("secret"), "{text}");
    }
}
