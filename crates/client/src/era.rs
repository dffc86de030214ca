//! Finding out which revision a server speaks.

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
use crate::incoming::Incoming;
use crate::legacy::{self, Session};
use crate::link::{Link, Reply};
use crate::message::Answer;
use crate::modern;

/// How a server is to be spoken to.
#[derive(Debug)]
pub(crate) enum Peer {
    Session(Session),
    /// With the JSON text of what it said of itself.
    Stateless(Bytes),
}

/// What an answer to `server/discover` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// It speaks our stateless revision.
    Stateless(Bytes),
    /// It knows stateless revisions and names those that it speaks, with or without ours.
    Names(Vec<String>),
    /// It does not know the question: it has sessions, or is no MCP server.
    Session,
    /// It knows the question, or the way to it is barred: this shows nothing about revisions.
    Refused(Error),
}

/// Agrees on a revision, and opens a session if it has sessions.
pub(crate) async fn settle(link: &Link, era: Era) -> Result<Peer, Error> {
    match era {
        Era::Session(offer) if offer.is_modern() => Err(Error::BadConfig("this revision has no sessions")),
        Era::Session(offer) => open(link, offer).await,
        Era::Stateless => match probe(link).await? {
            Verdict::Stateless(server) => Ok(Peer::Stateless(server)),
            Verdict::Names(offered) => Err(Error::NoCommonRevision { offered }),
            Verdict::Session => Err(Error::NoCommonRevision { offered: Vec::new() }),
            Verdict::Refused(error) => Err(error),
        },
        Era::Probe => match probe(link).await? {
            Verdict::Stateless(server) => Ok(Peer::Stateless(server)),
            Verdict::Names(offered) => match newest_with_sessions(&offered) {
                Some(revision) => open(link, revision).await,
                None => Err(Error::NoCommonRevision { offered }),
            },
            Verdict::Session => open(link, Revision::LATEST_LEGACY).await,
            Verdict::Refused(error) => Err(error),
        },
    }
}

async fn probe(link: &Link) -> Result<Verdict, Error> {
    let ours = |offered: &[String]| offered.iter().any(|one| one == Revision::V2026_07_28.as_str());
    match ask(link).await? {
        // It refused a revision that it names: once more is fair.
        Verdict::Names(offered) if ours(&offered) => ask(link).await,
        verdict => Ok(verdict),
    }
}

async fn ask(link: &Link) -> Result<Verdict, Error> {
    match modern::discover(link).await {
        Ok(reply) => Ok(judge(reply)),
        // An answer that is none, such as a page, is no sign of a stateless server.
        Err(Error::BadAnswer(_) | Error::OutcomeUnknown { .. }) => Ok(Verdict::Session),
        Err(error) => Err(error),
    }
}

/// Reads an answer to `server/discover`. Only what a stateless server alone can say makes a server stateless.
fn judge(reply: Reply) -> Verdict {
    let (status, body, challenge, answer) = match reply {
        Reply::Answer(answer) => (200, Bytes::new(), None, Some(answer)),
        Reply::Refusal { status, body, challenge, answer } => (status, body, challenge, answer),
    };
    let code = answer.as_ref().and_then(Answer::code).and_then(|code| i32::try_from(code).ok());
    match (status, answer, code) {
        (_, Some(answer), Some(UNSUPPORTED_PROTOCOL_VERSION)) => {
            Verdict::Names(modern::supported_in(&answer))
        }
        (_, Some(Answer::Error(error)), Some(HEADER_MISMATCH | MISSING_CLIENT_CAPABILITY)) => {
            let error = ErrorObject::parse(&error).map(Box::new);
            Verdict::Refused(Error::Refused { status, error, challenge })
        }
        (200, Some(Answer::Result(server)), _) => match versions(&server) {
            Some(list) if list.iter().any(|one| one == Revision::V2026_07_28.as_str()) => {
                Verdict::Stateless(server)
            }
            Some(list) => Verdict::Names(list),
            None => Verdict::Session,
        },
        (200, ..) => Verdict::Session,
        // Whoever may not come in learns nothing about the inside, nor does anybody when the server is down.
        (401 | 403 | 407 | 408 | 429, ..) => Verdict::Refused(Error::refused(status, &body, challenge)),
        (400..=499, ..) => Verdict::Session,
        _ => Verdict::Refused(Error::refused(status, &body, challenge)),
    }
}

fn versions(server: &Bytes) -> Option<Vec<String>> {
    #[derive(Deserialize)]
    struct Discovered {
        #[serde(rename = "supportedVersions")]
        versions: Vec<String>,
    }
    serde_json::from_slice::<Discovered>(server).ok().map(|discovered| discovered.versions)
}

fn newest_with_sessions(offered: &[String]) -> Option<Revision> {
    Revision::LEGACY.into_iter().rev().find(|revision| offered.iter().any(|one| one == revision.as_str()))
}

/// Opens a session. A server that does not know `initialize` on this path may speak 2024-11-05, which has its own.
async fn open(link: &Link, offer: Revision) -> Result<Peer, Error> {
    let error = match legacy::initialize(link, offer, 1).await {
        Ok(session) => return Ok(Peer::Session(session)),
        Err(error) => error,
    };
    let Error::Refused { status, error: said, .. } = &error else { return Err(error) };
    match (status, said.as_deref().and_then(names_versions)) {
        (201.., Some(offered)) => Err(Error::NoCommonRevision { offered }),
        (400 | 404 | 405, None) if offers_endpoint(link).await => Err(Error::OldTransport),
        _ => Err(error),
    }
}

/// The revisions in a refusal by a server that has no sessions.
fn names_versions(error: &ErrorObject) -> Option<Vec<String>> {
    (error.code == UNSUPPORTED_PROTOCOL_VERSION).then(|| modern::supported(error))
}

/// Whether a GET is answered in the manner of 2024-11-05.
async fn offers_endpoint(link: &Link) -> bool {
    let first = async {
        let response = link.get(HeaderMap::new()).await.ok()?;
        match Incoming::read(response, &link.limits).await.ok()? {
            Incoming::Stream(mut stream) => stream.next().await.ok(),
            Incoming::Whole(_) | Incoming::Refusal { .. } => None,
        }
    };
    let wait: Duration = link.timeouts.control;
    let first = tokio::time::timeout(wait, first).await.ok().flatten();
    first.is_some_and(|event| event.kind == Kind::Other("endpoint".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: i32, data: &str) -> Option<Answer> {
        Some(Answer::Error(format!(r#"{{"code":{code},"message":"m"{data}}}"#).into()))
    }

    fn check(status: u16, answer: Option<Answer>, expect: &Verdict) {
        let reply = match (status, answer.clone()) {
            (200, Some(answer)) => Reply::Answer(answer),
            (_, answer) => {
                Reply::Refusal { status, body: Bytes::from_static(b"body"), challenge: None, answer }
            }
        };
        assert_eq!(&judge(reply), expect, "{status} {answer:?}");
    }

    #[test]
    fn answers_to_the_probe() {
        let refused = |status| Verdict::Refused(Error::Refused { status, error: None, challenge: None });
        let names = |list: &[&str]| Verdict::Names(list.iter().map(|one| (*one).to_owned()).collect());
        let result = |text: &'static str| Some(Answer::Result(Bytes::from_static(text.as_bytes())));
        let both = r#"{"supportedVersions":["2025-11-25","2026-07-28"]}"#;
        check(200, result(both), &Verdict::Stateless(Bytes::from_static(both.as_bytes())));
        check(200, result(r#"{"supportedVersions":["2027-01-01"]}"#), &names(&["2027-01-01"]));
        check(200, result("{}"), &Verdict::Session);
        let data = r#","data":{"supported":["2025-11-25"],"requested":"2026-07-28"}"#;
        check(400, error(-32022, data), &names(&["2025-11-25"]));
        check(200, error(-32022, data), &names(&["2025-11-25"]));
        check(400, error(-32022, ""), &names(&[]));
        let Some(Answer::Error(mismatch)) = error(-32020, "") else { unreachable!() };
        let mismatch = ErrorObject::parse(&mismatch).map(Box::new);
        let mismatch = Error::Refused { status: 400, error: mismatch, challenge: None };
        check(400, error(-32020, ""), &Verdict::Refused(mismatch));
        for code in [-32000, -32001, -32600, -32601, -32602] {
            check(400, error(code, ""), &Verdict::Session);
            check(200, error(code, ""), &Verdict::Session);
        }
        for status in [400, 404, 405, 406, 415, 422] {
            check(status, None, &Verdict::Session);
        }
        for status in [301, 401, 403, 429, 500, 502, 503] {
            check(status, None, &refused(status));
        }
    }

    #[test]
    fn the_newest_revision_with_sessions_is_taken() {
        let newest = |list: &[&str]| {
            newest_with_sessions(&list.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(newest(&["2025-03-26", "2025-06-18", "2024-11-05"]), Some(Revision::V2025_06_18));
        assert_eq!(newest(&["2024-11-05", "2030-01-01", "2026-07-28"]), None);
    }
}
