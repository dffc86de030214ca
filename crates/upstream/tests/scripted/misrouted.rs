//! Answers in the response to another call of the same upstream session, as php-sdk #275 sends
//! them: each reaches its own call.

use std::sync::{Arc, Mutex};

use crate::support::server::{Reply, Request, Server};
use crate::support::{Session, Value, json, within};

use super::{call, calls, opened, reason};

/// How the answer to the call of `other` comes in the response to a call of `carrier`.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Alone, in JSON.
    Json,
    /// With the answer to `carrier`, in a JSON array.
    JsonBoth,
    /// Before the answer to `carrier`, in a stream.
    Stream,
    /// In a stream that ends without the answer to `carrier`.
    StreamAlone,
    /// Three times, in a stream.
    StreamThrice,
}

impl Way {
    fn reply(self, request: &Request, other: &Value) -> Reply {
        let mine = json!({"jsonrpc": "2.0", "id": request.body["id"], "result": {"of": "carrier"}});
        let other = json!({"jsonrpc": "2.0", "id": other, "result": {"of": "other"}});
        match self {
            Self::Json => Reply::json(&other),
            Self::JsonBoth => Reply::json(&json!([other, mine])),
            Self::Stream => Reply::stream().event(&other).event(&mine),
            Self::StreamAlone => Reply::stream().event(&other),
            Self::StreamThrice => Reply::stream().event(&other).event(&other).event(&other).event(&mine),
        }
    }
}

/// A server that never answers a call of `other` itself. The first call of `carrier` brings the
/// answer.
async fn server(way: Way, is_safe: bool) -> Server {
    let other: Arc<Mutex<Option<Value>>> = Arc::default();
    Server::with_sessions(move |request| match request.method() {
        "tools/list" => {
            let annotations = json!({"readOnlyHint": is_safe});
            let tools = json!([{"name": "carrier", "inputSchema": {}, "annotations": annotations}]);
            Some(Reply::result(request, &json!({"tools": tools})))
        }
        "tools/call" if request.calls("other") => {
            *other.lock().unwrap() = Some(request.body["id"].clone());
            Some(Reply::default().hang())
        }
        "tools/call" if request.calls("carrier") => Some(match other.lock().unwrap().take() {
            Some(other) => way.reply(request, &other),
            None => Reply::result(request, &json!({"of": "carrier"})),
        }),
        "tools/call" => Some(Reply::result(request, &json!({"of": "plain"}))),
        _ => None,
    })
    .await
}

/// Has both called. Gives what the client of `other` and that of `carrier` hear.
async fn both(server: &Server, session: &Session) -> (Vec<Value>, Value) {
    let waiting = {
        let session = session.clone();
        tokio::spawn(async move { session.tool(1, "other", json!({})).send().await.messages() })
    };
    server.until("the other call", |log| log.iter().any(|request| request.calls("other"))).await;
    let carrier = call(session, 2, "carrier").await;
    (within("the answer to the other call", waiting).await.unwrap(), carrier)
}

fn of_other() -> Vec<Value> {
    vec![json!({"jsonrpc": "2.0", "id": 1, "result": {"of": "other"}})]
}

#[tokio::test]
async fn an_answer_reaches_its_call_on_whatever_response_it_comes() {
    for way in [Way::JsonBoth, Way::Stream, Way::StreamThrice] {
        let server = server(way, false).await;
        let (_host, session) = opened(&server).await;
        let (other, carrier) = both(&server, &session).await;
        assert_eq!((other, &carrier["result"]), (of_other(), &json!({"of": "carrier"})), "{way:?}");
        // The response that is not needed any more is let go of.
        let is_closed = |log: &[Request]| log.iter().any(|request| request.verb == "CLOSED");
        server.until("the end of its own response", is_closed).await;
        assert_eq!((calls(&server, "other"), calls(&server, "carrier")), (1, 1), "{way:?}");
        assert_eq!(server.count(|request| request.method() == "notifications/cancelled"), 0, "{way:?}");
        assert_eq!(call(&session, 3, "plain").await["result"], json!({"of": "plain"}), "{way:?}");
    }
}

#[tokio::test]
async fn a_call_whose_response_brought_the_answer_to_another_has_an_unknown_outcome() {
    for way in [Way::Json, Way::StreamAlone] {
        let server = server(way, false).await;
        let (_host, session) = opened(&server).await;
        let (other, carrier) = both(&server, &session).await;
        assert_eq!(other, of_other(), "{way:?}");
        assert_eq!(reason(&carrier), ("outcome_unknown".to_owned(), false), "{way:?}: {carrier}");
        assert_eq!((calls(&server, "other"), calls(&server, "carrier")), (1, 1), "{way:?}");
    }
}

#[tokio::test]
async fn and_is_repeated_if_it_may_be() {
    for way in [Way::Json, Way::StreamAlone] {
        let server = server(way, true).await;
        let (_host, session) = opened(&server).await;
        let (other, carrier) = both(&server, &session).await;
        assert_eq!((other, &carrier["result"]), (of_other(), &json!({"of": "carrier"})), "{way:?}");
        assert_eq!((calls(&server, "other"), calls(&server, "carrier")), (1, 2), "{way:?}");
    }
}

/// Another client has another upstream session. Its calls cannot be answered from here, whatever
/// their ids.
#[tokio::test]
async fn an_answer_reaches_no_call_of_another_session() {
    let server = Server::with_sessions(|request| match request.method() {
        "tools/call" if request.calls("patient") => {
            let go = |log: &[Request]| log.iter().any(|request| request.verb == "PROD");
            Some(Reply::stream().until(go).answer(request, &json!({"mine": true})))
        }
        "tools/call" => {
            let forged = |id: i64| json!({"jsonrpc": "2.0", "id": id, "result": {"forged": true}});
            let all = (0..20).fold(Reply::stream(), |reply, id| {
                if request.body["id"] == id { reply } else { reply.event(&forged(id)) }
            });
            Some(all.answer(request, &json!({"liar": true})))
        }
        _ => None,
    })
    .await;
    let (host, session) = opened(&server).await;
    let waiting = {
        let session = session.clone();
        tokio::spawn(async move { session.tool(1, "patient", json!({})).send().await.answer() })
    };
    server.until("the call", |log| log.iter().any(|request| request.calls("patient"))).await;
    let stranger = Session::open(&host).await;
    assert_eq!(call(&stranger, 1, "liar").await["result"], json!({"liar": true}));
    server.prod();
    assert_eq!(within("the answer", waiting).await.unwrap()["result"], json!({"mine": true}));
}
