//! What a client is told when a server does not answer, or answers in the manner of another era: as in a session, but for
//! what only a request without one can meet. Pure.

use steadfast_wire::rpc::{
    ErrorObject, HEADER_MISMATCH, METHOD_NOT_FOUND, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION,
    json_string,
};
use steadfast_wire::{Revision, listen};

use crate::errors;
use crate::tool_annotations::is_idempotent_method;

pub(super) const DISCOVER: &str = "server/discover";

/// Codes that servers with sessions choose for what they take for a request outside of one.
const SESSION_CODES: [i32; 2] = [-32000, -32001];

/// Whether a request can be sent again without harm, whatever became of it.
pub(super) fn is_safe(method: &str) -> bool {
    is_idempotent_method(method) || method == listen::METHOD
}

/// Something may have been done. A subscription does nothing: it is over, and can be had again.
pub(super) fn broken(method: &str, why: &str) -> ErrorObject {
    if method == listen::METHOD {
        let message = format!("The subscription broke off: {why}. Subscribe again.");
        return ErrorObject::internal("upstream_unavailable", message, true);
    }
    errors::unknown(why, is_safe(method))
}

/// The server's answer is none.
pub(super) fn bad_answer(method: &str, why: &str) -> ErrorObject {
    errors::bad_answer(&format!("its answer cannot be read: {why}"), is_safe(method))
}

pub(super) fn overflow() -> ErrorObject {
    let message = "The subscription was not read for too long. Subscribe again.";
    ErrorObject::internal("overflow", message, true)
}

/// The server speaks revisions with sessions. So does the gateway: a client that knows them too can open one.
pub(super) fn has_sessions() -> ErrorObject {
    let supported: Vec<String> =
        Revision::LEGACY.iter().map(|revision| json_string(revision.as_str())).collect();
    let requested = json_string(Revision::V2026_07_28.as_str());
    ErrorObject {
        code: UNSUPPORTED_PROTOCOL_VERSION,
        message: format!(
            "The server behind this gateway does not speak {}: it has sessions. Open one with initialize.",
            Revision::V2026_07_28
        ),
        data: Some(format!(r#"{{"supported":[{}],"requested":{requested}}}"#, supported.join(","))),
    }
}

/// An error that came with status 200: it is the answer, unless no server of this era gives it.
pub(super) fn of_answer(method: &str, error: ErrorObject) -> ErrorObject {
    if method == DISCOVER && error.code == METHOD_NOT_FOUND { has_sessions() } else { error }
}

/// A response whose status says no.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    pub(super) status: u16,
    /// The error in its body, if that is one.
    pub(super) error: Option<ErrorObject>,
    /// The body names our request.
    pub(super) is_ours: bool,
}

/// What a refusal means.
pub(super) fn of_refusal(method: &str, refused: Refused) -> ErrorObject {
    let Refused { status, error, is_ours } = refused;
    match (status, error) {
        (_, Some(error))
            if matches!(
                error.code,
                HEADER_MISMATCH | MISSING_CLIENT_CAPABILITY | UNSUPPORTED_PROTOCOL_VERSION
            ) =>
        {
            error
        }
        // Whoever is not let in learns nothing about the inside, nor does anybody when the server is down.
        (401 | 403 | 407 | 408 | 429, Some(error)) if is_ours => error,
        // A server that refuses before it has read the id, not a proxy.
        (500.., Some(error)) => error,
        (401 | 403 | 407, error) => errors::unauthorized(status, error.as_ref()),
        (408 | 429, _) => errors::refused(status),
        (500.., None) if method == listen::METHOD => {
            broken(method, &format!("it failed with status {status}"))
        }
        (500.., None) => errors::failed(status, is_safe(method)),
        (400..=499, Some(error)) if is_ours && !SESSION_CODES.contains(&error.code) && method != DISCOVER => {
            error
        }
        (400..=499, _) => has_sessions(),
        _ => bad_answer(method, &format!("its status is {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: i32) -> Option<ErrorObject> {
        Some(ErrorObject::new(code, "theirs"))
    }

    /// The code, and the reason or "theirs".
    fn check(method: &str, status: u16, error: Option<ErrorObject>, ours: bool, expect: (i32, &str)) {
        let told = of_refusal(method, Refused { status, error: error.clone(), is_ours: ours });
        let reason = match (&told.message[..], &told.data) {
            ("theirs", _) => "theirs",
            (_, Some(data)) if data.contains("supported") => "sessions",
            (_, Some(data)) => data.split('"').nth(3).unwrap_or_default(),
            (_, None) => "",
        };
        assert_eq!((told.code, reason), expect, "{method} {status} {error:?} {ours}");
    }

    #[test]
    fn refusals_by_what_they_show() {
        let sessions = (-32022, "sessions");
        // Only a server of this era says these.
        for code in [-32020, -32021, -32022] {
            check("tools/call", 400, error(code), false, (code, "theirs"));
            check("server/discover", 400, error(code), true, (code, "theirs"));
        }
        // An unknown method is an answer, unless every server of this era has it.
        check("tools/call", 404, error(-32601), true, (-32601, "theirs"));
        check("server/discover", 404, error(-32601), true, sessions);
        check("tools/call", 400, error(-32602), true, (-32602, "theirs"));
        // What servers with sessions say to a request outside of one.
        for (status, code) in [(400, -32000), (404, -32001), (400, -32600), (406, -32000)] {
            check("tools/call", status, error(code), false, sessions);
        }
        check("tools/call", 400, error(-32000), true, sessions);
        for status in [400, 404, 405, 415, 422] {
            check("tools/list", status, None, false, sessions);
        }
        check("tools/call", 401, None, false, (-32603, "unauthorized"));
        check("tools/call", 403, error(-32000), false, (-32603, "unauthorized"));
        check("tools/call", 429, None, false, (-32603, "upstream_refused"));
        for status in [500, 502, 503, 504, 524] {
            check("tools/call", status, None, false, (-32603, "outcome_unknown"));
            check("tools/call", status, error(-32603), true, (-32603, "theirs"));
            check("tools/call", status, error(-32603), false, (-32603, "theirs"));
            check("subscriptions/listen", status, None, false, (-32603, "upstream_unavailable"));
        }
        check("tools/call", 302, None, false, (-32603, "bad_answer"));
    }

    #[test]
    fn what_only_looks_can_be_sent_again() {
        for (method, expect) in
            [("resources/read", true), ("subscriptions/listen", true), ("tools/call", false)]
        {
            let data = bad_answer(method, "why").data.unwrap_or_default();
            assert_eq!(data.contains("true"), expect, "{method}");
        }
    }
}
