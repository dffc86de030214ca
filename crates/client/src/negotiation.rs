//! Negotiates the protocol revision: finds out with `server/discover` whether the server is
//! stateless, and opens a session if it is not.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use serde::Deserialize;
use steadfast_wire::Revision;
use steadfast_wire::rpc::{
    ErrorObject, HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION,
};
use steadfast_wire::sse::Kind;

use crate::config::Era;
use crate::error::Error;
use crate::legacy::{self, Session};
use crate::modern;
use crate::peer::{Answer, Peer, Reply, ServerResponse};

/// The generation of a client's first session.
const FIRST_GENERATION: u64 = 1;

#[derive(Debug)]
pub(crate) enum Negotiated {
    Session(Session),
    /// The JSON text of the result of `server/discover`.
    Stateless(Bytes),
}

/// What the answer to `server/discover` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DiscoverOutcome {
    /// The server supports our stateless revision.
    Stateless(Bytes),
    /// The server knows `server/discover` and refused our revision or does not list it. Contains
    /// the revisions that it lists.
    Supports(Vec<String>),
    /// The server does not know the method: it has sessions, or is not an MCP server.
    NotStateless,
    /// The server refused the request for a reason that shows nothing about revisions: access,
    /// load, an outage, or a malformed request.
    Refused(Error),
}

/// Negotiates a revision, and opens a session if that revision has sessions.
pub(crate) async fn negotiate(peer: &Peer, era: Era) -> Result<Negotiated, Error> {
    match era {
        Era::Session(requested) if requested.is_modern() => {
            Err(Error::BadConfig("this revision has no sessions"))
        }
        Era::Session(requested) => open_session(peer, requested).await,
        Era::Stateless => match probe(peer).await? {
            DiscoverOutcome::Stateless(discovered) => Ok(Negotiated::Stateless(discovered)),
            DiscoverOutcome::Supports(offered) => Err(Error::NoCommonRevision { offered }),
            DiscoverOutcome::NotStateless => Err(Error::NoCommonRevision { offered: Vec::new() }),
            DiscoverOutcome::Refused(error) => Err(error),
        },
        Era::Probe => match probe(peer).await? {
            DiscoverOutcome::Stateless(discovered) => Ok(Negotiated::Stateless(discovered)),
            DiscoverOutcome::Supports(offered) => match newest_with_sessions(&offered) {
                Some(revision) => open_session(peer, revision).await,
                None => Err(Error::NoCommonRevision { offered }),
            },
            DiscoverOutcome::NotStateless => open_session(peer, Revision::LATEST_LEGACY).await,
            DiscoverOutcome::Refused(error) => Err(error),
        },
    }
}

async fn probe(peer: &Peer) -> Result<DiscoverOutcome, Error> {
    let lists_ours = |offered: &[String]| offered.iter().any(|name| name == Revision::V2026_07_28.as_str());
    match discover_once(peer).await? {
        // The server refused our revision although it lists it. During an update of the server
        // another replica may answer the retry.
        DiscoverOutcome::Supports(offered) if lists_ours(&offered) => discover_once(peer).await,
        outcome => Ok(outcome),
    }
}

async fn discover_once(peer: &Peer) -> Result<DiscoverOutcome, Error> {
    match modern::discover(peer).await {
        Ok(reply) => Ok(interpret(reply)),
        // A stateless server sends no malformed answer (an HTML page) and no response without
        // answer.
        Err(Error::BadAnswer(_) | Error::OutcomeUnknown { .. }) => Ok(DiscoverOutcome::NotStateless),
        Err(error) => Err(error),
    }
}

/// Interprets the answer to `server/discover`. Considers the server stateless only if the answer
/// proves it: with a list of supported versions, or with an error code that only stateless
/// revisions define.
fn interpret(reply: Reply) -> DiscoverOutcome {
    let (status, body, challenge, answer) = match reply {
        Reply::Answer(answer) => (200, Bytes::new(), None, Some(answer)),
        Reply::Refusal { status, body, challenge, answer } => (status, body, challenge, answer),
    };
    let code = answer.as_ref().and_then(Answer::code).and_then(|code| i32::try_from(code).ok());
    match (status, answer, code) {
        (_, Some(answer), Some(UNSUPPORTED_PROTOCOL_VERSION)) => {
            DiscoverOutcome::Supports(modern::supported_in(&answer))
        }
        (_, Some(Answer::Error(error)), Some(HEADER_MISMATCH | MISSING_CLIENT_CAPABILITY)) => {
            let error = ErrorObject::parse(&error).map(Box::new);
            DiscoverOutcome::Refused(Error::Refused { status, error, challenge })
        }
        (200, Some(Answer::Result(discovered)), _) => match supported_versions(&discovered) {
            Some(list) if list.iter().any(|name| name == Revision::V2026_07_28.as_str()) => {
                DiscoverOutcome::Stateless(discovered)
            }
            Some(list) => DiscoverOutcome::Supports(list),
            None => DiscoverOutcome::NotStateless,
        },
        (200, ..) => DiscoverOutcome::NotStateless,
        // Access or load.
        (401 | 403 | 407 | 408 | 429, ..) => {
            DiscoverOutcome::Refused(Error::refused(status, &body, challenge))
        }
        (400..=499, ..) => DiscoverOutcome::NotStateless,
        // A redirect or an outage.
        _ => DiscoverOutcome::Refused(Error::refused(status, &body, challenge)),
    }
}

fn supported_versions(discovered: &Bytes) -> Option<Vec<String>> {
    #[derive(Deserialize)]
    struct DiscoverResult {
        #[serde(rename = "supportedVersions")]
        versions: Vec<String>,
    }
    serde_json::from_slice::<DiscoverResult>(discovered).ok().map(|result| result.versions)
}

fn newest_with_sessions(offered: &[String]) -> Option<Revision> {
    Revision::LEGACY.into_iter().rev().find(|revision| offered.iter().any(|name| name == revision.as_str()))
}

/// Opens a session. If the server refuses `initialize`, checks whether it uses the HTTP+SSE
/// transport of 2024-11-05, which has separate URLs for GET and POST.
async fn open_session(peer: &Peer, requested: Revision) -> Result<Negotiated, Error> {
    let error = match legacy::initialize(peer, requested, FIRST_GENERATION).await {
        Ok(session) => return Ok(Negotiated::Session(session)),
        Err(error) => error,
    };
    let Error::Refused { status, error: error_object, .. } = &error else { return Err(error) };
    match (status, error_object.as_deref().and_then(supported_revisions)) {
        // A server that answers with 200 has sessions, so its error is reported as it is.
        (201.., Some(offered)) => Err(Error::NoCommonRevision { offered }),
        (400 | 404 | 405, None) if speaks_http_with_sse(peer).await => Err(Error::OldTransport),
        _ => Err(error),
    }
}

/// Returns the revisions that an `UNSUPPORTED_PROTOCOL_VERSION` error lists. `None` for other
/// errors.
fn supported_revisions(error: &ErrorObject) -> Option<Vec<String>> {
    (error.code == UNSUPPORTED_PROTOCOL_VERSION).then(|| modern::supported(error))
}

/// Returns true if the server answers a GET with the `endpoint` event of 2024-11-05.
async fn speaks_http_with_sse(peer: &Peer) -> bool {
    let first = async {
        let response = peer.get(HeaderMap::new()).await.ok()?;
        match ServerResponse::read(response, &peer.limits).await.ok()? {
            ServerResponse::Stream(mut stream) => stream.next().await.ok(),
            ServerResponse::Complete(_) | ServerResponse::Refusal { .. } => None,
        }
    };
    let wait: Duration = peer.timeouts.control;
    let first = tokio::time::timeout(wait, first).await.ok().flatten();
    first.is_some_and(|event| event.kind == Kind::Other("endpoint".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: i32, data: &str) -> Option<Answer> {
        Some(Answer::Error(format!(r#"{{"code":{code},"message":"m"{data}}}"#).into()))
    }

    fn check(status: u16, answer: Option<Answer>, expect: &DiscoverOutcome) {
        let reply = match (status, answer.clone()) {
            (200, Some(answer)) => Reply::Answer(answer),
            (_, answer) => {
                Reply::Refusal { status, body: Bytes::from_static(b"body"), challenge: None, answer }
            }
        };
        assert_eq!(&interpret(reply), expect, "{status} {answer:?}");
    }

    #[test]
    fn answers_to_the_probe() {
        let refused =
            |status| DiscoverOutcome::Refused(Error::Refused { status, error: None, challenge: None });
        let names =
            |list: &[&str]| DiscoverOutcome::Supports(list.iter().map(|one| (*one).to_owned()).collect());
        let result = |text: &'static str| Some(Answer::Result(Bytes::from_static(text.as_bytes())));
        let both = r#"{"supportedVersions":["2025-11-25","2026-07-28"]}"#;
        check(200, result(both), &DiscoverOutcome::Stateless(Bytes::from_static(both.as_bytes())));
        check(200, result(r#"{"supportedVersions":["2027-01-01"]}"#), &names(&["2027-01-01"]));
        check(200, result("{}"), &DiscoverOutcome::NotStateless);
        let data = r#","data":{"supported":["2025-11-25"],"requested":"2026-07-28"}"#;
        check(400, error(-32022, data), &names(&["2025-11-25"]));
        check(200, error(-32022, data), &names(&["2025-11-25"]));
        check(400, error(-32022, ""), &names(&[]));
        let Some(Answer::Error(mismatch)) = error(-32020, "") else { unreachable!() };
        let mismatch = ErrorObject::parse(&mismatch).map(Box::new);
        let mismatch = Error::Refused { status: 400, error: mismatch, challenge: None };
        check(400, error(-32020, ""), &DiscoverOutcome::Refused(mismatch));
        for code in [-32000, -32001, -32600, -32601, -32602] {
            check(400, error(code, ""), &DiscoverOutcome::NotStateless);
            check(200, error(code, ""), &DiscoverOutcome::NotStateless);
        }
        for status in [400, 404, 405, 406, 415, 422] {
            check(status, None, &DiscoverOutcome::NotStateless);
        }
        for status in [301, 401, 403, 429, 500, 502, 503] {
            check(status, None, &refused(status));
        }
    }

    #[test]
    fn the_newest_revision_with_sessions_is_chosen() {
        let newest = |list: &[&str]| {
            newest_with_sessions(&list.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(newest(&["2025-03-26", "2025-06-18", "2024-11-05"]), Some(Revision::V2025_06_18));
        assert_eq!(newest(&["2024-11-05", "2030-01-01", "2026-07-28"]), None);
    }
}
