//! Why a call has no answer of the server's, in words for its client. They are the same with and without a session.

use steadfast_client::{Error, Wait};
use steadfast_engine::backend::Denied;
use steadfast_engine::{Denial, Refusal, Unwelcome};
use steadfast_wire::rpc::{ErrorObject, INTERNAL_ERROR, INVALID_PARAMS, json_string};

use crate::replicas::is_away;

/// Nothing was sent, because nobody is there.
pub(crate) fn unavailable(why: &str) -> ErrorObject {
    let message = format!("The server behind this gateway cannot be reached: {why}. Try again later.");
    ErrorObject::internal("upstream_unavailable", message, true)
}

/// Nothing was sent, because the server has not proven who it is. Its operator has to see to that.
pub(crate) fn untrusted(why: &str) -> ErrorObject {
    let message = format!("The server behind this gateway is not trusted: {why}.");
    ErrorObject::internal("upstream_untrusted", message, false)
}

/// There is no answer, and the server may have executed the call. `safe`: executing it once more does no harm.
pub(crate) fn unknown(why: &str, safe: bool) -> ErrorObject {
    let message = format!("There is no answer to this call, and the server may have executed it: {why}.");
    ErrorObject::internal("outcome_unknown", message, safe)
}

/// What the server answers is none.
pub(crate) fn bad_answer(why: &str, safe: bool) -> ErrorObject {
    let message = format!("The server behind this gateway cannot be used: {why}.");
    ErrorObject::internal("bad_answer", message, safe)
}

pub(crate) fn cancelled(safe: bool) -> ErrorObject {
    ErrorObject::internal("cancelled", "The call was cancelled.", safe)
}

/// A response whose HTTP status says no, without a JSON-RPC error in it. Nothing was begun. Whatever text came with it is not told:
/// it may be the page of some proxy.
pub(crate) fn refused(status: u16) -> ErrorObject {
    let message = format!("The server refused with status {status}.");
    let retryable = matches!(status, 408 | 425 | 429) || is_away(status);
    with_status("upstream_refused", status, retryable, message)
}

/// The same with a status of 500 or more, for a request that was sent: the server may have begun, and a proxy that gives up does
/// not stop the server. `safe`: executing the call once more does no harm.
pub(crate) fn failed(status: u16, safe: bool) -> ErrorObject {
    let message = format!(
        "There is no answer to this call, and the server may have executed it: the response has status {status}."
    );
    with_status("outcome_unknown", status, safe, message)
}

/// The server does not like the credentials that it was shown. `said` is its own error, if it gave one.
pub(crate) fn unauthorized(status: u16, said: Option<&ErrorObject>) -> ErrorObject {
    let why = said.map(|error| format!(": {}", error.short_message()));
    let why = why.unwrap_or_else(|| ".".to_owned());
    let message = format!("The server refuses these credentials with status {status}{why}");
    with_status("unauthorized", status, false, message)
}

fn with_status(reason: &str, status: u16, retryable: bool, message: String) -> ErrorObject {
    let reason = json_string(reason);
    let data = format!(r#"{{"reason":{reason},"status":{status},"retryable":{retryable}}}"#);
    ErrorObject { code: INTERNAL_ERROR, message, data: Some(data) }
}

/// The server's word on the client's own credentials, which is for the client. `None`: it is not about them.
pub(crate) fn denial(status: u16, challenge: Option<String>, error: ErrorObject) -> Option<Denial> {
    let reason = match status {
        401 => Denied::Unauthenticated,
        403 => Denied::Forbidden,
        _ => return None,
    };
    Some(Denial { reason, challenge, error })
}

/// The server's word on the client's own credentials in the middle of a session. `None`: it is not about them. A 403 without a
/// challenge is about the call: the server does not say what else it would want to be shown.
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
    let data = format!(r#"{{"reason":"unauthorized","status":{status},"retryable":false{wanted}}}"#);
    denial(*status, challenge.clone(), ErrorObject { code: INTERNAL_ERROR, message, data: Some(data) })
}

/// The server answered, with an error. What cannot be read of it is still an error.
pub(crate) fn of_server(text: &[u8]) -> ErrorObject {
    ErrorObject::parse(text).unwrap_or_else(|| {
        ErrorObject::internal("bad_answer", "The server answered with an error that cannot be read.", false)
    })
}

/// There is no answer. `safe`: doing it once more does no harm.
pub(crate) fn of_client(error: &Error, safe: bool) -> ErrorObject {
    match error {
        Error::BadParams => ErrorObject::new(INVALID_PARAMS, "The parameters are not a JSON object."),
        Error::Cancelled | Error::Closed => cancelled(safe),
        Error::TooManyCalls { limit } => {
            let message = format!("{limit} calls are on their way to the server already. Try again later.");
            ErrorObject::internal("over_limit", message, true)
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
        Error::OldTransport => ErrorObject::internal(
            "no_common_version",
            "The server behind this gateway speaks 2024-11-05 over HTTP+SSE, which is not supported.",
            false,
        ),
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

/// An HTTP status that says no. If the server says why in JSON-RPC, that is the answer.
fn of_refusal(status: u16, said: Option<&ErrorObject>, safe: bool) -> ErrorObject {
    match (status, said) {
        (401 | 403, said) => unauthorized(status, said),
        (_, Some(error)) => error.clone(),
        (500.., None) => failed(status, safe),
        (_, None) => refused(status),
    }
}

/// There is no session at the server, so nothing of a call was sent.
pub(crate) fn of_no_session(error: &Error) -> ErrorObject {
    match error {
        Error::Refused { status: status @ 500.., error: None, .. } => refused(*status),
        error => of_client(error, true),
    }
}

/// Why no session can be opened. Where the server sees the client's own credentials (`forwarded`), its word on them is for
/// the client; where it sees ours, that is none of the client's business.
pub(crate) fn of_opening(error: &Error, forwarded: bool) -> Unwelcome {
    let told = of_no_session(error);
    let denial = match error {
        Error::Refused { status, challenge, .. } if forwarded => {
            denial(*status, challenge.clone(), told.clone())
        }
        _ => None,
    };
    denial.map_or(Unwelcome::Error(told), Unwelcome::Denied)
}

/// The client has not answered what the server asked.
pub(crate) fn of_ask(refusal: &Refusal) -> ErrorObject {
    let reason = match refusal {
        Refusal::AskDeadline => "deadline",
        Refusal::AskWithdrawn | Refusal::NoSession => "withdrawn",
        Refusal::OverLimit(_) => "over_limit",
        _ => "unavailable",
    };
    ErrorObject::internal(reason, refusal.to_string(), false)
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
            (401, "unauthorized", false, false),
            (429, "upstream_refused", true, true),
            (500, "outcome_unknown", false, false),
            (502, "outcome_unknown", false, true),
            (503, "outcome_unknown", false, true),
            (504, "outcome_unknown", false, true),
            (524, "outcome_unknown", false, false),
        ] {
            let expect = format!(r#"{{"reason":"{reason}","status":{status},"retryable":{retryable}}}"#);
            assert_eq!(data(refusal(status, None)), expect, "{status}");
            let ends = format!(r#","status":{status},"retryable":{when_opening}}}"#);
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
            (Error::BadAnswer("no JSON".into()), true, "bad_answer", false),
        ] {
            let data = of_client(&error, safe).data.unwrap();
            assert_eq!(data, format!(r#"{{"reason":"{reason}","retryable":{retryable}}}"#), "{error:?}");
        }
    }
}
