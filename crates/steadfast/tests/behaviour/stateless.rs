//! 2026-07-28: what requests without a session are answered with.

use std::time::Duration;

use crate::support::session::said;
use crate::support::{Backing, Frame, Host, Modern, Reply, Session, Value, json};

const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// A host whose responses do not depend on how long the requests take.
async fn host() -> Host {
    Host::start(Backing::Memory, |builder| builder.resume_grace(Duration::ZERO)).await
}

fn content_type(reply: &Reply) -> &str {
    reply.header("content-type").unwrap_or_default()
}

#[tokio::test]
async fn every_result_says_what_it_is_and_who_gave_it() {
    let host = host().await;
    host.gates.mark("prompts");
    let client = Modern::to(&host).able(json!({"elicitation": {}}));
    for (method, params, result_type, cached) in [
        ("server/discover", json!({}), "complete", true),
        ("tools/list", json!({}), "complete", true),
        ("prompts/list", json!({}), "complete", true),
        ("resources/list", json!({}), "complete", true),
        ("resources/templates/list", json!({}), "complete", true),
        ("resources/read", json!({"uri": "test:a"}), "complete", true),
        ("resources/read", json!({"uri": "test:input"}), "input_required", false),
        ("tools/call", json!({"name": "echo"}), "complete", false),
        ("tools/call", json!({"name": "input"}), "input_required", false),
    ] {
        let reply = client.ask("x", method, params).await;
        let answer = reply.json();
        assert_eq!((reply.status, content_type(&reply)), (200, "application/json"), "{method}");
        assert_eq!(reply.header("mcp-session-id"), None, "{method}");
        assert_eq!((&answer["id"], &answer["jsonrpc"]), (&json!("x"), &json!("2.0")));
        let result = &answer["result"];
        assert_eq!(result["resultType"], result_type, "{method}");
        assert_eq!(result["_meta"][SERVER_INFO]["name"], "rmcp", "{method}: {result}");
        let hints = (result.get("ttlMs"), result.get("cacheScope"));
        let expect = cached.then(|| (json!(0), json!("private")));
        let expect = expect.as_ref().map_or((None, None), |(ttl, scope)| (Some(ttl), Some(scope)));
        assert_eq!(hints, expect, "{method}");
    }
}

#[tokio::test]
async fn discovery_tells_what_is_served() {
    let host = host().await;
    let result = Modern::to(&host).ask(1, "server/discover", json!({})).await.json()["result"].clone();
    let versions: Vec<&str> =
        result["supportedVersions"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    for known in ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"] {
        assert!(versions.contains(&known), "{versions:?}");
    }
    assert!(!versions.contains(&"2024-11-05"), "{versions:?}");
    assert_eq!(
        result["capabilities"],
        json!({"logging": {}, "tools": {"listChanged": true}, "resources": {"subscribe": true, "listChanged": true},
               "extensions": {"io.modelcontextprotocol/tasks": {}}})
    );
}

#[tokio::test]
async fn a_version_that_is_not_served_is_told_which_are() {
    let host = host().await;
    let supported =
        Modern::to(&host).ask(1, "server/discover", json!({})).await.json()["result"]["supportedVersions"]
            .clone();
    for version in ["v999.0.0", "2025-11-25", &"9".repeat(100)] {
        let client = Modern::to(&host).meta("io.modelcontextprotocol/protocolVersion", version);
        let request = client.tool(1, "echo", json!({})).header("MCP-Protocol-Version", version);
        let reply = request.send().await;
        assert_eq!(reply.refusal(), (400, -32022), "{version}");
        let requested: String = version.chars().take(40).collect();
        let data = reply.json()["error"]["data"].clone();
        assert_eq!(data, json!({"supported": ["2026-07-28"], "requested": requested}));
        assert!(supported.as_array().expect("a list").contains(&data["supported"][0]));
    }
}

#[tokio::test]
async fn an_answer_goes_out_plain_unless_something_is_said_before() {
    let host = host().await;
    let client = Modern::to(&host);
    let eager = client.clone().meta("progressToken", "p");
    let logging = client.clone().log_level("info");
    for (client, tool, arguments, stream) in [
        (&client, "echo", json!({}), false),
        (&client, "big", json!({"bytes": 300_000}), false),
        // The client asked for no progress and no log messages.
        (&client, "progress", json!({"n": 3}), false),
        (&client, "levels", json!({}), false),
        (&eager, "echo", json!({}), false),
        (&eager, "progress", json!({"n": 3}), true),
        (&logging, "levels", json!({}), true),
    ] {
        let reply = client.tool(1, tool, arguments).send().await;
        assert_eq!((reply.status, reply.is_stream()), (200, stream), "{tool}: {}", reply.text());
        assert!(reply.answer()["result"].is_object(), "{tool}");
        assert_eq!(reply.header("x-accel-buffering"), stream.then_some("no"));
        if stream {
            assert_eq!(reply.header("cache-control"), Some("no-cache, no-transform"));
        }
    }
}

#[tokio::test]
async fn a_stream_has_nothing_to_come_back_to() {
    let host = host().await;
    let client = Modern::to(&host).meta("progressToken", 7);
    let steps = json!({"steps": ["progress", "gate:a", "progress"], "text": "end"});
    let mut stream = client.tool(1, "steps", steps).header("Last-Event-ID", "1-1-abc").stream().await;
    let mut frames = vec![stream.next().await.expect("progress")];
    host.gates.open("a");
    frames.extend(stream.rest().await);
    assert_eq!(frames.len(), 3, "{frames:?}");
    for frame in &frames {
        assert_eq!((&frame.id, frame.retry, frame.is_priming()), (&None, None, false), "{frame:?}");
        assert!(matches!(frame.event.as_deref(), None | Some("message")), "{frame:?}");
        assert!(frame.data.as_deref().is_some_and(|data| !data.is_empty()), "{frame:?}");
    }
    assert_eq!(said(&frames[2].message().expect("the answer")), "end");
    assert!(stream.headers.iter().all(|(name, _)| name != "mcp-session-id"));
}

/// Refusals have a status, failures of the handler are in band; behind the head of a stream all
/// are.
#[tokio::test]
async fn errors_have_the_status_that_the_protocol_gives_them() {
    let host = host().await;
    let client = Modern::to(&host).meta("progressToken", 7);
    for (code, status, said) in [
        (-32601, 404, -32601),
        (-32600, 400, -32600),
        (-32020, 400, -32020),
        (-32021, 400, -32021),
        (-32022, 400, -32022),
        (-32602, 200, -32602),
        (-32603, 200, -32603),
        (1234, 200, 1234),
        // Old revisions have codes of their own for a missing resource and for a URL to visit.
        (-32002, 200, -32602),
        (-32042, 200, -32603),
    ] {
        let fail = format!("fail:{code}");
        let reply = client.tool("e", "steps", json!({"steps": [fail]})).send().await;
        assert_eq!((reply.status, content_type(&reply)), (status, "application/json"), "{code}");
        assert_eq!(reply.refusal().1, said);
        assert_eq!(reply.json()["id"], "e");
        let reply = client.tool("e", "steps", json!({"steps": ["progress", fail]})).send().await;
        assert_eq!(reply.status, 200);
        let last = reply.frames().last().and_then(Frame::message).expect("an answer");
        assert_eq!((&last["id"], &last["error"]["code"]), (&json!("e"), &json!(said)));
        assert_eq!(reply.messages().len(), 2);
    }
    let missing = client.ask(1, "resources/read", json!({"uri": "test:none"})).await;
    assert_eq!(missing.refusal(), (200, -32602));
}

#[tokio::test]
async fn progress_belongs_to_the_token_of_the_request() {
    let host = host().await;
    let client = Modern::to(&host);
    for token in [json!(7), json!("7"), json!("")] {
        let client = client.clone().meta("progressToken", token.clone());
        let messages = client.tool(1, "progress", json!({"n": 2})).send().await.messages();
        let steps: Vec<&Value> = messages[..2].iter().map(|message| &message["params"]["progress"]).collect();
        assert_eq!(steps, [1.0, 2.0]);
        assert!(messages[..2].iter().all(|message| message["params"]["progressToken"] == token));
        let reply = client.tool(1, "strange_progress", json!({})).send().await;
        assert!(!reply.is_stream(), "a token that the request did not have: {}", reply.text());
    }
}

#[tokio::test]
async fn log_messages_come_from_the_level_that_was_asked_for() {
    let levels = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
    let host = host().await;
    for (from, level) in levels.iter().enumerate() {
        let client = Modern::to(&host).log_level(level);
        let mut messages = client.tool(1, "levels", json!({})).send().await.messages();
        assert_eq!(said(&messages.pop().expect("an answer")), "all levels");
        let heard: Vec<&str> =
            messages.iter().filter_map(|message| message["params"]["level"].as_str()).collect();
        assert_eq!(heard, levels[from..], "{level}");
    }
}

/// What one request is told, no other hears, in this era or the other.
#[tokio::test]
async fn log_messages_stay_on_the_stream_of_their_request() {
    let host = host().await;
    let client = Modern::to(&host);
    let eager = client.clone().log_level("debug");
    let session = Session::open(&host).await;
    let mut get = session.listen().stream().await;
    let (mut subscription, _) = eager.subscribe("s", json!({"toolsListChanged": true})).await;
    let loud = eager.tool(1, "steps", json!({"steps": ["gate:a", "log:1"]})).leave().await;
    let quiet = client.tool(1, "steps", json!({"steps": ["gate:a"]})).leave().await;
    let calm = eager.tool(2, "steps", json!({"steps": ["gate:a", "gate:b"]})).leave().await;
    host.gates.reached("a", 3).await;
    host.gates.open("a");
    assert_eq!(loud.read().await.messages().await.len(), 2);
    host.gates.open("b");
    for unread in [quiet, calm] {
        let reply = unread.reply().await;
        assert!(!reply.is_stream(), "{}", reply.text());
    }
    // The next thing that the others hear is what is theirs.
    assert_eq!(client.say(3, "announce", json!({"what": "tools"})).await, "announced");
    assert_eq!(subscription.message().await["method"], "notifications/tools/list_changed");
    session.say(1, "notify_later", json!({"uri": "test:x"})).await;
    assert_eq!(get.message().await["params"]["uri"], "test:x");
}

#[tokio::test]
async fn a_request_has_a_handler_of_its_own_and_no_session() {
    let host = host().await;
    let client = Modern::to(&host);
    for id in 0..3 {
        assert_eq!(client.say(id, "field_count", json!({})).await, "1");
    }
    let answer = client.call(1, "count", json!({})).await;
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    // And no way to ask the client but in its result.
    let answer = client.call(1, "ask", json!({"method": "roots/list"})).await;
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
}
