//! A tool that asks.
#![expect(deprecated, reason = "sampling is deprecated from 2026-07-28 on and alive in every revision")]

use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CreateMessageRequestParams,
    InputResponses, SamplingMessage,
};
use rmcp::service::{RequestContext, RoleServer};
use steadfast::{Answers, InputRequests};

/// Asks two things at once, then a third, and says what it heard.
pub(crate) async fn run(
    request: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let known: Option<String> = InputRequests::recall(request)?.flatten();
    let known = match known {
        Some(known) => known,
        None => {
            let questions = ask(ask(InputRequests::new(), "one"), "two").remember(&None::<String>)?;
            match questions.answers(request, context).await? {
                Answers::All(answers) => format!("{} {}", heard(&answers, "one"), heard(&answers, "two")),
                Answers::NotYet(result) => return Ok(result.into()),
            }
        }
    };
    match ask(InputRequests::new(), "three").remember(&Some(&known))?.answers(request, context).await? {
        Answers::All(answers) => {
            let text = format!("{known} {}", heard(&answers, "three"));
            Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
        }
        Answers::NotYet(result) => Ok(result.into()),
    }
}

fn ask(questions: InputRequests, name: &str) -> InputRequests {
    questions.sample(name, CreateMessageRequestParams::new(vec![SamplingMessage::user_text(name)], 9))
}

fn heard(answers: &InputResponses, name: &str) -> String {
    answers[name]["content"]["text"].as_str().unwrap_or_default().to_owned()
}
