//! Why a request has no result: every value of `data.reason`, who is to blame, and whether the
//! client may send the request again.
//!
//! Errors that steadfast itself writes carry `{"reason": …, "retryable": …}` in `error.data`. An
//! upstream server's own errors pass through unchanged. `docs/errors.md` lists all reasons; a test
//! keeps the page equal to this file.

use crate::rpc::{ErrorObject, INTERNAL_ERROR};

/// Who has to change something so that the request can succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blame {
    /// The client sent something that cannot be served.
    Client,
    /// The MCP server (the upstream server, the program or the handler) failed.
    Server,
    /// The node refused or ended the request: a limit, a shutdown, a lease.
    Node,
    /// The session store did not do what the request needed.
    Store,
}

/// Whether the client may send the request again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retry {
    /// The request was not executed. The client may send it again.
    Safe,
    /// The request would fail again, or it may have been executed.
    Unsafe,
    /// The error says it: `data.retryable` is true if the request was not executed or is
    /// idempotent.
    Depends,
}

macro_rules! reasons {
    ($($(#[doc = $meaning:literal])+ $name:ident = $text:literal, $status:tt, $blame:ident, $retry:ident, $operator:literal;)+) => {
        /// Why a request has no result.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason { $($(#[doc = $meaning])+ $name),+ }

        impl Reason {
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The text of `data.reason` and of the label `reason` in the metrics.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text),+ }
            }

            /// The HTTP status of a request that is refused for this reason. `None`: the request
            /// was accepted, and the error is its answer.
            pub const fn status(self) -> Option<u16> {
                match self { $(Self::$name => reasons!(@status $status)),+ }
            }

            pub const fn blame(self) -> Blame {
                match self { $(Self::$name => Blame::$blame),+ }
            }

            pub const fn retry(self) -> Retry {
                match self { $(Self::$name => Retry::$retry),+ }
            }

            /// What the reason means to the client.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => concat!($($meaning),+)),+ }
            }

            /// What an operator can do about it.
            pub const fn operator_action(self) -> &'static str {
                match self { $(Self::$name => $operator),+ }
            }
        }
    };
    (@status none) => { None };
    (@status $status:literal) => { Some($status) };
}

reasons! {
    /// The body or a header is malformed. The message says which part.
    BadRequest = "bad_request", 400, Client, Unsafe, "Nothing: the client has to be mended.";
    /// A request with this JSON-RPC id is in flight. Use another id, or wait for its answer.
    DuplicateId = "duplicate_id", 400, Client, Unsafe, "Set `duplicate_ids = \"isolate\"` if the clients cannot be mended.";
    /// A header and the body of a stateless request disagree.
    HeaderMismatch = "header_mismatch", 400, Client, Unsafe, "Look for a proxy that rewrites `Mcp-*` headers.";
    /// The request needs the `Mcp-Session-Id` header that `initialize` was answered with.
    SessionRequired = "session_required", 400, Client, Unsafe, "Look for a proxy that removes the header.";
    /// `Last-Event-ID` names no event of this session.
    UnknownEvent = "unknown_event", 400, Client, Unsafe, "Nothing.";
    /// The stream of this `Last-Event-ID` is no longer stored. Send the request again.
    StreamGone = "stream_gone", 400, Client, Unsafe, "Raise `session.retention` if clients come back later than that.";
    /// No open server request has this id. It was answered, withdrawn, or never sent in this
    /// session.
    UnknownServerRequest = "unknown_server_request", 400, Client, Unsafe, "Nothing.";
    /// The protocol revision is not supported. The message lists those that are.
    UnsupportedVersion = "unsupported_version", 400, Client, Unsafe, "Nothing.";
    /// The endpoint requires credentials. `WWW-Authenticate` says which.
    Unauthenticated = "unauthenticated", 401, Client, Unsafe, "Check issuer, audience and clocks if valid tokens are refused.";
    /// The credentials do not allow this request.
    Forbidden = "forbidden", 403, Client, Unsafe, "Grant the access at the identity provider or the server.";
    /// The token lacks a scope. `WWW-Authenticate` names it.
    InsufficientScope = "insufficient_scope", 403, Client, Unsafe, "Grant the scope at the identity provider.";
    /// The `Host` header names a host that this server does not serve.
    HostNotAllowed = "host_not_allowed", 403, Client, Unsafe, "Add the host to `hosts` or `--allow-host`.";
    /// The `Origin` header names a web site that may not use this server.
    OriginNotAllowed = "origin_not_allowed", 403, Client, Unsafe, "Add the site to `origins` or `--allow-origin`.";
    /// The session does not exist, has ended, or belongs to another principal. Open a new one with
    /// `initialize`.
    NoSession = "no_session", 404, Client, Unsafe, "Raise `session.idle_timeout` or `session.grace` if sessions end too early.";
    /// No MCP endpoint has this path. Check the URL.
    NoEndpoint = "no_endpoint", 404, Client, Unsafe, "Compare the client's URL with `path` of the endpoints.";
    /// Stateless revisions do not have this method.
    MethodNotFound = "method_not_found", 404, Client, Unsafe, "Nothing.";
    /// The endpoint accepts POST, GET and DELETE.
    MethodNotAllowed = "method_not_allowed", 405, Client, Unsafe, "Nothing.";
    /// The `Accept` header does not list a media type that the endpoint can send.
    NotAcceptable = "not_acceptable", 406, Client, Unsafe, "Nothing.";
    /// Another request of this principal has the same idempotency key. Use a new key for a new
    /// request.
    KeyReused = "idempotency_key_reused", 409, Client, Unsafe, "Nothing: the client has to be mended.";
    /// The body did not arrive in time.
    BodyTooSlow = "body_too_slow", 408, Client, Safe, "Nothing in the gateway; the library has `Builder::body_timeout`.";
    /// The body, or the parameters of `initialize`, are larger than the limit.
    BodyTooLarge = "body_too_large", 413, Client, Unsafe, "Raise `max_request_bytes`; for `initialize` only the library has a setting, `Builder::max_initialize_bytes`.";
    /// The body is not declared as `application/json`.
    UnsupportedMediaType = "unsupported_media_type", 415, Client, Unsafe, "Nothing.";
    /// This client, session or principal has reached a limit. Retry later.
    OverLimit = "over_limit", 429, Client, Depends, "Raise the limit that the message names.";
    /// The headers are larger than the limit.
    HeadersTooLarge = "headers_too_large", 431, Client, Unsafe, "Nothing in the gateway; the library has `Builder::max_header_bytes`.";
    /// A limit for all clients of this node or store is reached. Retry later.
    AtCapacity = "at_capacity", 503, Node, Safe, "Raise the limit that the message names, or add nodes.";
    /// The node is shutting down and accepts no new requests. Retry; another node will answer.
    Draining = "draining", 503, Node, Safe, "Nothing during a deployment. Remove draining nodes from the load balancer.";
    /// The lease of the session moved to another node while the request was served. Retry.
    LeaseMoved = "lease_moved", 503, Node, Safe, "Nothing, unless it is frequent: then check heartbeats and clocks.";
    /// The keys that verify tokens cannot be fetched. Retry later.
    KeysUnavailable = "keys_unavailable", 503, Node, Safe, "Check that the node reaches the JWKS address.";
    /// The session store does not answer. Retry later.
    StoreUnavailable = "store_unavailable", 503, Store, Safe, "Check the database and the network to it.";
    /// The request may have been executed, and its outcome is not known.
    OutcomeUnknown = "outcome_unknown", 500, Server, Depends, "Look for the death of a node, a server or a proxy at that time. Mark idempotent tools with `idempotentHint` or `readOnlyHint`: they are retried.";
    /// The client cancelled the call.
    Cancelled = "cancelled", none, Client, Depends, "Nothing.";
    /// The call, or the client's answer to a server request, took longer than allowed.
    Deadline = "deadline", none, Server, Depends, "Raise `timeouts.call` for slow tools.";
    /// The node stopped before the call ended. The call may have been executed.
    ShuttingDown = "shutting_down", none, Node, Unsafe, "Raise `shutdown.drain` above the duration of the longest call.";
    /// The call was not started. It is safe to send it again.
    NotStarted = "not_started", none, Node, Safe, "Nothing, unless it is frequent: then check the store and the leases.";
    /// The session ended while the call was in flight.
    SessionClosed = "session_closed", none, Node, Unsafe, "Nothing.";
    /// The server's handler panicked.
    HandlerPanicked = "handler_panicked", none, Server, Unsafe, "Read the log for the panic and mend the handler.";
    /// The client read too slowly and messages were dropped. Subscribe or read again.
    Overflow = "overflow", none, Client, Safe, "Raise the byte limit of streams if clients are slow on purpose.";
    /// The upstream server cannot be reached. Nothing was sent to it.
    UpstreamUnavailable = "upstream_unavailable", none, Server, Safe, "Start the server, or check its address.";
    /// The upstream server's TLS certificate is not trusted. Nothing was sent to it.
    UpstreamUntrusted = "upstream_untrusted", none, Server, Unsafe, "Check the certificate and the CA file of the endpoint.";
    /// The upstream server refused the request with an HTTP status, without a JSON-RPC error.
    UpstreamRefused = "upstream_refused", none, Server, Depends, "Look at the status in `data.status` and at the server's log.";
    /// The upstream server refused the credentials.
    CredentialsRefused = "credentials_refused", none, Server, Unsafe, "Check the credential of the endpoint, or let the client sign in again.";
    /// The upstream server's response is not usable: not JSON-RPC, or larger than the limits.
    BadResponse = "bad_response", none, Server, Depends, "Mend the server, or raise the limit that the message names.";
    /// The upstream server and the client have no protocol revision in common.
    NoCommonVersion = "no_common_version", none, Server, Unsafe, "Update the server.";
    /// The server request was withdrawn, because its call or its session ended.
    ServerRequestWithdrawn = "server_request_withdrawn", none, Node, Unsafe, "Nothing.";
    /// The handler returned a task result that is not usable: not JSON, or larger than a task may
    /// hold.
    BadTaskResult = "bad_task_result", none, Server, Unsafe, "Mend the handler, or raise the limit `state_bytes` of the library.";
    /// The task was stopped before it ended. It may have been executed.
    TaskStopped = "task_stopped", none, Node, Unsafe, "Nothing.";
}

impl Reason {
    /// The reason with this text.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.as_str() == text)
    }

    /// An internal error with this reason. It is retryable if the reason says [`Retry::Safe`].
    pub fn error(self, message: impl Into<String>) -> ErrorObject {
        self.error_retryable(self.retry() == Retry::Safe, message)
    }

    /// An internal error with this reason, for reasons whose retryability [`Retry::Depends`].
    pub fn error_retryable(self, retryable: bool, message: impl Into<String>) -> ErrorObject {
        ErrorObject { code: INTERNAL_ERROR, message: message.into(), data: Some(self.data(retryable, "")) }
    }

    /// The JSON text of `error.data`. `more` holds further members, each with a comma in front.
    pub fn data(self, retryable: bool, more: &str) -> String {
        format!(r#"{{"reason":"{}","retryable":{retryable}{more}}}"#, self.as_str())
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors.md");

    fn table(refused: bool) -> String {
        let mut table = String::from(if refused {
            "| reason | status | to blame | retry | meaning | what an operator does |\n|---|---|---|---|---|---|\n"
        } else {
            "| reason | to blame | retry | meaning | what an operator does |\n|---|---|---|---|---|\n"
        });
        for reason in Reason::ALL.iter().filter(|reason| reason.status().is_some() == refused) {
            let status = reason.status().map(|status| format!(" {status} |")).unwrap_or_default();
            let blame = format!("{:?}", reason.blame()).to_lowercase();
            let retry = match reason.retry() {
                Retry::Safe => "yes",
                Retry::Unsafe => "no",
                Retry::Depends => "see `retryable`",
            };
            let (meaning, action) = (reason.meaning().trim(), reason.operator_action());
            let _ = writeln!(table, "| `{reason}` |{status} {blame} | {retry} | {meaning} | {action} |");
        }
        table
    }

    #[test]
    fn the_page_lists_every_reason() {
        let page = std::fs::read_to_string(PAGE).expect("docs/errors.md exists");
        let mut written = page.clone();
        for (name, refused) in [("refused", true), ("failed", false)] {
            let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
            let from = written.find(&begin).expect("the marker that begins a table") + begin.len();
            let to = written.find(&end).expect("the marker that ends a table");
            written.replace_range(from..to, &table(refused));
        }
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(PAGE, &written).expect("docs/errors.md can be written");
        }
        assert_eq!(page, written, "docs/errors.md is out of date: run this test with UPDATE_DOCS=1");
    }

    #[test]
    fn texts_are_unique_and_parse() {
        for reason in Reason::ALL {
            assert_eq!(Reason::parse(reason.as_str()), Some(*reason));
        }
        assert_eq!(Reason::parse("their_own"), None);
    }

    #[test]
    fn a_reason_makes_an_error_that_a_program_can_read() {
        let error = Reason::StoreUnavailable.error("away");
        assert_eq!((error.code, error.message.as_str()), (INTERNAL_ERROR, "away"));
        assert_eq!(error.data.as_deref(), Some(r#"{"reason":"store_unavailable","retryable":true}"#));
        let known = Reason::OutcomeUnknown.error_retryable(true, "idempotent");
        assert_eq!(known.data.as_deref(), Some(r#"{"reason":"outcome_unknown","retryable":true}"#));
    }
}
