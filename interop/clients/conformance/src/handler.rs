//! Accepts every server request.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use steadfast_client::{BoxFuture, Bytes, ClientHandler, ErrorObject, Event, ServerRequest};
use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct AcceptAll {
    /// Notified when the standalone stream is open, or when it is known that there will be none.
    pub(crate) settled: Arc<Notify>,
}

impl ClientHandler for AcceptAll {
    fn on_server_request(&self, request: ServerRequest) -> BoxFuture<'_, Result<Bytes, ErrorObject>> {
        let params: Value =
            request.params.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        let response = match request.method.as_str() {
            "elicitation/create" => Ok(json!({"action": "accept", "content": content(&params)})),
            "sampling/createMessage" => Ok(json!({
                "role": "assistant", "model": "none", "content": {"type": "text", "text": "yes"}
            })),
            "roots/list" => Ok(json!({"roots": []})),
            other => Err(ErrorObject::new(-32601, format!("{other} is not supported"))),
        };
        Box::pin(async move { response.map(|response| response.to_string().into()) })
    }

    fn on_event(&self, event: Event) {
        if let Event::StandaloneOpen | Event::StandaloneAbsent | Event::StandaloneLost(_) = event {
            self.settled.notify_one();
        }
    }
}

/// Returns values for a form: the defaults of the form, else any value of the right type.
fn content(params: &Value) -> Value {
    let properties = params["requestedSchema"]["properties"].as_object();
    Value::Object(properties.map(fill).unwrap_or_default())
}

/// Returns a value for each property.
pub(crate) fn fill(properties: &Map<String, Value>) -> Map<String, Value> {
    properties.iter().map(|(name, schema)| (name.clone(), value(schema))).collect()
}

fn value(schema: &Value) -> Value {
    let given = schema.get("default").or_else(|| schema.get("const"));
    if let Some(given) = given.or_else(|| schema.pointer("/enum/0")) {
        return given.clone();
    }
    match schema["type"].as_str() {
        Some("string") => json!("text"),
        Some("integer" | "number") => json!(7),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        _ => json!({}),
    }
}
