//! Why a call has no answer.

use std::fmt;

use steadfast_wire::Message;
use steadfast_wire::envelope::Answer;
use steadfast_wire::mirrored::BadAnnotation;
use steadfast_wire::rpc::ErrorObject;

/// Why there is no answer. An error that the server answered with is none of these: it is an
/// [`Answer`](crate::Answer).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The owner: the parameters are not the JSON text of an object.
    #[error("the parameters are not a JSON object")]
    BadParams,
    /// The owner: this is no address that a request can be sent to.
    #[error("{0} is not the address of a server")]
    BadAddress(String),
    /// The owner: what it gave is no header, id or JSON text.
    #[error("the configuration cannot be used: {0}")]
    BadConfig(&'static str),
    /// The owner: so many calls at a time were allowed.
    #[error("{limit} calls are in flight already")]
    TooManyCalls { limit: usize },
    /// The owner: it cancelled the call, or dropped its handle.
    #[error("the call was cancelled")]
    Cancelled,
    /// The owner: it closed the client.
    #[error("the client is closed")]
    Closed,
    /// The owner: an argument that the tool wants in a header is of no type that fits there.
    #[error("the argument for the header {header} is not text, a boolean or an integer within 53 bits")]
    Unmirrorable { header: String },
    /// The owner: it answered a request for input with an error, and there is no way to pass that on.
    #[error("the input {key:?} was refused: {message}")]
    InputRefused { key: String, message: String },

    /// The network: there is no connection. Nothing was sent.
    #[error("no connection: {0}")]
    Connect(String),
    /// The network: the connection broke before the head of the answer.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The network or the server: it took too long.
    #[error("waited too long for {0}")]
    Timeout(Wait),
    /// The network or the server: the response ended without an answer and cannot be resumed. The server may have executed the
    /// call.
    #[error("the outcome is unknown: {why}")]
    OutcomeUnknown { why: String },

    /// The server: it has not proven who it is. Nothing was sent, and trying again does not help.
    #[error("the server is not trusted: {0}")]
    Untrusted(String),
    /// The server, or a proxy in front of it: it answered with an HTTP error that is no answer to the call. Of the body only a
    /// JSON-RPC error is kept: other text, such as the HTML page of a proxy, must not get into messages or logs.
    #[error("the server refused with status {status}{}", said(.error.as_deref()))]
    Refused {
        status: u16,
        /// The JSON-RPC error in the body, if the body is one.
        error: Option<Box<ErrorObject>>,
        /// What it wants to be shown, if it said so: its `WWW-Authenticate`.
        challenge: Option<String>,
    },
    /// The server: it forgot the session, and the next one as well, unless the owner wanted none here.
    #[error("the server has forgotten the session")]
    SessionLost,
    /// The server: its answer is none, or larger than the limits allow.
    #[error("the answer cannot be read: {0}")]
    BadAnswer(String),
    /// The server: none of its revisions is one of ours.
    #[error("the server speaks {} and no revision of ours", list(.offered))]
    NoCommonRevision { offered: Vec<String> },
    /// The server: it speaks 2024-11-05 alone, whose transport (two endpoints) is not spoken here.
    #[error("the server speaks 2024-11-05 over HTTP+SSE, which this client does not")]
    OldTransport,
    /// The server: one of its tools asks for headers that cannot be.
    #[error("the tool {tool:?} cannot be called: {reason}")]
    UnusableTool { tool: String, reason: BadAnnotation },
    /// The server: a kind of result that was not negotiated.
    #[error("the result is of the unknown type {0:?}")]
    UnknownResultType(String),
    /// The server: it asked for input again and again.
    #[error("the call asked for input more than {limit} times")]
    TooManyRounds { limit: usize },
}

/// What took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The head of an answer.
    Head,
    /// The whole call.
    Call,
}

/// Who is to blame for an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    Owner,
    Network,
    Server,
}

/// Whether a call that ended in an error may have done something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It was not processed: it can be tried again.
    None,
    /// Nobody here can tell.
    Unknown,
}

impl Error {
    /// A response whose HTTP status says no.
    pub(crate) fn refused(status: impl Into<u16>, body: &[u8], challenge: Option<String>) -> Self {
        Self::Refused { status: status.into(), error: error_in(body).map(Box::new), challenge }
    }

    pub fn blame(&self) -> Blame {
        match self {
            Self::BadParams
            | Self::BadAddress(_)
            | Self::BadConfig(_)
            | Self::TooManyCalls { .. }
            | Self::Cancelled
            | Self::Closed
            | Self::Unmirrorable { .. }
            | Self::InputRefused { .. } => Blame::Owner,
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
            // A server that refuses has not begun. With a status of 500 or more the server may have failed half way, and a proxy
            // that sends 502, 503 or 504 may have passed the request on before.
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
            Self::Head => "the head of an answer",
            Self::Call => "the end of a call",
        })
    }
}

/// The error in a body, if the body is a JSON-RPC error response. Other JSON with an `error` in it is the word of some proxy.
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
