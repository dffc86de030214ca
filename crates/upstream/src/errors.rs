//! Errors that tell a client why its call has no answer from the upstream server. Calls with and
//! without a session get the same errors.

use steadfast_client::{Error, Wait};
use steadfast_engine::backend::Denied;
use steadfast_engine::{Denial, InitializeError, Refusal};
use steadfast_wire::Reason;
use steadfast_wire::rpc::{ErrorObject, INTERNAL_ERROR, INVALID_PARAMS, json_string};

use crate::replicas::replica::is_unavailable;

/// The gateway sent nothing, because it cannot reach the server.
pub(crate) fn unavailable(why: &str) -> ErrorObject {
    let message = format!("The server behind this gateway cannot be reached: {why}. Try again later.");
    Reason::UpstreamUnavailable.error(message)
}

/// The gateway sent nothing, because the server has not proven its identity. The operator of the
/// server has to fix that.
pub(crate) fn untrusted(why: &str) -> ErrorObject {
    let message = format!("The server behind this gateway is not trusted: {why}.");
    Reason::UpstreamUntrusted.error(message)
}

/// The call has no answer, and the server may have executed it. `safe`: the client may send the
/// call again without harm.
pub(crate) fn unknown(why: &str, safe: bool) -> ErrorObject {
    let message = format!("There is no answer to this call, and the server may have executed it: {why}.");
    Reason::OutcomeUnknown.error_retryable(safe, message)
}

/// The server sent something that is not a valid answer.
pub(crate) fn bad_answer(why: &str, safe: bool) -> ErrorObject {
    let message = format!("The server behind this gateway cannot be used: {why}.");
    Reason::BadResponse.error_retryable(safe, message)
}

pub(crate) fn cancelled(safe: bool) -> ErrorObject {
    Reason::Cancelled.error_retryable(safe, "The call was cancelled.")
}

/// The server refused with an HTTP status and without a JSON-RPC error, and has not started the
/// call. The error omits the response body, which may be the page of a proxy.
pub(crate) fn refused(status: u16) -> ErrorObject {
    let message = format!("The server refused with status {status}.");
    let retryable = matches!(status, 408 | 425 | 429) || is_unavailable(status);
    with_status(Reason::UpstreamRefused, status, retryable, message)
}

/// The response to a request has a status of 500 or more and no JSON-RPC error. The server may have
/// started the call: a proxy that gives up does not stop the server. `safe`: the client may send
/// the call again without harm.
pub(crate) fn failed(status: u16, safe: bool) -> ErrorObject {
    let message = format!(
        "There is no answer to this call, and the server may have executed it: the response has status {status}."
    );
    with_status(Reason::OutcomeUnknown, status, safe, message)
}

/// The server refused the credentials in the request. `said` is the JSON-RPC error of the server,
/// if it sent one.
pub(crate) fn unauthorized(status: u16, said: Option<&ErrorObject>) -> ErrorObject {
    let why = said.map(|error| format!(": {}", error.short_message()));
    let why = why.unwrap_or_else(|| ".".to_owned());
    let message = format!("The server refuses these credentials with status {status}{why}");
    with_status(Reason::CredentialsRefused, status, false, message)
}

fn with_status(reason: Reason, status: u16, retryable: bool, message: String) -> ErrorObject {
    let data = reason.data(retryable, &format!(r#","status":{status}"#));
    ErrorObject { code: INTERNAL_ERROR, message, data: Some(data) }
}

/// Returns the denial that the server sent for the client's own credentials, to be passed to the
/// client. Returns `None` if the status is not about credentials.
pub(crate) fn denial(status: u16, challenge: Option<String>, error: ErrorObject) -> Option<Denial> {
    let reason = match status {
        401 => Denied::Unauthenticated,
        403 => Denied::Forbidden,
        _ => return None,
    };
    Some(Denial { reason, challenge, error })
}

/// Returns the denial that the server sent for the client's own credentials during a session.
/// Returns `None` if the error is not about credentials. A 403 without a challenge is about the
/// call: the server names no other credentials that it would accept.
pub(crate) fn denial_of_call(error: &Error) -> Option<Denial> {
    let Error::Refused { status, error: said, challenge } = error else { return None };
    if !matches!((status, challenge), (401, _) | (403, Some(_))) {
        return None;
    }
    let why = said.as_ref().map(|error| format!(" It says: {}", error.short_message()));
    let why = why.unwrap_or_default();
    let message = format!(
        "The server refuses these credentials with status {status}. Get others and open another session with them (`initialize`): \
         this one belongs to the credentials that it was opened with.{why}"
    );
    let wanted = challenge.as_ref().map(|wanted| format!(r#","challenge":{}"#, json_string(wanted)));
    let wanted = wanted.unwrap_or_default();
    let data = Reason::CredentialsRefused.data(false, &format!(r#","status":{status}{wanted}"#));
    denial(*status, challenge.clone(), ErrorObject { code: INTERNAL_ERROR, message, data: Some(data) })
}

/// The server responded with a JSON-RPC error. An error that cannot be parsed becomes a
/// `BadResponse`.
pub(crate) fn of_server(text: &[u8]) -> ErrorObject {
    ErrorObject::parse(text).unwrap_or_else(|| {
        Reason::BadResponse.error("The server answered with an error that cannot be read.")
    })
}

/// Converts an error of the MCP client into the error of a call. `safe`: the client may send the
/// call again without harm.
pub(crate) fn of_client(error: &Error, safe: bool) -> ErrorObject {
    match error {
        Error::BadParams => ErrorObject::new(INVALID_PARAMS, "The parameters are not a JSON object."),
        Error::Cancelled | Error::Closed => cancelled(safe),
        Error::TooManyCalls { limit } => {
            let message = format!("{limit} calls are on their way to the server already. Try again later.");
            Reason::OverLimit.error_retryable(true, message)
        }
        Error::Refused { status, error, .. } => of_refusal(*status, error.as_deref(), safe),
        Error::NoCommonRevision { offered } => {
            let supported: Vec<String> = offered.iter().map(|one| json_string(one)).collect();
            let speaks = if offered.is_empty() { "other versions".to_owned() } else { offered.join(", ") };
            let message = format!(
                "Unsupported protocol version: the server behind this gateway speaks {speaks}, and a client with sessions cannot use it."
            );
            let data = Some(format!(r#"{{"supported":[{}]}}"#, supported.join(",")));
            ErrorObject { code: INVALID_PARAMS, message, data }
        }
        Error::OldTransport => Reason::NoCommonVersion
            .error("The server behind this gateway speaks 2024-11-05 over HTTP+SSE, which is not supported."),
        Error::Connect(_) | Error::SessionLost => unavailable(&error.to_string()),
        Error::Untrusted(why) => untrusted(why),
        Error::Timeout(Wait::Head | Wait::Call) | Error::Broken(_) | Error::OutcomeUnknown { .. } => {
            unknown(&error.to_string(), safe)
        }
        Error::BadAddress(_)
        | Error::BadConfig(_)
        | Error::Unmirrorable { .. }
        | Error::InputRefused { .. }
        | Error::BadAnswer(_)
        | Error::UnusableTool { .. }
        | Error::UnknownResultType(_)
        | Error::TooManyRounds { .. } => bad_answer(&error.to_string(), false),
    }
}

/// The server refused with an HTTP status. If the response contains a JSON-RPC error, the client
/// gets that error. Credentials are an exception: their error quotes the server's.
fn of_refusal(status: u16, said: Option<&ErrorObject>, safe: bool) -> ErrorObject {
    match (status, said) {
        (401 | 403, said) => unauthorized(status, said),
        (_, Some(error)) => error.clone(),
        (500.., None) => failed(status, safe),
        (_, None) => refused(status),
    }
}

/// The gateway has no upstream session, so it has sent no call.
pub(crate) fn of_no_session(error: &Error) -> ErrorObject {
    match error {
        Error::Refused { status: status @ 500.., error: None, .. } => refused(*status),
        error => of_client(error, true),
    }
}

/// Converts the error of opening an upstream session. If the gateway forwards the client's own
/// credentials (`forwarded`), the client gets the server's denial of them. If the gateway uses its
/// own credentials, the client gets no denial, because it cannot replace them.
pub(crate) fn of_opening(error: &Error, forwarded: bool) -> InitializeError {
    let told = of_no_session(error);
    let denial = match error {
        Error::Refused { status, challenge, .. } if forwarded => {
            denial(*status, challenge.clone(), told.clone())
        }
        _ => None,
    };
    denial.map_or(InitializeError::Error(told), InitializeError::Denied)
}

/// The client has not answered a request of the server.
pub(crate) fn of_ask(refusal: &Refusal) -> ErrorObject {
    let reason = match refusal {
        Refusal::ServerRequestDeadline => Reason::Deadline,
        Refusal::ServerRequestWithdrawn | Refusal::NoSession => Reason::ServerRequestWithdrawn,
        Refusal::OverLimit(_) => Reason::OverLimit,
        _ => Reason::StoreUnavailable,
    };
    reason.error_retryable(false, refusal.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, error: Option<ErrorObject>) -> ErrorObject {
        of_client(&Error::Refused { status, error: error.map(Box::new), challenge: None }, false)
    }

    #[test]
    fn a_refusal_in_json_rpc_is_the_answer() {
        let theirs = || ErrorObject::new(-32000, "Not initialized");
        for status in [200, 400, 404, 500, 502, 503, 504] {
            assert_eq!(refusal(status, Some(theirs())), theirs(), "{status}");
        }
        let told = refusal(403, Some(theirs()));
        assert_eq!(told.message, "The server refuses these credentials with status 403: Not initialized");
    }

    #[test]
    fn a_status_says_whether_something_may_have_been_done() {
        let open = |status| of_no_session(&Error::Refused { status, error: None, challenge: None });
        let data = |error: ErrorObject| error.data.unwrap();
        for (status, reason, retryable, when_opening) in [
            (302, "upstream_refused", false, false),
            (400, "upstream_refused", false, false),
            (401, "credentials_refused", false, false),
            (429, "upstream_refused", true, true),
            (500, "outcome_unknown", false, false),
            (502, "outcome_unknown", false, true),
            (503, "outcome_unknown", false, true),
            (504, "outcome_unknown", false, true),
            (524, "outcome_unknown", false, false),
        ] {
            let expect = format!(r#"{{"reason":"{reason}","retryable":{retryable},"status":{status}}}"#);
            assert_eq!(data(refusal(status, None)), expect, "{status}");
            let ends = format!(r#","retryable":{when_opening},"status":{status}}}"#);
            assert!(data(open(status)).ends_with(&ends), "{status}: {:?}", open(status));
        }
    }

    #[test]
    fn a_server_of_the_other_era_is_named_as_such() {
        let told = of_client(&Error::NoCommonRevision { offered: vec!["2026-07-28".to_owned()] }, true);
        assert_eq!((told.code, told.data.as_deref()), (-32602, Some(r#"{"supported":["2026-07-28"]}"#)));
    }

    #[test]
    fn what_is_known_of_the_outcome_is_said() {
        for (error, safe, reason, retryable) in [
            (Error::Connect("refused".into()), false, "upstream_unavailable", true),
            (Error::SessionLost, false, "upstream_unavailable", true),
            (Error::Untrusted("expired".into()), true, "upstream_untrusted", false),
            (Error::Broken("reset".into()), false, "outcome_unknown", false),
            (Error::OutcomeUnknown { why: "gone".into() }, true, "outcome_unknown", true),
            (Error::BadAnswer("no JSON".into()), true, "bad_response", false),
        ] {
            let data = of_client(&error, safe).data.unwrap();
            assert_eq!(data, format!(r#"{{"reason":"{reason}","retryable":{retryable}}}"#), "{error:?}");
        }
    }
}
