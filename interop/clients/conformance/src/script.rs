//! Uses every tool, resource and prompt of a server once.

use serde_json::{Map, Value, json};
use steadfast_client::{Answer, Call, Client, Error};

use crate::handler::fill;

/// Two tools of one scenario. The second gets the schema of the first as its argument.
const SCHEMA_TOOL: &str = "json_schema_2020_12_tool";
const ECHO_TOOL: &str = "json_schema_echo";

/// Lists tools, resources and prompts and uses each. The context may contain the arguments.
pub(crate) async fn explore(client: &Client, context: Option<&str>) -> Result<(), Error> {
    let context: Value = context.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let server: Value = serde_json::from_slice(&client.server()).unwrap_or_default();
    let tools = list(client, "tools").await?;
    let mut calls = Vec::new();
    for (name, arguments) in tool_calls(&tools, &context) {
        calls.push(begin(client, "tools/call", &json!({"name": name, "arguments": arguments}))?);
    }
    if server["capabilities"]["resources"].is_object() {
        for resource in list(client, "resources").await? {
            calls.push(begin(client, "resources/read", &json!({"uri": resource["uri"]}))?);
        }
    }
    if server["capabilities"]["prompts"].is_object() {
        for prompt in list(client, "prompts").await? {
            calls.push(begin(client, "prompts/get", &json!({"name": prompt["name"]}))?);
        }
    }
    // All calls are in flight now.
    for call in calls {
        call.answer().await?;
    }
    Ok(())
}

fn tool_calls(tools: &[Value], context: &Value) -> Vec<(String, Value)> {
    if let Some(calls) = context["toolCalls"].as_array() {
        let one =
            |call: &Value| (call["name"].as_str().unwrap_or_default().to_owned(), call["arguments"].clone());
        return calls.iter().map(one).collect();
    }
    let call = |tool: &Value| {
        let name = tool["name"].as_str().unwrap_or_default().to_owned();
        let arguments = match name.as_str() {
            ECHO_TOOL => json!({"schema": schema_of(tools, SCHEMA_TOOL)}),
            _ => Value::Object(required(&tool["inputSchema"])),
        };
        (name, arguments)
    };
    tools.iter().map(call).collect()
}

fn schema_of(tools: &[Value], name: &str) -> Value {
    let tool = tools.iter().find(|tool| tool["name"] == name);
    tool.map(|tool| tool["inputSchema"].clone()).unwrap_or_default()
}

/// Returns a value for each required argument of a tool.
fn required(schema: &Value) -> Map<String, Value> {
    let names: Vec<_> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema["properties"].as_object();
    let wanted = properties.into_iter().flatten().filter(|(name, _)| names.contains(&name.as_str()));
    fill(&wanted.map(|(name, schema)| (name.clone(), schema.clone())).collect())
}

async fn list(client: &Client, kind: &str) -> Result<Vec<Value>, Error> {
    match client.call(&format!("{kind}/list"), None)?.answer().await? {
        Answer::Result(result) => {
            let result: Value = serde_json::from_slice(&result).unwrap_or_default();
            Ok(result[kind].as_array().cloned().unwrap_or_default())
        }
        // A server need not support every list.
        Answer::Error(_) => Ok(Vec::new()),
    }
}

fn begin(client: &Client, method: &str, params: &Value) -> Result<Call, Error> {
    client.call(method, Some(&params.to_string()))
}
