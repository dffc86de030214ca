//! `council`: sends several sampling requests to the client at once.

use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CreateMessageRequestParams, InputResponses, SamplingMessage,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::Value;
use steadfast::{Answers, InputRequests};

use super::tool::{Arguments, DemoTool, said};

pub(crate) const TOOL: DemoTool = DemoTool {
    name: "council",
    description: "Puts your question to several advisers, all at once. Your own model plays them, so the client has to lend it.",
    schema: r#"{"type":"object","required":["question"],"properties":{
        "question":{"type":"string","description":"what to ask them"},
        "advisers":{"type":"integer","minimum":1,"maximum":5,"default":3,"description":"how many"}}}"#,
};

const ADVISERS: [&str; 5] = ["an optimist", "a pessimist", "a pirate", "a lawyer", "a cat"];

pub(crate) async fn run(
    arguments: &Arguments,
    request: &CallToolRequestParams,
    context: RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let question = arguments
        .text("question")
        .ok_or_else(|| ErrorData::invalid_params("the council needs a `question`", None))?;
    let count = arguments.number("advisers", 3, ADVISERS.len() as u64)?;
    let advisers = || ADVISERS.into_iter().take(count as usize);
    let questions = advisers().fold(InputRequests::new(), |questions, adviser| {
        let prompt = format!("You are {adviser}. Answer in one sentence: {question}");
        questions
            .sample(adviser, CreateMessageRequestParams::new(vec![SamplingMessage::user_text(prompt)], 100))
    });
    match questions.answers(request, &context).await? {
        Answers::All(answers) => {
            let lines: Vec<_> =
                advisers().map(|adviser| format!("{adviser}: {}", advice(&answers, adviser))).collect();
            Ok(said(lines.join("\n")).into())
        }
        Answers::NotYet(result) => Ok(result.into()),
    }
}

/// The content of an answer is one block or a list of blocks.
fn advice<'a>(answers: &'a InputResponses, adviser: &str) -> &'a str {
    let content = answers.get(adviser).map_or(&Value::Null, |answer| &answer["content"]);
    let text = content["text"].as_str().or_else(|| content[0]["text"].as_str());
    text.unwrap_or("(says nothing)")
}
