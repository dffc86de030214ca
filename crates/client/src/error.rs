//! Errors of a client: why a call has no answer, which side is to blame ([`Blame`]), and whether
//! the call may have taken effect ([`Effect`]).

use std::fmt;

use steadfast_wire::Message;
use steadfast_wire::envelope::Answer;
use steadfast_wire::header_annotations::BadAnnotation;
use steadfast_wire::rpc::ErrorObject;

/// Why a call has no answer. The documentation of each variant begins with the side that is to
/// blame.
///
/// A JSON-RPC error from the server is not among these: it is an [`Answer`](crate::Answer).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Caller: the parameters are not the JSON text of an object.
    #[error("the parameters are not a JSON object")]
    BadParams,
    /// Caller: the address has no scheme or no host.
    #[error("{0} is not a valid server address")]
    BadAddress(String),
    /// Caller: a configured value is not a valid header, id or JSON text.
    #[error("invalid client configuration: {0}")]
    BadConfig(&'static str),
    /// Caller: [`Limits::calls`](crate::Limits::calls) calls are in flight.
    #[error("{limit} calls are already in flight")]
    TooManyCalls { limit: usize },
    /// Caller: the call was cancelled, or its handle was dropped.
    #[error("the call was cancelled")]
    Cancelled,
    /// Caller: the client was closed.
    #[error("the client is closed")]
    Closed,
    /// Caller: an argument that the tool expects in a header has a type that no header can carry.
    #[error("the argument for the header {header} is not text, a boolean or an integer within 53 bits")]
    Unmirrorable { header: String },
    /// Caller: the handler answered an input request with an error, which the protocol cannot
    /// transmit.
    #[error("the input {key:?} was refused: {message}")]
    InputRefused { key: String, message: String },

    /// Network: no connection. Nothing was sent.
    #[error("no connection: {0}")]
    Connect(String),
    /// Network: the connection broke before the head of the response.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// Network or server: a timeout elapsed.
    #[error("timed out waiting for {0}")]
    Timeout(Wait),
    /// Network or server: the response ended without an answer and cannot be resumed. The server
    /// may have executed the call.
    #[error("the outcome is unknown: {why}")]
    OutcomeUnknown { why: String },

    /// Server: its certificate is not trusted. Nothing was sent. A retry helps only after the
    /// operator has renewed the certificate.
    #[error("the server is not trusted: {0}")]
    Untrusted(String),
    /// Server, or a proxy in front of it: an HTTP error status whose body is not the answer to the
    /// call. Only a JSON-RPC error is kept of the body. Other text, such as the HTML page of a
    /// proxy, must not get into messages or logs.
    #[error("the server refused with status {status}{}", said(.error.as_deref()))]
    Refused {
        status: u16,
        /// The JSON-RPC error in the body, if there is one.
        error: Option<Box<ErrorObject>>,
        /// The `WWW-Authenticate` header, if there is one.
        challenge: Option<String>,
    },
    /// Server: it lost the session, and the replacement session as well; or the handler chose not
    /// to replace the session here.
    #[error("the server has lost the session")]
    SessionLost,
    /// Server: its answer is malformed or exceeds the limits.
    #[error("invalid answer from the server: {0}")]
    BadAnswer(String),
    /// Server: it supports no revision that this client supports.
    #[error("the server supports {} and no revision that this client supports", list(.offered))]
    NoCommonRevision { offered: Vec<String> },
    /// Server: it supports only 2024-11-05, whose transport with two endpoints this client does not
    /// implement.
    #[error("the server supports only 2024-11-05 over HTTP+SSE, which this client does not support")]
    OldTransport,
    /// Server: a tool asks for headers that are not valid.
    #[error("the tool {tool:?} cannot be called: {reason}")]
    UnusableTool { tool: String, reason: BadAnnotation },
    /// Server: its result has a type that was not negotiated.
    #[error("the result has the unknown type {0:?}")]
    UnknownResultType(String),
    /// Server: it requested input more often than [`Limits::rounds`](crate::Limits::rounds) allows.
    #[error("the call requested input more than {limit} times")]
    TooManyRounds { limit: usize },
}

/// What the client waited for when a timeout elapsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The head of a response.
    Head,
    /// The whole call.
    Call,
}

/// The side that is to blame for an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The application that uses the client.
    Caller,
    Network,
    /// The server, or a proxy in front of it.
    Server,
}

/// Whether a call that ended in an error may have changed something at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The server did not execute the call: a retry is safe.
    None,
    /// The server may have executed the call.
    Unknown,
}

impl Error {
    /// An HTTP error status as an error.
    pub(crate) fn refused(status: impl Into<u16>, body: &[u8], challenge: Option<String>) -> Self {
        Self::Refused { status: status.into(), error: error_in(body).map(Box::new), challenge }
    }

    /// Returns the side that is to blame. Timeouts and unknown outcomes count as network errors.
    pub fn blame(&self) -> Blame {
        match self {
            Self::BadParams
            | Self::BadAddress(_)
            | Self::BadConfig(_)
            | Self::TooManyCalls { .. }
            | Self::Cancelled
            | Self::Closed
            | Self::Unmirrorable { .. }
            | Self::InputRefused { .. } => Blame::Caller,
            Self::Connect(_) | Self::Broken(_) | Self::Timeout(_) | Self::OutcomeUnknown { .. } => {
                Blame::Network
            }
            Self::Untrusted(_)
            | Self::Refused { .. }
            | Self::SessionLost
            | Self::BadAnswer(_)
            | Self::NoCommonRevision { .. }
            | Self::OldTransport
            | Self::UnusableTool { .. }
            | Self::UnknownResultType(_)
            | Self::TooManyRounds { .. } => Blame::Server,
        }
    }

    /// Returns [`Effect::None`] if the server has certainly not executed the call, so that a retry
    /// is safe.
    pub fn effect(&self) -> Effect {
        match self {
            Self::BadParams
            | Self::BadAddress(_)
            | Self::BadConfig(_)
            | Self::TooManyCalls { .. }
            | Self::Unmirrorable { .. }
            | Self::Connect(_)
            | Self::Untrusted(_)
            | Self::SessionLost
            | Self::NoCommonRevision { .. }
            | Self::OldTransport
            | Self::UnusableTool { .. } => Effect::None,
            // A server that answers with a status below 500 has not executed the call. With 500 or
            // more the server may have failed half way, and a proxy that sends 502, 503 or 504 may
            // have forwarded the request before.
            Self::Refused { status, .. } if *status < 500 => Effect::None,
            Self::Refused { .. }
            | Self::Cancelled
            | Self::Closed
            | Self::InputRefused { .. }
            | Self::Broken(_)
            | Self::Timeout(_)
            | Self::OutcomeUnknown { .. }
            | Self::BadAnswer(_)
            | Self::UnknownResultType(_)
            | Self::TooManyRounds { .. } => Effect::Unknown,
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Head => "the head of a response",
            Self::Call => "the end of a call",
        })
    }
}

/// The error in a body, if the body is a JSON-RPC error response. Other JSON with an `error` member
/// comes from a proxy and is ignored.
fn error_in(body: &[u8]) -> Option<ErrorObject> {
    match Message::parse(std::str::from_utf8(body).ok()?).ok()?.answer? {
        Answer::Error(text) => ErrorObject::parse(text.as_bytes()),
        Answer::Result(_) => None,
    }
}

fn said(error: Option<&ErrorObject>) -> String {
    error.map(|error| format!(": {}", error.short_message())).unwrap_or_default()
}

fn list(offered: &[String]) -> String {
    if offered.is_empty() { "nothing".to_owned() } else { offered.join(", ") }
}
