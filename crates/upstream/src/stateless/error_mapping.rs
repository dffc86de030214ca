//! Errors for requests without a session: what the client gets if the server does not answer, or
//! answers like a server with sessions. `crate::errors` has those that sessions need as well.

use steadfast_engine::Answer;
use steadfast_wire::Reason;
use steadfast_wire::idempotent_methods::is_idempotent_method;
use steadfast_wire::rpc::{
    ErrorObject, HEADER_MISMATCH, METHOD_NOT_FOUND, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION,
    json_string,
};
use steadfast_wire::{Revision, Revisions, discover, subscriptions};

use crate::errors;

pub(super) use steadfast_wire::discover::METHOD as DISCOVER;

/// Codes with which servers with sessions refuse a request outside of a session.
const SESSION_CODES: [i32; 2] = [-32000, -32001];

/// Returns true if the request can be sent again without harm.
pub(super) fn is_safe(method: &str) -> bool {
    is_idempotent_method(method) || method == subscriptions::METHOD
}

/// Returns the error of a request that the server may have executed. A subscription has no effect,
/// so the client can subscribe again.
pub(super) fn broken(method: &str, why: &str) -> ErrorObject {
    if method == subscriptions::METHOD {
        let message = format!("The subscription was interrupted: {why}. Subscribe again.");
        return Reason::UpstreamUnavailable.error(message);
    }
    errors::unknown(why, is_safe(method))
}

/// Returns the error of a request whose answer cannot be read.
pub(super) fn bad_answer(method: &str, why: &str) -> ErrorObject {
    errors::bad_answer(&format!("its answer cannot be read: {why}"), is_safe(method))
}

pub(super) fn overflow() -> ErrorObject {
    let message = "The subscription was not read for too long. Subscribe again.";
    Reason::Overflow.error(message)
}

/// Returns the answer to a request to a server with sessions. The gateway has sessions as well, so
/// a client that supports them can open one. `server/discover` has a result that says so.
pub(super) fn has_sessions(method: &str) -> Answer {
    if method == DISCOVER {
        return Ok(discover::result(&Revisions::legacy()).into());
    }
    let supported = Revisions::legacy().json();
    let requested = json_string(Revision::V2026_07_28.as_str());
    Err(ErrorObject {
        code: UNSUPPORTED_PROTOCOL_VERSION,
        message: format!(
            "The server behind this gateway does not speak {}: it has sessions. Open one with initialize.",
            Revision::V2026_07_28
        ),
        data: Some(format!(r#"{{"supported":{supported},"requested":{requested}}}"#)),
    })
}

/// Maps an error that came with status 200. It is the answer, unless only a server with sessions
/// gives it.
pub(super) fn of_answer(method: &str, error: ErrorObject) -> Answer {
    if method == DISCOVER && error.code == METHOD_NOT_FOUND { has_sessions(method) } else { Err(error) }
}

#[derive(Clone, Debug)]
pub(super) struct Refused {
    pub(super) status: u16,
    /// The JSON-RPC error in the body, if there is one.
    pub(super) error: Option<ErrorObject>,
    /// The body contains the id of the request.
    pub(super) is_ours: bool,
}

pub(super) fn of_refusal(method: &str, refused: Refused) -> Answer {
    let Refused { status, error, is_ours } = refused;
    Err(match (status, error) {
        (_, Some(error))
            if matches!(
                error.code,
                HEADER_MISMATCH | MISSING_CLIENT_CAPABILITY | UNSUPPORTED_PROTOCOL_VERSION
            ) =>
        {
            error
        }
        // The error names the request, so it comes from the server and not from a proxy.
        (401 | 403 | 407 | 408 | 429, Some(error)) if is_ours => error,
        // A server that refuses before it has read the id. A proxy does not send JSON-RPC.
        (500.., Some(error)) => error,
        (401 | 403 | 407, error) => errors::unauthorized(status, error.as_ref()),
        (408 | 429, _) => errors::refused(status),
        (500.., None) if method == subscriptions::METHOD => {
            broken(method, &format!("it failed with status {status}"))
        }
        (500.., None) => errors::failed(status, is_safe(method)),
        (400..=499, Some(error)) if is_ours && !SESSION_CODES.contains(&error.code) && method != DISCOVER => {
            error
        }
        (400..=499, _) => return has_sessions(method),
        _ => bad_answer(method, &format!("its status is {status}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: i32) -> Option<ErrorObject> {
        Some(ErrorObject::new(code, "theirs"))
    }

    /// Compares the code, and the reason or "theirs".
    fn check(method: &str, status: u16, error: Option<ErrorObject>, ours: bool, expect: (i32, &str)) {
        let told = of_refusal(method, Refused { status, error: error.clone(), is_ours: ours });
        let told = match told {
            Ok(result) => {
                assert_eq!(result, discover::result(&Revisions::legacy()));
                ErrorObject::new(0, "sessions")
            }
            Err(error) => error,
        };
        let reason = match (&told.message[..], &told.data) {
            ("sessions", _) => "a result",
            ("theirs", _) => "theirs",
            (_, Some(data)) if data.contains("supported") => "sessions",
            (_, Some(data)) => data.split('"').nth(3).unwrap_or_default(),
            (_, None) => "",
        };
        assert_eq!((told.code, reason), expect, "{method} {status} {error:?} {ours}");
    }

    #[test]
    fn refusals_by_status_and_error() {
        let sessions = (-32022, "sessions");
        // Only a stateless server sends these.
        for code in [-32020, -32021, -32022] {
            check("tools/call", 400, error(code), false, (code, "theirs"));
            check("server/discover", 400, error(code), true, (code, "theirs"));
        }
        // An unknown method is an answer, unless all stateless servers have that method.
        check("tools/call", 404, error(-32601), true, (-32601, "theirs"));
        check("server/discover", 404, error(-32601), true, (0, "a result"));
        check("tools/call", 400, error(-32602), true, (-32602, "theirs"));
        // Servers with sessions answer like this to a request outside of a session.
        for (status, code) in [(400, -32000), (404, -32001), (400, -32600), (406, -32000)] {
            check("tools/call", status, error(code), false, sessions);
        }
        check("tools/call", 400, error(-32000), true, sessions);
        for status in [400, 404, 405, 415, 422] {
            check("tools/list", status, None, false, sessions);
        }
        check("tools/call", 401, None, false, (-32603, "credentials_refused"));
        check("tools/call", 403, error(-32000), false, (-32603, "credentials_refused"));
        check("tools/call", 429, None, false, (-32603, "upstream_refused"));
        for status in [500, 502, 503, 504, 524] {
            check("tools/call", status, None, false, (-32603, "outcome_unknown"));
            check("tools/call", status, error(-32603), true, (-32603, "theirs"));
            check("tools/call", status, error(-32603), false, (-32603, "theirs"));
            check("subscriptions/listen", status, None, false, (-32603, "upstream_unavailable"));
        }
        check("tools/call", 302, None, false, (-32603, "bad_response"));
    }

    #[test]
    fn idempotent_requests_can_be_sent_again() {
        for (method, expect) in
            [("resources/read", true), ("subscriptions/listen", true), ("tools/call", false)]
        {
            let data = bad_answer(method, "why").data.unwrap_or_default();
            assert_eq!(data.contains("true"), expect, "{method}");
        }
    }
}
