//! 2026-07-28: a handler that needs input gets it with the client's next request, and the state
//! that it gave out.

use std::time::Duration;

use steadfast::{Builder, StateKey};

use crate::support::session::said;
use crate::support::{Backing, Host, Modern, TestHandler, Value, json};

const STATE: &str = "requestState";

fn able(host: &Host) -> Modern {
    Modern::to(host).able(json!({"elicitation": {}, "sampling": {}, "roots": {}}))
}

/// Calls the tool and gives the state that comes back.
async fn state_of(client: &Modern, arguments: Value) -> String {
    let result = client.call(1, "input", arguments).await["result"].clone();
    assert_eq!(result["resultType"], "input_required", "{result}");
    result[STATE].as_str().expect("a state").to_owned()
}

fn answers() -> Value {
    json!({"question 0": {"action": "accept", "content": {}}})
}

fn retry(arguments: Value, state: &str) -> Value {
    json!({"name": "input", "arguments": arguments, STATE: state, "inputResponses": answers()})
}

const TOLD: &str = r#"[{"action":"accept","content":{}}]"#;

async fn is_good(client: &Modern, params: Value) {
    let answer = client.ask("retry", "tools/call", params).await.answer();
    assert_eq!(said(&answer), TOLD);
}

async fn is_refused(client: &Modern, method: &str, params: Value, why: &str) {
    let reply = client.ask("retry", method, params).await;
    assert_eq!((reply.refusal(), reply.json()["id"].clone()), ((200, -32602), json!("retry")), "{why}");
    assert!(reply.text().contains(STATE), "{why}: {}", reply.text());
}

#[tokio::test]
async fn a_client_is_asked_only_for_what_it_declared() {
    let host = Host::plain(Backing::Memory).await;
    for (kind, declared, missing) in [
        ("form", json!({"elicitation": {}}), None),
        ("form", json!({"elicitation": {"form": {}}}), None),
        ("form", json!({"elicitation": {"form": {}, "url": {}}}), None),
        ("form", json!({"elicitation": {"url": {}}}), Some(json!({"elicitation": {"form": {}}}))),
        ("form", json!({"sampling": {}, "roots": {}}), Some(json!({"elicitation": {"form": {}}}))),
        ("url", json!({"elicitation": {"url": {}}}), None),
        ("url", json!({"elicitation": {}}), Some(json!({"elicitation": {"url": {}}}))),
        ("url", json!({"elicitation": {"form": {}}}), Some(json!({"elicitation": {"url": {}}}))),
        ("url", json!({}), Some(json!({"elicitation": {"url": {}}}))),
        ("sampling", json!({"sampling": {}}), None),
        ("sampling", json!({"elicitation": {}}), Some(json!({"sampling": {}}))),
        ("sampling with tools", json!({"sampling": {"tools": {}}}), None),
        ("sampling with tools", json!({"sampling": {}}), Some(json!({"sampling": {"tools": {}}}))),
        ("sampling with tools", json!({}), Some(json!({"sampling": {"tools": {}}}))),
        ("roots", json!({"roots": {}}), None),
        ("roots", json!({"roots": {"listChanged": true}}), None),
        ("roots", json!({}), Some(json!({"roots": {}}))),
    ] {
        let client = Modern::to(&host).able(declared.clone());
        let reply = client.tool(1, "input", json!({"kinds": [kind]})).send().await;
        let answer = reply.json();
        match missing {
            None => {
                assert_eq!(answer["result"]["resultType"], "input_required", "{kind} {declared}: {answer}");
                let request = &answer["result"]["inputRequests"]["question 0"];
                assert!(request["method"].is_string(), "{answer}");
                assert!(request.get("id").is_none() && request.get("jsonrpc").is_none(), "{answer}");
            }
            Some(missing) => {
                assert_eq!(reply.refusal(), (400, -32021), "{kind} {declared}: {answer}");
                assert_eq!(
                    answer["error"]["data"],
                    json!({"requiredCapabilities": missing}),
                    "{kind} {declared}"
                );
                assert_eq!(answer["id"], 1);
            }
        }
    }
}

#[tokio::test]
async fn a_state_cannot_be_read_or_changed() {
    let host = Host::plain(Backing::Memory).await;
    let client = able(&host);
    let state = state_of(&client, json!({"idle": true})).await;
    assert!(!state.contains("been") && !state.contains("here"), "{state}");
    assert!(state.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)), "{state}");
    assert_ne!(state, state_of(&client, json!({"idle": true})).await, "no two are alike");
    let idle = |state: &str| json!({"name": "input", "arguments": {"idle": true}, STATE: state});
    let answer = client.ask(1, "tools/call", idle(&state)).await.answer();
    assert_eq!(said(&answer), "been here");
    // The state is accepted more than once. A handler that wants it once has to remember it.
    assert_eq!(said(&client.ask(2, "tools/call", idle(&state)).await.answer()), "been here");
    let flipped = |at: usize| {
        let mut bytes = state.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        String::from_utf8(bytes).expect("text")
    };
    let (middle, end) = (state.len() / 2, state.len());
    for (why, bad) in [
        ("the first letter", flipped(0)),
        ("a letter in the middle", flipped(middle)),
        ("the last letter", flipped(end - 1)),
        ("half of it", state[..middle].to_owned()),
        ("all but the last letter", state[..end - 1].to_owned()),
        ("all but the first letter", state[1..].to_owned()),
        ("twice", format!("{state}{state}")),
        ("a letter more", format!("{state}A")),
        ("padding", format!("{state}=")),
        ("a blank", format!(" {state}")),
        ("empty", String::new()),
        ("the bare state", "been here".to_owned()),
        ("not even ASCII", "☎".to_owned()),
        ("very long", "A".repeat(300_000)),
    ] {
        is_refused(&client, "tools/call", idle(&bad), why).await;
    }
}

#[tokio::test]
async fn a_state_is_good_for_its_request_alone() {
    let host = Host::start(Backing::Memory, |builder| builder.principal(principal)).await;
    let client = able(&host).known_as("alice");
    let arguments = json!({"kinds": ["form"], "a": {"x": 1, "y": [1, 2]}, "b": 2.5});
    let state = state_of(&client, arguments.clone()).await;
    let params = retry(arguments.clone(), &state);
    is_good(&client, params.clone()).await;
    is_good(&client.clone().log_level("debug").meta("progressToken", 9), params.clone()).await;
    // How it is written does not matter.
    let written = format!(
        r#"{{"jsonrpc":"2.0","method":"tools/call","id":2,"params":{{ "{STATE}" : "{state}",
            "inputResponses":{}, "_meta":{}, "arguments" : {{"b":2.5,"a":{{"y":[1,  2],"x":1}},"kinds":["fo\u0072m"]}},
            "name":"input" }} }}"#,
        answers(),
        client.meta,
    );
    let reply = client.ask(2, "tools/call", params.clone()).await;
    assert_eq!(said(&reply.answer()), TOLD);
    let request = client.request(2, "tools/call", params.clone()).body(written);
    assert_eq!(said(&request.send().await.answer()), TOLD);

    let changed = |path: &str, value: Value| {
        let mut params = params.clone();
        *params.pointer_mut(path).expect("a member") = value;
        params
    };
    is_refused(&able(&host).known_as("bob"), "tools/call", params.clone(), "another principal").await;
    is_refused(&able(&host), "tools/call", params.clone(), "no principal").await;
    for (why, params) in [
        ("another tool", changed("/name", json!("other input"))),
        ("another argument", changed("/arguments/b", json!(2.6))),
        ("another type", changed("/arguments/a/x", json!("1"))),
        ("another order of a list", changed("/arguments/a/y", json!([2, 1]))),
        ("an argument less", changed("/arguments/a", json!({"x": 1}))),
        ("an argument more", changed("/arguments/a", json!({"x": 1, "y": [1, 2], "z": null}))),
        ("no arguments", changed("/arguments", json!({}))),
    ] {
        is_refused(&client, "tools/call", params, why).await;
    }
    // Parameters that do for two methods.
    let mut both = json!({"name": "input", "arguments": {}, "uri": "test:input"});
    let result = client.ask(1, "tools/call", both.clone()).await.json()["result"].clone();
    (both[STATE], both["inputResponses"]) = (result[STATE].clone(), answers());
    is_good(&client, both.clone()).await;
    is_refused(&client, "resources/read", both, "another method").await;
}

fn principal(parts: &::http::request::Parts) -> Result<steadfast::Principal, steadfast::Denied> {
    let token = parts.headers.get("authorization").and_then(|value| value.to_str().ok());
    Ok(token.map_or_else(steadfast::Principal::anonymous, steadfast::Principal::new))
}

#[tokio::test]
async fn a_state_expires() {
    let lifetime = Duration::from_secs(60);
    let host = Host::start(Backing::Memory, move |builder| builder.state_lifetime(lifetime)).await;
    let client = able(&host);
    let params = retry(json!({}), &state_of(&client, json!({})).await);
    host.clock.advance(lifetime);
    is_good(&client, params.clone()).await;
    host.clock.advance(Duration::from_millis(1));
    is_refused(&client, "tools/call", params, "too late").await;
}

type Configured = Builder<TestHandler>;

fn keys(keys: &[u8]) -> impl Fn(Configured) -> Configured + Send + Sync + 'static {
    let keys: Vec<u8> = keys.to_vec();
    move |builder| builder.state_keys(keys.iter().map(|key| StateKey::new([*key; 32])))
}

#[tokio::test]
async fn a_state_outlives_the_process_if_the_key_does() {
    let mut host = Host::start(Backing::Memory, keys(&[1])).await;
    let state = state_of(&able(&host), json!({})).await;
    host.restart().await;
    is_good(&able(&host), retry(json!({}), &state)).await;

    // A new key goes in front; the old one is still good for opening.
    let rotated = Host::start(Backing::Memory, keys(&[2, 1])).await;
    is_good(&able(&rotated), retry(json!({}), &state)).await;
    let newer = state_of(&able(&rotated), json!({})).await;
    is_refused(&able(&host), "tools/call", retry(json!({}), &newer), "a key of the future").await;
    let done = Host::start(Backing::Memory, keys(&[2])).await;
    is_good(&able(&done), retry(json!({}), &newer)).await;
    is_refused(&able(&done), "tools/call", retry(json!({}), &state), "a key of the past").await;
}

#[tokio::test]
async fn without_a_key_a_state_does_not_outlive_the_process() {
    let mut host = Host::plain(Backing::Memory).await;
    let state = state_of(&able(&host), json!({})).await;
    is_good(&able(&host), retry(json!({}), &state)).await;
    host.restart().await;
    is_refused(&able(&host), "tools/call", retry(json!({}), &state), "another process").await;
}

#[tokio::test]
async fn there_may_be_several_rounds() {
    let host = Host::plain(Backing::Memory).await;
    let client = able(&host);
    let arguments = json!({"kinds": ["form", "sampling", "roots"]});
    let mut params = json!({"name": "input", "arguments": arguments});
    let mut states = Vec::new();
    for round in 0..3 {
        let key = format!("question {round}");
        let result = client.ask(round, "tools/call", params.clone()).await.json()["result"].clone();
        let keys: Vec<_> = result["inputRequests"].as_object().expect("questions").keys().collect();
        assert_eq!(keys, [&key]);
        params[STATE] = result[STATE].clone();
        states.push(result[STATE].clone());
        // Without the answer, or with another, the question comes again.
        for useless in [json!({}), json!({"other": {}}), json!({"question 9": 1, "": null})] {
            params["inputResponses"] = useless;
            let again = client.ask("again", "tools/call", params.clone()).await.json()["result"].clone();
            assert_eq!(again["inputRequests"], result["inputRequests"]);
        }
        params["inputResponses"] = json!({key: {"round": round}, "other": "is ignored"});
    }
    let answer = client.ask("last", "tools/call", params.clone()).await.answer();
    assert_eq!(said(&answer), r#"[{"round":0},{"round":1},{"round":2}]"#);
    // Without its state a request starts over, whatever it brings.
    params.as_object_mut().expect("an object").remove(STATE);
    let result = client.ask("over", "tools/call", params).await.json()["result"].clone();
    assert!(result["inputRequests"]["question 0"].is_object(), "{result}");
}

#[tokio::test]
async fn a_handler_may_do_without_a_state_or_without_a_question() {
    let host = Host::plain(Backing::Memory).await;
    let client = able(&host);
    let arguments = json!({"forgetful": true});
    let result = client.call(1, "input", arguments.clone()).await["result"].clone();
    assert!(result.get(STATE).is_none(), "{result}");
    let params = json!({"name": "input", "arguments": arguments, "inputResponses": answers()});
    is_good(&client, params).await;
    let result = client.call(2, "input", json!({"idle": true})).await["result"].clone();
    assert!(result.get("inputRequests").is_none(), "{result}");
    // One of the two there must be.
    let answer = client.call(2, "input", json!({"lost for words": true})).await;
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    // A client that can do nothing can come back all the same.
    let state = state_of(&Modern::to(&host), json!({"idle": true})).await;
    let params = json!({"name": "input", "arguments": {"idle": true}, STATE: state});
    assert_eq!(said(&Modern::to(&host).ask(3, "tools/call", params).await.answer()), "been here");
}

#[tokio::test]
async fn resources_may_need_input_too() {
    let host = Host::plain(Backing::Memory).await;
    let client = able(&host);
    let result = client.ask(1, "resources/read", json!({"uri": "test:input"})).await.json()["result"].clone();
    let params = json!({"uri": "test:input", STATE: result[STATE], "inputResponses": answers()});
    let result = client.ask(2, "resources/read", params).await.json()["result"].clone();
    assert_eq!(result["contents"][0]["text"], TOLD);
    assert_eq!((&result["resultType"], &result["cacheScope"]), (&json!("complete"), &json!("private")));
}

/// In a session a handler asks its client directly; this way does not exist there.
#[tokio::test]
async fn a_session_has_no_such_results() {
    let host = Host::plain(Backing::Memory).await;
    let session = crate::support::Session::open(&host).await;
    let answer = session.call(1, "input", json!({})).await;
    assert_eq!(answer["error"]["code"], -32600, "{answer}");
}
