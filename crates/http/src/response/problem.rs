//! HTTP responses to requests that the server refuses. Each has a status, a JSON-RPC code, and a
//! message that tells the client what was wrong and what to do.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use steadfast_engine::{Denial, Limit, Refusal, backend};
use steadfast_wire::envelope::EnvelopeError;
use steadfast_wire::rpc::{self, ErrorObject};
use steadfast_wire::{Reason, RequestId, Revisions, headers, stateless};

use crate::request::identify::Denied;
use crate::response::body::ResponseBody;

/// The response to a refused request. The request has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub status: StatusCode,
    pub error: ErrorObject,
    pub reason: Reason,
    /// The id of the refused request, if the server could read it.
    pub id: Option<RequestId>,
    pub header: Option<Box<(http::HeaderName, HeaderValue)>>,
}

/// The server puts this into the extensions of every response that refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    pub reason: Reason,
}

impl Problem {
    /// Creates a refusal with this JSON-RPC code and the HTTP status of the reason.
    pub fn new(reason: Reason, code: i32, message: impl Into<String>) -> Self {
        Self::with_error(reason, ErrorObject::new(code, message))
    }

    fn with_error(reason: Reason, error: ErrorObject) -> Self {
        let status = reason.status().and_then(|status| StatusCode::from_u16(status).ok());
        // The server refuses requests only for reasons that have a status.
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { status, error, reason, id: None, header: None }
    }

    pub(crate) fn invalid(reason: Reason, message: impl Into<String>) -> Self {
        Self::new(reason, rpc::INVALID_REQUEST, message)
    }

    /// Creates a refusal that the client has not caused. The client may send the request again.
    fn unavailable(reason: Reason, message: impl Into<String>) -> Self {
        Self::with_error(reason, reason.error(message)).retry_after(1)
    }

    /// Creates a refusal of a malformed request.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::invalid(Reason::BadRequest, message)
    }

    pub(crate) fn method_not_allowed() -> Self {
        let mut problem =
            Self::invalid(Reason::MethodNotAllowed, "This endpoint takes POST, GET and DELETE.");
        problem.header = Some(Box::new((ALLOW, HeaderValue::from_static("GET, POST, DELETE"))));
        problem
    }

    /// The client asked for a stream outside of a session.
    pub(crate) fn no_stream() -> Self {
        let message = "Streams belong to sessions: a GET needs the Mcp-Session-Id header that `initialize` was answered with.";
        let mut problem = Self::method_not_allowed();
        problem.error.message = message.to_owned();
        problem
    }

    pub(crate) fn unsupported_media_type() -> Self {
        Self::invalid(Reason::UnsupportedMediaType, "Send the message as Content-Type: application/json.")
    }

    pub(crate) fn not_acceptable(wanted: &str) -> Self {
        Self::invalid(Reason::NotAcceptable, format!("The Accept header must list {wanted}."))
    }

    pub(crate) fn body_too_large(limit: usize) -> Self {
        let message = format!("The body is larger than {limit} bytes (limit `max_request_bytes`).");
        Self::invalid(Reason::BodyTooLarge, message)
    }

    pub(crate) fn body_too_slow(limit: std::time::Duration) -> Self {
        let message = format!("The body was not complete after {limit:?} (limit `body_timeout`).");
        Self::invalid(Reason::BodyTooSlow, message)
    }

    pub(crate) fn initialize_too_large(limit: usize) -> Self {
        let message = format!("The parameters of `initialize` are larger than {limit} bytes.");
        Self::invalid(Reason::BodyTooLarge, message)
    }

    pub(crate) fn headers_too_large(limit: usize) -> Self {
        let message = format!("The headers are larger than {limit} bytes.");
        Self::invalid(Reason::HeadersTooLarge, message)
    }

    pub(crate) fn session_required() -> Self {
        let message = "This request needs the Mcp-Session-Id header that `initialize` was answered with.";
        Self::invalid(Reason::SessionRequired, message)
    }

    /// The server did not accept these responses of a batch. `None` is a response without an id.
    pub(crate) fn answers_to_nothing(ids: &[Option<RequestId>]) -> Self {
        let short = |id: &RequestId| id.to_string().chars().take(64).collect::<String>();
        let named =
            |id: &Option<RequestId>| id.as_ref().map_or_else(|| "one without an id".to_owned(), short);
        let named: Vec<String> = ids.iter().map(named).collect();
        Self::bad_request(format!(
            "No request of the server waits for an answer with these ids: {}. The others were taken.",
            named.join(", ")
        ))
    }

    pub(crate) fn no_session() -> Self {
        let message = "There is no such session. Open a new one with `initialize`, without Mcp-Session-Id.";
        Self::invalid(Reason::NoSession, message)
    }

    pub(crate) fn bad_version(version: &str, offered: &Revisions) -> Self {
        let version: String = version.chars().take(40).collect();
        let message = format!("MCP-Protocol-Version {version:?} is not supported. Supported: {offered}.");
        Self::invalid(Reason::UnsupportedVersion, message)
    }

    /// The client sent a stateless request of a revision that the server serves only in sessions,
    /// or not at all. The error lists the stateless revisions, or all if none is offered.
    pub(crate) fn unsupported_version(requested: &str, offered: &Revisions) -> Self {
        let stateless = Revisions::new(offered.iter().filter(|revision| revision.is_modern()));
        let supported = stateless.as_ref().unwrap_or(offered).json();
        let mut problem = Self::new(
            Reason::UnsupportedVersion,
            rpc::UNSUPPORTED_PROTOCOL_VERSION,
            "This revision is not supported without a session. Use one that is, or open a session with `initialize`.",
        );
        let requested: String = requested.chars().take(40).collect();
        let requested = rpc::json_string(&requested);
        problem.error.data = Some(format!(r#"{{"supported":{supported},"requested":{requested}}}"#));
        problem
    }

    /// Headers and body of a stateless request differ. They must agree, because proxies route by
    /// the headers.
    pub(crate) fn header_mismatch(message: impl Into<String>) -> Self {
        Self::new(Reason::HeaderMismatch, rpc::HEADER_MISMATCH, message)
    }

    pub(crate) fn method_not_found(method: &str) -> Self {
        let method: String = method.chars().take(80).collect();
        let message = format!("Stateless revisions have no method {method:?}.");
        Self::new(Reason::MethodNotFound, rpc::METHOD_NOT_FOUND, message)
    }

    pub(crate) fn with_id(mut self, id: Option<&RequestId>) -> Self {
        self.id = id.cloned();
        self
    }

    /// Sets the `WWW-Authenticate` header. Omits a text that is not a valid header value.
    pub(crate) fn challenge(mut self, text: &str) -> Self {
        self.header = HeaderValue::from_str(text).ok().map(|value| Box::new((WWW_AUTHENTICATE, value)));
        self
    }

    fn retry_after(mut self, seconds: u32) -> Self {
        self.header = Some(Box::new((RETRY_AFTER, HeaderValue::from(seconds))));
        self
    }

    pub fn into_response(self) -> Response<ResponseBody> {
        let message = Bytes::from(self.error.to_message(self.id.as_ref()));
        let mut response = Response::new(ResponseBody::full(message));
        *response.status_mut() = self.status;
        response.extensions_mut().insert(Refused { reason: self.reason });
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(headers::JSON));
        if let Some((name, value)) = self.header.map(|header| *header) {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

impl From<EnvelopeError> for Problem {
    fn from(error: EnvelopeError) -> Self {
        Self::new(Reason::BadRequest, error.code(), sentence(&error.to_string()))
    }
}

impl From<stateless::EnvelopeError> for Problem {
    fn from(error: stateless::EnvelopeError) -> Self {
        Self::new(Reason::BadRequest, rpc::INVALID_PARAMS, sentence(&error.to_string()))
    }
}

impl From<Denied> for Problem {
    fn from(denied: Denied) -> Self {
        const FORBIDDEN: &str = "These credentials do not allow this request.";
        match denied {
            Denied::Unauthenticated { challenge } => {
                Self::invalid(Reason::Unauthenticated, "This endpoint asks for credentials.")
                    .challenge(&challenge)
            }
            Denied::Forbidden => Self::invalid(Reason::Forbidden, FORBIDDEN),
            Denied::InsufficientScope { challenge } => {
                Self::invalid(Reason::InsufficientScope, FORBIDDEN).challenge(&challenge)
            }
            Denied::Unavailable { retry_after } => {
                // Rounded up, because the server would refuse a client that comes back too early.
                let seconds =
                    u32::try_from(retry_after.as_millis().div_ceil(1000)).unwrap_or(u32::MAX).max(1);
                let message = "Credentials cannot be checked at the moment. Try again later.";
                Self::unavailable(Reason::KeysUnavailable, message).retry_after(seconds)
            }
        }
    }
}

/// The client gets the status and the challenge of the upstream server, so that it knows which
/// credentials the server wants.
impl From<Denial> for Problem {
    fn from(Denial { reason, challenge, error }: Denial) -> Self {
        let (reason, default_challenge) = match reason {
            backend::Denied::Unauthenticated => (Reason::Unauthenticated, Some("Bearer")),
            backend::Denied::Forbidden => (Reason::Forbidden, None),
        };
        let problem = Self::with_error(reason, error);
        match challenge.as_deref().or(default_challenge) {
            Some(challenge) => problem.challenge(challenge),
            None => problem,
        }
    }
}

/// Returns the reason for which the engine refused a request.
fn reason(refusal: &Refusal) -> Reason {
    match refusal {
        Refusal::NoSession => Reason::NoSession,
        Refusal::Duplicate(_) => Reason::DuplicateId,
        Refusal::KeyReused => Reason::KeyReused,
        Refusal::UnknownEvent => Reason::UnknownEvent,
        Refusal::Gone => Reason::StreamGone,
        Refusal::UnknownServerRequest | Refusal::ServerRequestDeadline | Refusal::ServerRequestWithdrawn => {
            Reason::UnknownServerRequest
        }
        Refusal::OverLimit(
            Limit::Sessions | Limit::Exchanges | Limit::NotificationsInAll | Limit::StoreBytes,
        ) => Reason::AtCapacity,
        Refusal::OverLimit(_) => Reason::OverLimit,
        Refusal::Fenced => Reason::LeaseMoved,
        Refusal::InDoubt => Reason::OutcomeUnknown,
        Refusal::Draining => Reason::Draining,
        Refusal::Store(_) => Reason::StoreUnavailable,
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let reason = reason(&refusal);
        let text = sentence(&refusal.to_string());
        match refusal {
            Refusal::NoSession => Self::no_session(),
            Refusal::Duplicate(_) => {
                Self::invalid(reason, format!("{text} Use another id, or wait for its answer."))
            }
            Refusal::KeyReused => {
                let error = reason.error(format!("{text} Use a new key for a new request."));
                Self::with_error(reason, ErrorObject { code: rpc::INVALID_REQUEST, ..error })
            }
            Refusal::UnknownEvent => Self::invalid(reason, "Last-Event-ID names no event of this session."),
            Refusal::Gone => Self::invalid(
                reason,
                "The stream of this Last-Event-ID is not kept any more. Send the request again.",
            ),
            Refusal::UnknownServerRequest => {
                let remedy = "It was answered or withdrawn before, or never asked in this session.";
                Self::invalid(reason, format!("{text} {remedy}"))
            }
            // The engine returns these two to the server that sent the request, never to a client.
            Refusal::ServerRequestDeadline | Refusal::ServerRequestWithdrawn => Self::invalid(reason, text),
            Refusal::OverLimit(Limit::StoreBytes) => {
                let remedy = "Sessions hold as much as the server keeps for all of them. Try again later.";
                Self::unavailable(reason, format!("{text} {remedy}"))
            }
            Refusal::OverLimit(Limit::PrincipalBytes) => {
                let remedy =
                    "Read the answers that wait, end sessions that are not needed, or try again later.";
                Self::invalid(reason, format!("{text} {remedy}")).retry_after(1)
            }
            Refusal::OverLimit(_) if reason == Reason::OverLimit => {
                Self::invalid(reason, format!("{text} Try again later.")).retry_after(1)
            }
            Refusal::OverLimit(_) | Refusal::Fenced | Refusal::Draining => Self::unavailable(reason, text),
            Refusal::InDoubt => Self::with_error(reason, reason.error(text)),
            Refusal::Store(error) => {
                tracing::warn!(%error, "refusing a request because the session store failed");
                Self::unavailable(reason, "The session store does not answer. Try again later.")
            }
        }
    }
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    let dot = if text.ends_with('.') { "" } else { "." };
    format!("{first}{}{dot}", letters.as_str())
}
