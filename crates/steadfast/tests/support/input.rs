//! Tools that need input of the client, and keep nothing between its requests.

use std::collections::BTreeMap;

use rmcp::ErrorData;
use rmcp::model::{InputRequest, InputRequiredResult, InputResponses};
use serde_json::{Map, Value, json};

/// What comes of one round.
pub(crate) enum Round {
    Done(String),
    Ask(InputRequiredResult),
}

/// Asks for each of `arguments.kinds`, one round after the other, and then says what it was told.
/// The state between rounds is what was answered so far. With `arguments.forgetful` there is no
/// state; with `arguments.idle` it only sends the client round once, without a question; with
/// `arguments["lost for words"]` it asks nothing and gives nothing.
pub(crate) fn next_round(
    arguments: &Map<String, Value>,
    state: Option<&str>,
    responses: Option<&InputResponses>,
) -> Result<Round, ErrorData> {
    let flag = |name: &str| arguments.get(name) == Some(&json!(true));
    let kinds: Vec<&str> = match arguments.get("kinds").and_then(Value::as_array) {
        Some(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        None => vec!["form"],
    };
    if flag("lost for words") {
        return Ok(Round::Ask(InputRequiredResult::new(None, None)));
    }
    if flag("idle") {
        return Ok(match state {
            Some(state) => Round::Done(state.to_owned()),
            None => Round::Ask(InputRequiredResult::from_request_state("been here")),
        });
    }
    let mut told: Vec<Value> = match state {
        Some(state) => serde_json::from_str(state).map_err(|error| bad(&error.to_string()))?,
        None => Vec::new(),
    };
    let answer = responses.and_then(|responses| responses.get(&key(told.len())));
    if let Some(answer) = answer.filter(|_| state.is_some() || flag("forgetful")) {
        told.push(answer.clone());
    }
    let Some(kind) = kinds.get(told.len()) else {
        return Ok(Round::Done(Value::Array(told).to_string()));
    };
    let question = BTreeMap::from([(key(told.len()), question(kind)?)]);
    let state = (!flag("forgetful")).then(|| Value::Array(told).to_string());
    Ok(Round::Ask(InputRequiredResult::new(Some(question), state)))
}

fn key(round: usize) -> String {
    format!("question {round}")
}

fn question(kind: &str) -> Result<InputRequest, ErrorData> {
    let sampling = json!({"messages": [], "maxTokens": 1});
    let request = match kind {
        "form" => json!({"method": "elicitation/create", "params": {
            "mode": "form", "message": "?", "requestedSchema": {"type": "object", "properties": {}},
        }}),
        "url" => json!({"method": "elicitation/create", "params": {
            "mode": "url", "message": "?", "url": "https://example.com/", "elicitationId": "e",
        }}),
        "sampling" => json!({"method": "sampling/createMessage", "params": sampling}),
        "sampling with tools" => {
            let mut params = sampling;
            params["tools"] = json!([{"name": "t", "inputSchema": {"type": "object"}}]);
            json!({"method": "sampling/createMessage", "params": params})
        }
        "roots" => json!({"method": "roots/list"}),
        other => return Err(bad(other)),
    };
    serde_json::from_value(request).map_err(|error| bad(&error.to_string()))
}

fn bad(what: &str) -> ErrorData {
    ErrorData::invalid_params(format!("this cannot be asked: {what}"), None)
}
