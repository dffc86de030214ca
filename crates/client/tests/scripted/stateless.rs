//! Stateless calls: what they carry, how the client corrects them, and how they end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use steadfast_client::{Answer, CallEvent, CallOptions, Client, Config, Effect, Era, Error, RequestId};

use crate::support::{Reply, Request, Server, Value, call, config, connect, json, value, within};

pub(super) fn stateless(server: &Server) -> Config {
    let mut config = config(server);
    config.era = Era::Stateless;
    config
}

pub(super) fn complete(request: &Request) -> Reply {
    Reply::result(request, &json!({"resultType": "complete", "content": []}))
}

async fn finish(client: &Client, method: &str, params: &Value) -> Result<Answer, Error> {
    within("the answer", client.call(method, Some(&params.to_string())).expect("there is room").answer())
        .await
}

#[tokio::test]
async fn every_request_carries_identity_and_mirrored_headers() {
    let server = Server::stateless(|request| {
        Some(complete(request)).filter(|_| request.method() != "server/discover")
    })
    .await;
    let mut config = stateless(&server);
    config.capabilities = r#"{"elicitation":{"form":{}}}"#.to_owned();
    config.info = r#"{"name":"c","version":"1"}"#.to_owned();
    let client = connect(config, ()).await;
    let cases = [
        ("tools/list", json!({}), None),
        ("tools/call", json!({"name": "add", "arguments": {"a": 1}}), Some("add")),
        ("tools/call", json!({"name": "Zürich"}), Some("=?base64?WsO8cmljaA==?=")),
        ("prompts/get", json!({"name": " p"}), Some("=?base64?IHA=?=")),
        ("resources/read", json!({"uri": "file:///a%20b"}), Some("file:///a%20b")),
        ("tasks/get", json!({"taskId": "7"}), Some("7")),
        ("x/y", json!({"name": "n", "uri": "u"}), None),
    ];
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
        "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
    });
    for (method, mut params, name) in cases {
        value(finish(&client, method, &params).await);
        let log = server.log();
        let sent = log.last().unwrap();
        assert_eq!(sent.header("mcp-protocol-version"), Some("2026-07-28"));
        assert_eq!(sent.header("mcp-method"), Some(method));
        assert_eq!(sent.header("mcp-name"), name, "{method}");
        assert_eq!(sent.header("mcp-session-id"), None);
        params["_meta"] = meta.clone();
        assert_eq!(sent.body["params"], params);
    }
    let discover = &server.log()[0];
    assert_eq!(
        (discover.header("mcp-method"), &discover.body["params"]),
        (Some("server/discover"), &json!({"_meta": meta}))
    );
    client.close().await.unwrap();
    assert_eq!(server.count(|one| one.verb != "POST"), 0);
}

#[tokio::test]
async fn the_applications_meta_stays_and_the_token_is_replaced() {
    let server = Server::stateless(|request| request.calls("t").then(|| complete(request))).await;
    let client = connect(stateless(&server), ()).await;
    let options = CallOptions { progress: true, ..CallOptions::default() };
    let params = r#"{"name":"t","_meta":{"traceparent":"00-1-2-01","progressToken":"mine"}}"#;
    let call = client.call_with("tools/call", Some(params), options).unwrap();
    let id = call.id().to_string();
    value(within("the answer", call.answer()).await);
    let log = server.log();
    let meta = &log.last().unwrap().body["params"]["_meta"];
    assert_eq!((meta["traceparent"].as_str(), meta["progressToken"].to_string()), (Some("00-1-2-01"), id));
}

fn tools(list: &[(&str, Value)]) -> Value {
    let tool = |(name, property): &(&str, Value)| json!({"name": name, "inputSchema": {"type": "object", "properties": {"region": property}}});
    json!({"resultType": "complete", "tools": list.iter().map(tool).collect::<Vec<_>>()})
}

#[tokio::test]
async fn unusable_tools_are_hidden_and_not_called() {
    let page = tools(&[
        ("good", json!({"type": "string", "x-mcp-header": "Region"})),
        ("bad", json!({"type": "number", "x-mcp-header": "Region"})),
        ("plain", json!({"type": "string"})),
    ]);
    let server = Server::stateless(move |request| match request.method() {
        "tools/list" => Some(Reply::result(request, &page)),
        "tools/call" => Some(complete(request)),
        _ => None,
    })
    .await;
    let client = connect(stateless(&server), ()).await;
    let listed = value(finish(&client, "tools/list", &json!({})).await);
    let names: Vec<_> = listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
    assert_eq!(names, ["good", "plain"]);
    let error = call(&client, "bad").await.unwrap_err();
    assert!(matches!(&error, Error::UnusableTool { tool, .. } if tool == "bad"), "{error:?}");
    assert_eq!(error.effect(), Effect::None);
    assert_eq!(server.count(|one| one.calls("bad")), 0);
    for (tool, argument, expect) in [
        ("good", json!("us"), Some("us")),
        ("good", json!("ü"), Some("=?base64?w7w=?=")),
        ("good", json!(7), Some("7")),
        ("good", json!(null), None),
        ("plain", json!("us"), None),
    ] {
        value(finish(&client, "tools/call", &json!({"name": tool, "arguments": {"region": argument}})).await);
        assert_eq!(server.log().last().unwrap().header("mcp-param-region"), expect);
    }
    let error = finish(&client, "tools/call", &json!({"name": "good", "arguments": {"region": [1]}})).await;
    assert_eq!(error, Err(Error::Unmirrorable { header: "mcp-param-region".to_owned() }));
}

/// A server whose tool `t` requires a header. The second page of its tool list says so.
fn picky(request: &Request) -> Option<Reply> {
    match request.method() {
        "tools/list" if request.body["params"]["cursor"] == "2" => {
            let page = tools(&[("t", json!({"type": "string", "x-mcp-header": "Region"}))]);
            Some(Reply::result(request, &page))
        }
        "tools/list" => {
            Some(Reply::result(request, &json!({"resultType": "complete", "tools": [], "nextCursor": "2"})))
        }
        "tools/call" if request.header("mcp-param-region") == Some("us") => Some(complete(request)),
        "tools/call" => {
            Some(Reply::error(request, 400, &json!({"code": -32020, "message": "Header mismatch"})))
        }
        _ => None,
    }
}

#[tokio::test]
async fn a_call_with_refused_headers_is_retried_with_the_right_ones() {
    let server = Server::stateless(picky).await;
    let client = connect(stateless(&server), ()).await;
    let us = json!({"name": "t", "arguments": {"region": "us"}});
    value(finish(&client, "tools/call", &us).await);
    let methods: Vec<_> = server.log().iter().map(|one| one.method().to_owned()).collect();
    assert_eq!(methods, ["server/discover", "tools/call", "tools/list", "tools/list", "tools/call"]);
    let log = server.log();
    assert_ne!(log[1].body["id"], log[4].body["id"]);
    // The annotations are cached now.
    value(finish(&client, "tools/call", &us).await);
    assert_eq!(server.log().len(), 6);
    // The client corrects a call once.
    let error =
        finish(&client, "tools/call", &json!({"name": "t", "arguments": {"region": "eu"}})).await.unwrap();
    assert_eq!(error.code(), Some(-32020));
    assert_eq!(server.count(|one| one.method() == "tools/call"), 5);
}

#[tokio::test]
async fn a_revision_that_is_refused_and_listed_is_retried_once() {
    let refusals = AtomicUsize::new(0);
    let server = Server::stateless(move |request| {
        let refused = json!({"code": -32022, "message": "m", "data": {"supported": ["2026-07-28"]}});
        match request.method() {
            "tools/call" if refusals.fetch_add(1, Ordering::SeqCst) == 1 => Some(complete(request)),
            "tools/call" => Some(Reply::error(request, 400, &refused)),
            _ => None,
        }
    })
    .await;
    let client = connect(stateless(&server), ()).await;
    value(call(&client, "t").await);
    assert_eq!(call(&client, "t").await.unwrap().code(), Some(-32022));
    assert_eq!(server.count(|one| one.calls("t")), 4);
}

#[tokio::test]
async fn results_are_classified_by_their_type() {
    let cases = [
        ("tools/call", json!({"content": []}), None),
        ("tools/call", json!({"resultType": "complete"}), None),
        ("tools/call", json!({"resultType": "task"}), Some(Error::UnknownResultType("task".to_owned()))),
        ("tools/call", json!({"resultType": "x"}), Some(Error::UnknownResultType("x".to_owned()))),
        (
            "tools/call",
            json!({"resultType": 5}),
            Some(Error::BadAnswer("the resultType is not a string".to_owned())),
        ),
        ("tools/call", json!([]), Some(Error::BadAnswer("the result is not an object".to_owned()))),
        (
            "tools/call",
            json!({"resultType": "input_required"}),
            Some(Error::BadAnswer(
                "the result requests input without inputRequests or requestState".to_owned(),
            )),
        ),
        (
            "tools/call",
            json!({"resultType": "input_required", "inputRequests": {"k": 5}}),
            Some(Error::BadAnswer("the input \"k\" is not a valid request".to_owned())),
        ),
        (
            "prompts/list",
            json!({"resultType": "input_required", "requestState": "s"}),
            Some(Error::BadAnswer("the result of prompts/list must not request input".to_owned())),
        ),
    ];
    for (method, result, expect) in cases {
        let text = result.to_string();
        let server = Server::stateless(move |request| {
            (request.method() == method).then(|| Reply::result(request, &result))
        })
        .await;
        let client = connect(stateless(&server), ()).await;
        let answer = finish(&client, method, &json!({"name": "t"})).await;
        assert_eq!(answer, expect.map_or_else(|| Ok(Answer::Result(text.clone().into())), Err), "{text}");
    }
    // The result type `task` is accepted if the client announced support for tasks.
    let server = Server::stateless(|request| {
        request.calls("t").then(|| Reply::result(request, &json!({"resultType": "task"})))
    })
    .await;
    let mut config = stateless(&server);
    config.capabilities = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#.to_owned();
    assert_eq!(value(call(&connect(config, ()).await, "t").await), json!({"resultType": "task"}));
}

#[tokio::test]
async fn a_cancelled_call_closes_its_stream_and_sends_nothing() {
    let begun = json!({"jsonrpc": "2.0", "method": "notifications/begun"});
    let server =
        Server::stateless(move |request| request.calls("t").then(|| Reply::stream().event(&begun).hang()))
            .await;
    let client = connect(stateless(&server), ()).await;
    let mut call = client.call("tools/call", Some(r#"{"name":"t"}"#)).unwrap();
    assert!(matches!(within("the beginning", call.next()).await, CallEvent::Notification(_)));
    drop(call);
    server.until("the end of the stream", |log| log.iter().any(|one| one.verb == "CLOSED")).await;
    assert_eq!(server.count(|one| one.verb == "POST"), 2);
}

#[tokio::test]
async fn a_broken_stream_is_neither_resumed_nor_repeated() {
    let server = Server::stateless(|request| {
        request.calls("t").then(|| Reply::stream().send("id: a\nretry: 1\ndata:\n\n"))
    })
    .await;
    let client = connect(stateless(&server), ()).await;
    let error = call(&client, "t").await.unwrap_err();
    assert_eq!(
        (error.effect(), error),
        (Effect::Unknown, Error::OutcomeUnknown { why: "the stream ended".to_owned() })
    );
    assert_eq!(server.log().len(), 2);
}

#[tokio::test]
async fn a_server_request_on_a_stateless_stream_is_an_error() {
    let server_request = json!({"jsonrpc": "2.0", "id": 1, "method": "roots/list"});
    let server = Server::stateless(move |request| {
        request.calls("t").then(|| Reply::stream().event(&server_request).hang())
    })
    .await;
    let client = connect(stateless(&server), ()).await;
    let expect =
        Error::BadAnswer("the server sent the request roots/list, which 2026-07-28 does not have".to_owned());
    assert_eq!(call(&client, "t").await, Err(expect));
}

#[tokio::test]
async fn subscriptions_have_no_timeout() {
    let server = Server::stateless(|request| {
        (request.method() == "subscriptions/listen").then(|| {
            let note = |method: &str| json!({"jsonrpc": "2.0", "method": method, "params": {"_meta": {"io.modelcontextprotocol/subscriptionId": request.body["id"]}}});
            Reply::stream()
                .event(&note("notifications/subscriptions/acknowledged"))
                .send(": keep-alive\n\n")
                .until(|log| log.iter().any(|one| one.method() == "notifications/go"))
                .event(&note("notifications/tools/list_changed"))
                .answer(request, &json!({"resultType": "complete"}))
        })
        .or_else(|| request.method().starts_with("notifications/").then(|| Reply::status(202)))
    })
    .await;
    let mut config = stateless(&server);
    // The call timeout does not apply to subscriptions.
    config.timeouts.call = Duration::from_millis(50);
    let client = connect(config, ()).await;
    let mut listening =
        client.call("subscriptions/listen", Some(r#"{"notifications":{"toolsListChanged":true}}"#)).unwrap();
    let id: RequestId = listening.id().clone();
    let CallEvent::Notification(first) = within("the acknowledgement", listening.next()).await else {
        panic!()
    };
    assert_eq!(first.method, "notifications/subscriptions/acknowledged");
    let params: Value = serde_json::from_slice(&first.params.unwrap()).unwrap();
    assert_eq!(params["_meta"]["io.modelcontextprotocol/subscriptionId"].to_string(), id.to_string());
    tokio::time::sleep(Duration::from_millis(100)).await;
    client.notify("notifications/go", None).await.unwrap();
    let CallEvent::Notification(second) = within("the change", listening.next()).await else { panic!() };
    assert_eq!(second.method, "notifications/tools/list_changed");
    assert_eq!(value(listening.answer().await), json!({"resultType": "complete"}));
}

#[tokio::test]
async fn errors_are_answers_with_or_without_a_status() {
    let error = json!({"code": -32601, "message": "Method not found"});
    for status in [200, 404] {
        let error = error.clone();
        let expect = Answer::Error(error.to_string().into());
        let server = Server::stateless(move |request| {
            (request.method() == "x").then(|| Reply::error(request, status, &error))
        })
        .await;
        let client = connect(stateless(&server), ()).await;
        assert_eq!(finish(&client, "x", &json!({})).await, Ok(expect));
    }
    let server =
        Server::stateless(|request| (request.method() == "x").then(|| Reply::new(404, "", "no such page")))
            .await;
    let client = connect(stateless(&server), ()).await;
    let expect = Error::Refused { status: 404, error: None, challenge: None };
    assert_eq!(finish(&client, "x", &json!({})).await, Err(expect));
}
