//! What a server asks while it works on a call.

use crate::support::server::{Reply, Request, Server};
use crate::support::{Backing, Host, Session, Value, json};

use super::opened;

/// A question as servers ask it.
fn server_request(id: impl Into<Value>, message: &str) -> Value {
    let id = id.into();
    json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": {"message": message, "n": 1.5}})
}

fn answers(log: &[Request]) -> usize {
    log.iter().filter(|request| request.is_answer()).count()
}

#[tokio::test]
async fn asks_come_out_on_the_stream_of_their_call_all_at_once() {
    let server = Server::with_sessions(|request| {
        let tool = request.body["params"]["name"].as_str()?.to_owned();
        let server_requests = (0..5).map(|no| server_request(format!("{tool}{no}"), &format!("{tool}{no}")));
        let reply =
            server_requests.fold(Reply::stream(), |reply, server_request| reply.event(&server_request));
        Some(reply.until(|log| answers(log) == 10).answer(request, &json!({})))
    })
    .await;
    let (_host, session) = opened(&server).await;
    let mut streams = [
        ("a", session.tool(1, "a", json!({})).stream().await),
        ("b", session.tool(2, "b", json!({})).stream().await),
    ];
    let mut open = Vec::new();
    for (tool, stream) in &mut streams {
        for no in 0..5 {
            let asked = stream.message().await;
            assert_eq!(asked["params"], json!({"message": format!("{tool}{no}"), "n": 1.5}));
            open.push((format!("{tool}{no}"), asked["id"].clone()));
        }
    }
    // The last is answered first, and each gets its own.
    for (name, id) in open.iter().rev() {
        assert_eq!(session.answer(id, json!({"content": name})).await.status, 202);
    }
    for (_, stream) in &mut streams {
        assert_eq!(stream.messages().await.len(), 1);
    }
    let log = server.log();
    let mut told: Vec<_> =
        log.iter().filter(|request| request.is_answer()).map(|request| &request.body).collect();
    told.sort_by_key(|body| body["id"].to_string());
    let expect: Vec<_> = open
        .iter()
        .map(|(name, _)| json!({"jsonrpc": "2.0", "id": name, "result": {"content": name}}))
        .collect();
    assert_eq!(told, expect.iter().collect::<Vec<_>>());
}

/// Answers are passed on as they came: odd numbers, escapes, and errors with their data.
#[tokio::test]
async fn answers_reach_the_server_as_they_are() {
    let server = Server::with_sessions(|request| {
        request.calls("t").then(|| {
            let reply = Reply::stream().event(&server_request(1, "one")).event(&server_request("1", "two"));
            reply.until(|log| answers(log) == 2).answer(request, &json!({}))
        })
    })
    .await;
    let (_host, session) = opened(&server).await;
    let mut stream = session.tool(1, "t", json!({})).stream().await;
    let (one, two) = (stream.message().await["id"].clone(), stream.message().await["id"].clone());
    let post = |body: String| session.with_headers(session.http.post_bytes(body));
    let result = r#"{ "a":1.50,"a":2,"u":"\u00e9" }"#;
    assert_eq!(post(format!(r#"{{"jsonrpc":"2.0","id":{one},"result":{result}}}"#)).send().await.status, 202);
    server.until("the first answer", |log| answers(log) == 1).await;
    let error = r#"{"code":-1,"message":"no","data":{"n":1.50}}"#;
    assert_eq!(post(format!(r#"{{"jsonrpc":"2.0","id":{two},"error":{error}}}"#)).send().await.status, 202);
    stream.messages().await;
    let texts: Vec<_> =
        server.log().into_iter().filter(Request::is_answer).map(|request| request.text).collect();
    assert_eq!(
        texts,
        [
            format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":"1","error":{error}}}"#),
        ]
    );
}

#[tokio::test]
async fn a_server_that_gives_up_an_ask_lets_the_client_know() {
    let server = Server::with_sessions(|request| {
        request.calls("t").then(|| {
            let cancelled =
                json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "x"}});
            let go = |log: &[Request]| log.iter().any(|request| request.method() == "notifications/go");
            let reply = Reply::stream()
                .event(&server_request("x", "one"))
                .event(&server_request("y", "two"))
                .until(go)
                .event(&cancelled);
            reply.until(|log| answers(log) == 1).answer(request, &json!({}))
        })
    })
    .await;
    let (_host, session) = opened(&server).await;
    let mut stream = session.tool(1, "t", json!({})).stream().await;
    let (one, two) = (stream.message().await["id"].clone(), stream.message().await["id"].clone());
    session.notify("notifications/go", json!({})).await;
    let told = stream.message().await;
    assert_eq!((&told["method"], &told["params"]["requestId"]), (&json!("notifications/cancelled"), &one));
    assert_eq!(session.answer(&one, json!({})).await.status, 400, "the server no longer waits for it");
    assert_eq!(session.answer(&two, json!({"kept": true})).await.status, 202);
    assert_eq!(stream.messages().await.len(), 1);
    let answers: Vec<_> =
        server.log().into_iter().filter(Request::is_answer).map(|r| r.body["id"].clone()).collect();
    assert_eq!(answers, [json!("y")]);
}

#[tokio::test]
async fn a_client_that_cancels_its_call_withdraws_what_was_asked_for_it() {
    let server = Server::with_sessions(|request| {
        request.calls("t").then(|| Reply::stream().event(&server_request(9, "one")).hang())
    })
    .await;
    let (_host, session) = opened(&server).await;
    let mut stream = session.tool(1, "t", json!({})).stream().await;
    let asked = stream.message().await["id"].clone();
    assert_eq!(session.cancel(1).await.status, 202);
    let told = stream.messages().await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        (&told[0]["method"], &told[0]["params"]["requestId"]),
        (&json!("notifications/cancelled"), &asked)
    );
    let call = server.log().into_iter().find(|request| request.calls("t")).unwrap().body["id"].clone();
    let cancelled = |log: &[Request]| log.iter().any(|request| request.body["params"]["requestId"] == call);
    server.until("the cancellation", cancelled).await;
    assert_eq!(session.answer(&asked, json!({})).await.status, 400);
}

/// Asks and notifications of one stream come out in the order in which the server sent them.
#[tokio::test]
async fn asks_keep_their_place_among_the_messages_of_their_call() {
    let told = |no: u32| json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": no}});
    let server = Server::with_sessions(move |request| {
        request.calls("t").then(|| {
            let reply = (0..20).fold(Reply::stream(), |reply, no| {
                reply.event(&server_request(no, &no.to_string())).event(&told(no))
            });
            reply.until(|log| answers(log) == 20).answer(request, &json!({}))
        })
    })
    .await;
    let (_host, session) = opened(&server).await;
    let mut stream = session.tool(1, "t", json!({})).stream().await;
    for no in 0..20 {
        let asked = stream.message().await;
        assert_eq!(asked["params"]["message"], no.to_string(), "{asked}");
        assert_eq!(stream.message().await, told(no));
        session.answer(&asked["id"], json!({})).await;
    }
    assert_eq!(stream.messages().await.len(), 1);
}

/// A server request that waits until its call has ended belongs to no call. The gateway must not
/// attach it to another one.
#[tokio::test]
async fn an_ask_does_not_move_to_another_call() {
    let server = Server::with_sessions(|request| match request.body["params"]["name"].as_str()? {
        "first" => {
            let go = |log: &[Request]| log.iter().any(|request| request.method() == "notifications/go");
            Some(
                Reply::stream()
                    .event(&server_request("early", "early"))
                    .until(go)
                    .answer(request, &json!({})),
            )
        }
        "over" => Some(Reply::stream().event(&server_request("late", "late")).answer(request, &json!({}))),
        _ => None,
    })
    .await;
    let host = Host::before(Backing::Memory, [server.url()], |builder| {
        builder.upstream(|config| config.limits.server_requests = 1)
    })
    .await;
    let session = Session::open(&host).await;
    let mut first = session.tool(1, "first", json!({})).stream().await;
    let early = first.message().await["id"].clone();
    let over = session.tool(2, "over", json!({})).send().await.messages();
    assert_eq!(over.len(), 1, "there is room for one ask: {over:?}");
    assert_eq!(session.answer(&early, json!({})).await.status, 202);
    server.until("both answers", |log| answers(log) == 2).await;
    let late = server.log().into_iter().rfind(Request::is_answer).unwrap().body;
    assert_eq!(
        (&late["id"], &late["error"]["data"]["reason"]),
        (&json!("late"), &json!("server_request_withdrawn"))
    );
    session.notify("notifications/go", json!({})).await;
    let heard = first.messages().await;
    assert_eq!(heard.len(), 1, "{heard:?}");
}
