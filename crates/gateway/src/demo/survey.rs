//! `survey`: asks its user several things at once and waits for all the answers.

use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ClientResult, ServerRequest};
use rmcp::service::{PeerRequestOptions, RequestContext, RoleServer};
use serde_json::json;

use super::tool::{Arguments, DemoTool, said};

pub(crate) const TOOL: DemoTool = DemoTool {
    name: "survey",
    description: "Asks you several questions at once. Answer them in any order, even after the connection was cut.",
    schema: r#"{"type":"object","properties":{
        "questions":{"type":"integer","minimum":1,"maximum":100,"default":3,"description":"how many"}}}"#,
};

pub(crate) async fn run(
    arguments: &Arguments,
    context: RequestContext<RoleServer>,
) -> Result<CallToolResult, ErrorData> {
    let can_ask = context.peer.peer_info().is_some_and(|client| client.capabilities.elicitation.is_some());
    if !can_ask {
        return Err(ErrorData::invalid_request("Your client does not take questions (elicitation).", None));
    }
    let mut asked = Vec::new();
    for number in 1..=arguments.number("questions", 3, 100)? {
        let options = PeerRequestOptions::no_options();
        let sent = context.peer.send_cancellable_request(question(number)?, options).await;
        asked.push((number, sent.map_err(failed)?));
    }
    let mut answers = Vec::new();
    for (number, ask) in asked {
        let answer = match ask.await_response().await.map_err(failed)? {
            ClientResult::ElicitResult(result) => {
                let answer = result.content.as_ref().and_then(|content| content["answer"].as_str());
                answer.unwrap_or("(no answer)").to_owned()
            }
            _ => "(something else)".to_owned(),
        };
        answers.push(format!("{number}: {answer}"));
    }
    Ok(said(answers.join("\n")))
}

fn question(number: u64) -> Result<ServerRequest, ErrorData> {
    let schema =
        json!({"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]});
    let params = json!({"mode": "form", "message": format!("Question {number}: what do you think?"), "requestedSchema": schema});
    serde_json::from_value(json!({"method": "elicitation/create", "params": params})).map_err(failed)
}

fn failed(error: impl std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}
