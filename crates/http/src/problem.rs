//! Refusals: the right status, the right code, and a message that says what was wrong and what to do.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use steadfast_engine::{Denial, Limit, Refusal, backend};
use steadfast_wire::envelope::EnvelopeError;
use steadfast_wire::rpc::{self, ErrorObject};
use steadfast_wire::{RequestId, Revision, headers, stateless};

use crate::body::ResponseBody;
use crate::identify::Denied;

/// A request that changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub status: StatusCode,
    pub error: ErrorObject,
    /// What it was for, in a word: one of a few, so that they can be counted.
    pub reason: &'static str,
    /// The request it answers, where that could be read.
    pub id: Option<RequestId>,
    pub header: Option<Box<(http::HeaderName, HeaderValue)>>,
}

/// Found among the extensions of every response that is a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    pub reason: &'static str,
}

impl Problem {
    pub fn new(status: StatusCode, code: i32, message: impl Into<String>) -> Self {
        Self { status, error: ErrorObject::new(code, message), reason: "bad_request", id: None, header: None }
    }

    fn invalid(status: StatusCode, message: impl Into<String>) -> Self {
        Self::new(status, rpc::INVALID_REQUEST, message)
    }

    /// The client's request is not what it should be.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::invalid(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn forbidden(reason: &'static str, message: impl Into<String>) -> Self {
        Self::invalid(StatusCode::FORBIDDEN, message).because(reason)
    }

    pub(crate) fn method_not_allowed() -> Self {
        let mut problem =
            Self::invalid(StatusCode::METHOD_NOT_ALLOWED, "This endpoint takes POST, GET and DELETE.")
                .because("method");
        problem.header = Some(Box::new((ALLOW, HeaderValue::from_static("GET, POST, DELETE"))));
        problem
    }

    pub(crate) fn unsupported_media_type() -> Self {
        Self::invalid(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "Send the message as Content-Type: application/json.",
        )
        .because("media_type")
    }

    pub(crate) fn not_acceptable(wanted: &str) -> Self {
        Self::invalid(StatusCode::NOT_ACCEPTABLE, format!("The Accept header must list {wanted}."))
            .because("not_acceptable")
    }

    pub(crate) fn body_too_large(limit: usize) -> Self {
        let message = format!("The body is larger than {limit} bytes (limit `max_body_bytes`).");
        Self::invalid(StatusCode::PAYLOAD_TOO_LARGE, message).because("too_large")
    }

    pub(crate) fn body_too_slow(limit: std::time::Duration) -> Self {
        let message = format!("The body was not complete after {limit:?} (limit `body_timeout`).");
        Self::invalid(StatusCode::REQUEST_TIMEOUT, message).because("too_slow")
    }

    pub(crate) fn initialize_too_large(limit: usize) -> Self {
        let message = format!(
            "The parameters of `initialize` are larger than {limit} bytes (limit `max_initialize_bytes`)."
        );
        Self::invalid(StatusCode::PAYLOAD_TOO_LARGE, message).because("too_large")
    }

    pub(crate) fn headers_too_large(limit: usize) -> Self {
        let message = format!("The headers are larger than {limit} bytes (limit `max_header_bytes`).");
        Self::invalid(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, message).because("too_large")
    }

    pub(crate) fn session_required() -> Self {
        Self::bad_request("This request needs the Mcp-Session-Id header that `initialize` was answered with.")
            .because("session_required")
    }

    /// Some answers of a batch were not taken: each by its id, `None` for one that has none.
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
        Self::invalid(StatusCode::NOT_FOUND, message).because("no_session")
    }

    pub(crate) fn bad_version(version: &str) -> Self {
        let known: Vec<&str> = Revision::LEGACY.iter().map(|revision| revision.as_str()).collect();
        let version: String = version.chars().take(40).collect();
        Self::bad_request(format!(
            "MCP-Protocol-Version {version:?} is not supported. Supported: {}.",
            known.join(", ")
        ))
        .because("version")
    }

    /// A stateless request of a revision that is not served so.
    pub(crate) fn unsupported_version(requested: &str) -> Self {
        let supported = rpc::json_string(Revision::V2026_07_28.as_str());
        let mut problem = Self::new(
            StatusCode::BAD_REQUEST,
            rpc::UNSUPPORTED_PROTOCOL_VERSION,
            "This revision is not supported without a session. Use one that is, or open a session with `initialize`.",
        )
        .because("version");
        let requested: String = requested.chars().take(40).collect();
        let requested = rpc::json_string(&requested);
        problem.error.data = Some(format!(r#"{{"supported":[{supported}],"requested":{requested}}}"#));
        problem
    }

    /// Headers and body of a stateless request must agree: proxies route by the headers.
    pub(crate) fn header_mismatch(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, rpc::HEADER_MISMATCH, message).because("header_mismatch")
    }

    pub(crate) fn method_not_found(method: &str) -> Self {
        let method: String = method.chars().take(80).collect();
        let message = format!("Stateless revisions have no method {method:?}.");
        Self::new(StatusCode::NOT_FOUND, rpc::METHOD_NOT_FOUND, message).because("method_not_found")
    }

    fn because(mut self, reason: &'static str) -> Self {
        self.reason = reason;
        self
    }

    pub(crate) fn with_id(mut self, id: Option<&RequestId>) -> Self {
        self.id = id.cloned();
        self
    }

    /// What the client has to show. A text that is no header is left out.
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
        Self::new(StatusCode::BAD_REQUEST, error.code(), sentence(&error.to_string()))
    }
}

impl From<stateless::EnvelopeError> for Problem {
    fn from(error: stateless::EnvelopeError) -> Self {
        Self::new(StatusCode::BAD_REQUEST, rpc::INVALID_PARAMS, sentence(&error.to_string()))
    }
}

impl From<Denied> for Problem {
    fn from(denied: Denied) -> Self {
        const FORBIDDEN: &str = "These credentials do not allow this request.";
        match denied {
            Denied::Unauthenticated { challenge } => {
                Self::invalid(StatusCode::UNAUTHORIZED, "This endpoint asks for credentials.")
                    .because("unauthenticated")
                    .challenge(&challenge)
            }
            Denied::Forbidden => Self::forbidden("forbidden", FORBIDDEN),
            Denied::InsufficientScope { challenge } => {
                Self::forbidden("insufficient_scope", FORBIDDEN).challenge(&challenge)
            }
            Denied::Unavailable { retry_after } => {
                // Whoever comes a moment too early comes in vain.
                let seconds =
                    u32::try_from(retry_after.as_millis().div_ceil(1000)).unwrap_or(u32::MAX).max(1);
                Self::unavailable("Credentials cannot be checked at the moment. Try again later.")
                    .because("keys_unavailable")
                    .retry_after(seconds)
            }
        }
    }
}

/// A server that protects itself is heard: its clients have to know what it wants.
impl From<Denial> for Problem {
    fn from(Denial { reason, challenge, error }: Denial) -> Self {
        let (status, reason, without) = match reason {
            backend::Denied::Unauthenticated => (StatusCode::UNAUTHORIZED, "unauthenticated", Some("Bearer")),
            backend::Denied::Forbidden => (StatusCode::FORBIDDEN, "forbidden", None),
        };
        let problem = Self { status, error, reason, id: None, header: None };
        match challenge.as_deref().or(without) {
            Some(challenge) => problem.challenge(challenge),
            None => problem,
        }
    }
}

/// In a word.
fn reason(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::NoSession => "no_session",
        Refusal::Duplicate(_) => "duplicate",
        Refusal::UnknownEvent => "unknown_event",
        Refusal::Gone => "gone",
        Refusal::UnknownAsk | Refusal::AskDeadline | Refusal::AskWithdrawn => "unknown_ask",
        Refusal::OverLimit(_) => "over_limit",
        Refusal::Fenced => "fenced",
        Refusal::InDoubt => "in_doubt",
        Refusal::Draining => "draining",
        Refusal::Store(_) => "store",
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let reason = reason(&refusal);
        let text = sentence(&refusal.to_string());
        let problem = match refusal {
            Refusal::NoSession => Self::no_session(),
            Refusal::Duplicate(_) => {
                Self::bad_request(format!("{text} Use another id, or wait for its answer."))
            }
            Refusal::UnknownEvent => Self::bad_request("Last-Event-ID names no event of this session."),
            Refusal::Gone => Self::bad_request(
                "The stream of this Last-Event-ID is not kept any more. Send the request again.",
            ),
            Refusal::UnknownAsk => Self::bad_request(format!(
                "{text} It was answered or withdrawn before, or never asked in this session."
            )),
            // These are for whoever asks, and no client meets them.
            Refusal::AskDeadline | Refusal::AskWithdrawn => Self::bad_request(text),
            Refusal::OverLimit(Limit::Sessions | Limit::Exchanges | Limit::NotificationsInAll) => {
                Self::unavailable(text)
            }
            Refusal::OverLimit(Limit::StoreBytes) => Self::unavailable(format!(
                "{text} Sessions hold as much as the server keeps for all of them. Try again later."
            )),
            Refusal::OverLimit(Limit::PrincipalBytes) => {
                let remedy =
                    "Read the answers that wait, end sessions that are not needed, or try again later.";
                Self::invalid(StatusCode::TOO_MANY_REQUESTS, format!("{text} {remedy}")).retry_after(1)
            }
            Refusal::OverLimit(_) => {
                Self::invalid(StatusCode::TOO_MANY_REQUESTS, format!("{text} Try again later."))
                    .retry_after(1)
            }
            Refusal::Fenced | Refusal::Draining => Self::unavailable(text),
            Refusal::InDoubt => {
                let error = ErrorObject::internal("outcome_unknown", text, false);
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                Self { status, error, reason, id: None, header: None }
            }
            Refusal::Store(error) => {
                tracing::warn!(%error, "a request is refused because of the store");
                Self::unavailable("The session store does not answer. Try again later.")
            }
        };
        problem.because(reason)
    }
}

impl Problem {
    fn unavailable(message: impl Into<String>) -> Self {
        let error = ErrorObject::internal("unavailable", message, true);
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self { status, error, reason: "unavailable", id: None, header: None }.retry_after(1)
    }
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    let dot = if text.ends_with('.') { "" } else { "." };
    format!("{first}{}{dot}", letters.as_str())
}
