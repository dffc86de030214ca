//! Reads the headers of a request that concern the protocol: single-valued headers, the protocol
//! version and the session id.

use http::header::{AUTHORIZATION, COOKIE, HeaderName, HeaderValue};
use http::request::Parts;
use steadfast_wire::{Revision, Revisions, revision};

use crate::request::header_names;
use crate::response::problem::Problem;

/// Marks secrets as sensitive. Handlers get the head of the request and may log it; `Debug` does
/// not show sensitive values.
pub(crate) fn hide_secrets(parts: &mut Parts) {
    // The event ids of stateless requests contain the token of a job.
    let secrets = [&header_names::SESSION_ID, &header_names::LAST_EVENT_ID, &AUTHORIZATION, &COOKIE];
    for (name, value) in &mut parts.headers {
        if secrets.contains(&name) {
            value.set_sensitive(true);
        }
    }
}

/// Returns the value of a header. Fails if the header was sent more than once.
pub(crate) fn single_header<'a>(parts: &'a Parts, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    let mut values = parts.headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => match value.to_str() {
            Ok(value) => Ok(Some(value)),
            Err(_) => {
                Err(Problem::bad_request(format!("The header {name} has characters that it must not have.")))
            }
        },
        (Some(_), Some(_)) => {
            Err(Problem::bad_request(format!("The header {name} was sent more than once.")))
        }
    }
}

/// The protocol era that a request claims in its version header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimedEra {
    Nothing,
    Legacy,
    Modern,
}

/// Fails if the header names a revision that does not exist. A session keeps its revision, so
/// `offered` is only named in the error.
pub(crate) fn claimed_version(parts: &Parts, offered: &Revisions) -> Result<ClaimedEra, Problem> {
    let Some(version) = single_header(parts, &header_names::PROTOCOL_VERSION)? else {
        return Ok(ClaimedEra::Nothing);
    };
    match Revision::parse(version) {
        Some(revision) if !revision.is_modern() => Ok(ClaimedEra::Legacy),
        _ if revision::names_modern(version) => Ok(ClaimedEra::Modern),
        _ => Err(Problem::bad_version(version, offered)),
    }
}

/// Refuses stateless requests: DELETE exists only in revisions with sessions.
pub(crate) fn legacy_only(parts: &Parts, offered: &Revisions) -> Result<(), Problem> {
    match claimed_version(parts, offered)? {
        ClaimedEra::Modern => Err(Problem::method_not_allowed()),
        ClaimedEra::Legacy | ClaimedEra::Nothing => Ok(()),
    }
}

/// The session header of a request, for [`repeat_session_id`](crate::response::repeat_session_id).
pub(crate) fn session_header(parts: &Parts) -> Option<HeaderValue> {
    parts.headers.get(&header_names::SESSION_ID).cloned()
}
