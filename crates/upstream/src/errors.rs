//! Why a call has no answer of the server's, in words for its client. They are the same with and without a session.

use steadfast_client::{Error, Wait};
use steadfast_engine::backend::Denied;
use steadfast_engine::{Denial, Refusal, Unwelcome};
use steadfast_wire::rpc::{ErrorObject, INTERNAL_ERROR, INVALID_PARAMS, json_string};

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

/// Something may have been done. `safe`: doing it once more does no harm.
pub(crate) fn unknown(why: &str, safe: bool) -> ErrorObject {
    let message = format!("The server was lost while it worked on this; it may have taken effect: {why}.");
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

/// An HTTP status that says no, without an error in JSON-RPC.
pub(crate) fn refused(status: u16, body: &[u8]) -> ErrorObject {
    let message = format!("The server refused with status {status}: {}", quote(body));
    let (reason, retryable) = (json_string("upstream_refused"), matches!(status, 408 | 425 | 429 | 503));
    let data = format!(r#"{{"reason":{reason},"status":{status},"retryable":{retryable}}}"#);
    ErrorObject { code: INTERNAL_ERROR, message, data: Some(data) }
}

/// The server does not like the credentials that it was shown. `said` is its own error, if it gave one.
pub(crate) fn unauthorized(status: u16, body: &[u8], said: Option<ErrorObject>) -> ErrorObject {
    let why = said.map_or_else(|| quote(body), |error| error.message);
    let message = format!("The server refuses these credentials with status {status}: {why}");
    let data = format!(r#"{{"reason":"unauthorized","status":{status},"retryable":false}}"#);
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
    let Error::Refused { status, body, challenge } = error else { return None };
    if !matches!((status, challenge), (401, _) | (403, Some(_))) {
        return None;
    }
    let why = said_in(body).map_or_else(|| quote(body), |error| error.message);
    let why = if why.is_empty() { why } else { format!(" It says: {why}") };
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
        let message = format!("The server answered with an error that cannot be read: {}", quote(text));
        ErrorObject::internal("bad_answer", message, false)
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
        Error::Refused { status, body, .. } => of_refusal(*status, body),
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

/// The error in the body of a refusal, if the server says why in JSON-RPC.
fn said_in(body: &[u8]) -> Option<ErrorObject> {
    #[derive(serde::Deserialize)]
    struct Response<'a> {
        #[serde(borrow)]
        error: &'a serde_json::value::RawValue,
    }
    let said: Response<'_> = serde_json::from_slice(body).ok()?;
    ErrorObject::parse(said.error.get().as_bytes())
}

/// An HTTP status that says no. If the server says why in JSON-RPC, that is the answer.
fn of_refusal(status: u16, body: &[u8]) -> ErrorObject {
    let said = said_in(body);
    if let 401 | 403 = status {
        return unauthorized(status, body, said);
    }
    if let Some(error) = said {
        return error;
    }
    // What `initialize` is answered with is the error itself.
    if let (200, Some(error)) = (status, ErrorObject::parse(body)) {
        return error;
    }
    refused(status, body)
}

/// Why no session can be opened. Where the server sees the client's own credentials (`forwarded`), its word on them is for
/// the client; where it sees ours, that is none of the client's business.
pub(crate) fn of_opening(error: &Error, forwarded: bool) -> Unwelcome {
    let told = of_client(error, true);
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

fn quote(text: &[u8]) -> String {
    const MOST: usize = 300;
    let text = String::from_utf8_lossy(text);
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, body: &'static str) -> (i32, String) {
        let error = Error::Refused { status, body: body.into(), challenge: None };
        let error = of_client(&error, false);
        (error.code, error.message)
    }

    #[test]
    fn a_refusal_in_json_rpc_is_the_answer() {
        let body = r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Not initialized"},"id":null}"#;
        assert_eq!(refusal(400, body), (-32000, "Not initialized".to_owned()));
        let of_initialize = r#"{"code":-32602,"message":"no such version"}"#;
        assert_eq!(refusal(200, of_initialize), (-32602, "no such version".to_owned()));
        let (code, message) = refusal(502, "<html>");
        assert_eq!(code, INTERNAL_ERROR);
        assert!(message.contains("502") && message.contains("<html>"), "{message}");
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
