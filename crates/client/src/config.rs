//! Configuration of a client: address, identity, limits, timeouts and backoff.

use std::fmt;
use std::time::Duration;

use http::{HeaderMap, Uri};
use steadfast_wire::{DoublingDelay, Revision};

/// Everything that a client needs to know before it connects.
#[derive(Clone)]
pub struct Config {
    pub url: Uri,
    pub era: Era,
    /// The client capabilities, as the JSON text of an object. Servers send only requests that
    /// these capabilities allow.
    pub capabilities: String,
    /// The client's `clientInfo`, as the JSON text of an object with `name` and `version`.
    pub info: String,
    /// Headers that are sent with every request, such as `Authorization`.
    pub headers: HeaderMap,
    /// Whether to keep the standalone stream of a session open from the start.
    pub standalone_stream: StandaloneStream,
    pub server_request_order: ServerRequestOrder,
    pub limits: Limits,
    pub timeouts: Timeouts,
    pub backoff: Backoff,
    /// The first request id, which is also the first progress token. A client that resumes a
    /// session must start at an id that the server has not seen.
    pub first_id: i64,
}

impl Config {
    /// Default values for everything but the address. The client announces no capabilities.
    pub fn new(url: Uri) -> Self {
        let info = concat!(r#"{"name":"steadfast","version":""#, env!("CARGO_PKG_VERSION"), r#""}"#);
        Self {
            url,
            era: Era::Probe,
            capabilities: "{}".to_owned(),
            info: info.to_owned(),
            headers: HeaderMap::new(),
            standalone_stream: StandaloneStream::Closed,
            server_request_order: ServerRequestOrder::Concurrent,
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            backoff: Backoff::default(),
            first_id: 1,
        }
    }
}

/// Omits the values of headers, which may be secrets.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.keys().collect();
        let mut text = f.debug_struct("Config");
        text.field("url", &self.url).field("era", &self.era).field("headers", &names);
        text.field("standalone", &self.standalone_stream).field("order", &self.server_request_order);
        text.field("limits", &self.limits).field("timeouts", &self.timeouts).field("backoff", &self.backoff);
        text.finish_non_exhaustive()
    }
}

/// Which protocol revision to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// Detect the revision when connecting: send `server/discover`, then `initialize` if the server
    /// does not know that method.
    Probe,
    /// Open a session and offer this revision. The server may answer with another revision that has
    /// sessions.
    Session(Revision),
    /// 2026-07-28.
    Stateless,
}

/// What to do with the stream that a server uses for messages that belong to no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandaloneStream {
    Closed,
    Open,
}

/// How server requests (sampling, elicitation, roots) are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerRequestOrder {
    /// Concurrently, up to [`Limits::server_requests`].
    Concurrent,
    /// One at a time, in order of arrival. The client sends an answer before it starts the next
    /// request.
    Strict,
}

/// Bounds on memory that a server can make the client use, and on calls in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Calls in flight. Another call fails with
    /// [`Error::TooManyCalls`](crate::Error::TooManyCalls).
    pub calls: usize,
    /// Server requests that are handled concurrently. Further requests are queued.
    pub server_requests: usize,
    /// Server requests in the queue. While the queue is full, the client stops reading streams that
    /// carry another server request.
    pub queued_server_requests: usize,
    /// Notifications of a call that the application has not read. While that many are unread, the
    /// client stops reading the call's stream.
    pub notifications: usize,
    /// The longest JSON body of a response.
    pub body_bytes: usize,
    /// The longest line of an event stream.
    pub line_bytes: usize,
    /// The longest event of an event stream.
    pub event_bytes: usize,
    /// The longest head of a response. Values below 8 KiB count as 8 KiB.
    pub head_bytes: usize,
    /// Headers of a response.
    pub headers: usize,
    /// Messages in one batch of 2025-03-26.
    pub batch: usize,
    /// Tools whose annotations are cached. Tools without annotations take no room. The oldest entry
    /// is evicted first.
    pub tools: usize,
    /// Pages of `tools/list` that are read to find the annotations of one tool.
    pub pages: usize,
    /// How many times one call may request more input.
    pub rounds: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            calls: 1024,
            server_requests: 64,
            queued_server_requests: 64,
            notifications: 64,
            // The largest answers in use (images and files in base64), with a margin.
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

/// How long the client waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection to be established.
    pub connect: Duration,
    /// For the head of the response to a call. A server that answers in JSON sends the head when
    /// the call is done.
    pub head: Duration,
    /// For a whole call, including resumptions, server requests and rounds of input.
    /// `subscriptions/listen` has no such bound.
    pub call: Duration,
    /// For everything that is not a call: `initialize`, notifications, answers, DELETE, the head of
    /// the response to a GET.
    pub control: Duration,
    /// For servers that mix up their responses. A call whose response held no answer waits this
    /// long for its answer on another response. A call that was answered on another response reads
    /// its own response for this long.
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

/// When to retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The wait before the first retry, unless the server chose one. Each later wait is twice as
    /// long.
    pub first: Duration,
    /// The upper bound of the doubled wait.
    pub longest: Duration,
    /// The upper bound of a wait that a server chooses (SSE `retry:`).
    pub longest_retry: Duration,
    /// Consecutive failures after which the client gives up.
    pub attempts: u32,
    /// The wait between attempts to reopen the standalone stream after the client gave up. The
    /// client keeps trying because the application has no other reason to contact a server whose
    /// stream is down.
    pub standalone_retry: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(250),
            longest: Duration::from_secs(30),
            longest_retry: Duration::from_secs(600),
            attempts: 8,
            standalone_retry: Duration::from_secs(30),
        }
    }
}

impl Backoff {
    /// The wait after this many consecutive failures.
    pub fn wait(&self, failures: u32) -> Duration {
        DoublingDelay { first: self.first, longest: self.longest }.after(failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_not_printed() {
        let mut config = Config::new(Uri::from_static("http://localhost/mcp"));
        config.headers.insert("authorization", http::HeaderValue::from_static("Bearer secret"));
        let text = format!("{config:?}");
        assert!(text.contains("authorization") && !text.contains("secret"), "{text}");
    }
}
