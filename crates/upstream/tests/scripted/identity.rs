//! Ids and tokens are ours on the way to the server and the client's own on the way back;
//! everything else stays as it is.

use std::collections::BTreeSet;

use crate::support::server::{Reply, Request, Server};
use crate::support::{Session, Stream, Value, json};

use super::{gateway, opened};

const ODD_PARAMS: &str = r#"{"name":"t", "arguments":{"n":1.50,"n":1e2,"e":"\u00e9\/ü","z":-0.0,"b":12345678901234567890123},"x":[ 1 ]}"#;
const ODD_RESULT: &str =
    r#"{ "content":[],"n":1.50,"n":2,"e":"\u00e9\/ü","deep":{"id":7,"progressToken":1},"b":1E400 }"#;
const ODD_ERROR: &str = r#"{"code":-32042,"message":"no é","data":{"n":1.50,"n":1,"why":[null, "\u00e9"]}}"#;

fn token(request: &Request) -> &Value {
    &request.body["params"]["_meta"]["progressToken"]
}

#[tokio::test]
async fn params_and_results_are_passed_on_byte_for_byte() {
    let server = Server::with_sessions(|request| {
        let id = &request.body["id"];
        let body = match request.body["params"]["name"].as_str()? {
            "t" => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{ODD_RESULT}}}"#),
            _ => format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{ODD_ERROR}}}"#),
        };
        Some(Reply::new(200, "content-type: application/json\r\n", &body))
    })
    .await;
    let (_host, session) = opened(&server).await;
    let post = |body: String| session.with_headers(session.http.post_bytes(body));
    let body = format!(r#"{{"jsonrpc":"2.0","id":"x/1","method":"tools/call","params":{ODD_PARAMS}}}"#);
    let reply = post(body).send().await.text();
    assert!(
        reply.contains(&format!("data: {{\"jsonrpc\":\"2.0\",\"id\":\"x/1\",\"result\":{ODD_RESULT}}}\n\n")),
        "{reply}"
    );
    let sent = server.log().into_iter().find(|request| request.calls("t")).unwrap();
    assert!(
        sent.text.ends_with(&format!(r#","method":"tools/call","params":{ODD_PARAMS}}}"#)),
        "{}",
        sent.text
    );

    let body = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"no"}}"#.to_owned();
    let reply = post(body).send().await.text();
    assert!(reply.contains(&format!(r#""id":2,"error":{ODD_ERROR}}}"#)), "{reply}");
}

/// With a token of the client's the parameters are put together anew; nothing but the token is
/// different.
#[tokio::test]
async fn params_with_a_token_differ_by_the_token_alone() {
    let server = Server::with_sessions(|request| {
        (request.method() == "tools/call").then(|| Reply::result(request, &json!({})))
    })
    .await;
    let (_host, session) = opened(&server).await;
    let params = r#"{"name":"t","arguments":{"progressToken":"mine","n":1.50,"n":2},"_meta":{"a":1.0,"progressToken":"é","b":[ ]}}"#;
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
    session.with_headers(session.http.post_bytes(body)).send().await.answer();
    let sent = server.log().into_iter().find(|request| request.calls("t")).unwrap();
    let ours = sent.body["id"].to_string();
    let expect = params.replace(r#""progressToken":"é""#, &format!(r#""progressToken":{ours}"#));
    assert!(sent.text.ends_with(&format!(r#""params":{expect}}}"#)), "{}", sent.text);
}

/// A server that tells of progress and answers when all calls are there.
async fn telling(count: usize) -> Server {
    Server::with_sessions(move |request| {
        request.calls("t").then(|| {
            let told = json!({"jsonrpc": "2.0", "method": "notifications/progress",
                "params": {"progressToken": token(request), "progress": 1.5, "message": request.body["params"]["arguments"]["no"]}});
            let all = move |log: &[Request]| log.iter().filter(|request| request.calls("t")).count() == count;
            let result = json!({"no": request.body["params"]["arguments"]["no"]});
            let reply = Reply::stream().until(all);
            match token(request) {
                Value::Null => reply,
                _ => reply.event(&told),
            }
            .answer(request, &result)
        })
    })
    .await
}

fn with_token(id: &Value, token: &Value, no: usize) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params":
        {"name": "t", "arguments": {"no": no}, "_meta": {"progressToken": token}}})
}

async fn check(mut stream: Stream, id: &Value, token: &Value, no: usize) {
    let messages = stream.messages().await;
    let told = json!({"jsonrpc": "2.0", "method": "notifications/progress",
        "params": {"progressToken": token, "progress": 1.5, "message": no}});
    assert_eq!(messages, [told, json!({"jsonrpc": "2.0", "id": id, "result": {"no": no}})]);
}

#[tokio::test]
async fn equal_ids_and_tokens_of_two_sessions_do_not_meet() {
    let server = telling(6).await;
    let host = gateway(&server).await;
    let (mine, other) = (Session::open(&host).await, Session::open(&host).await);
    let mut streams = Vec::new();
    let names = [(json!(1), json!("1")), (json!("1"), json!(1)), (json!("é"), json!("tok/en"))];
    for (no, (id, token)) in names.iter().enumerate() {
        for (plus, session) in [(0, &mine), (10, &other)] {
            let no = no + plus;
            streams.push((session.post(&with_token(id, token, no)).stream().await, id, token, no));
        }
    }
    for (stream, id, token, no) in streams {
        check(stream, id, token, no).await;
    }
    for which in ["s1", "s2"] {
        let log = server.log();
        let sent = log
            .iter()
            .filter(|request| request.calls("t") && request.header("mcp-session-id") == Some(which));
        let sent: Vec<_> =
            sent.map(|request| (request.body["id"].to_string(), token(request).to_string())).collect();
        assert_eq!(sent.len(), 3);
        assert_eq!(sent.iter().map(|(id, _)| id).collect::<BTreeSet<_>>().len(), 3, "{sent:?}");
        assert!(sent.iter().all(|(id, token)| id == token), "a token of ours is the id: {sent:?}");
    }
}

#[tokio::test]
async fn two_hundred_calls_at_once_get_their_own_answers() {
    let server = telling(200).await;
    let (_host, session) = opened(&server).await;
    let calls: Vec<_> = (0..200)
        .map(|no| {
            let session = session.clone();
            tokio::spawn(async move {
                let id = if no % 2 == 0 { json!(no) } else { json!(no.to_string()) };
                let stream = session.post(&with_token(&id, &json!("same"), no)).stream().await;
                check(stream, &id, &json!("same"), no).await;
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
}

/// Progress for a token that no call has reaches no client. Progress for the token of another call
/// of the session reaches only that call.
#[tokio::test]
async fn progress_reaches_its_own_call_on_whatever_stream_it_comes() {
    let server = Server::with_sessions(|request| {
        let progress = |token: Value| json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}});
        let both = |log: &[Request]| log.iter().filter(|request| request.method() == "tools/call").count() == 2;
        let is_b = |request: &Request| request.calls("b");
        match request.body["params"]["name"].as_str()? {
            // Reports progress for the other call, whose number is the next, for a token that no
            // call has, and for a token of another type.
            "a" => {
                let id = request.body["id"].as_i64().unwrap();
                let told = move |reply: Reply, token| reply.event(&progress(token));
                let reply = told(told(told(Reply::stream().until(both), json!(id + 1)), json!(id + 77)), json!((id + 1).to_string()));
                Some(reply.answer(request, &json!({})))
            }
            "b" => Some(Reply::stream().until(move |log| log.iter().any(is_b)).until(|log| log.iter().any(|r| r.method() == "notifications/go")).answer(request, &json!({}))),
            _ => None,
        }
    })
    .await;
    let (_host, session) = opened(&server).await;
    let mut a = session.tool("a", "a", json!({})).stream().await;
    server.until("a", |log| log.iter().any(|request| request.calls("a"))).await;
    let mut b = session.tool("b", "b", json!({})).stream().await;
    let messages = a.messages().await;
    assert_eq!(messages.len(), 1, "{messages:?}");
    let told = b.message().await;
    assert_eq!(told["params"], json!({"progressToken": "b", "progress": 1}));
    assert_eq!(session.notify("notifications/go", json!({})).await.status, 202);
    assert_eq!(b.messages().await.len(), 1);
}
