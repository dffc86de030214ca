//! `fortune`: asks the user with an elicitation before it answers.

use rmcp::ErrorData;
use rmcp::model::{CallToolRequestParams, CallToolResponse, ElicitRequestParams, ElicitationSchema};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::Value;
use steadfast::{Answers, InputRequests};

use super::tool::{DemoTool, said};

pub(crate) const TOOL: DemoTool = DemoTool {
    name: "fortune",
    description: "Tells your fortune, once it knows your name and your number. It asks you, so the client has to let servers \
                  ask.",
    schema: r#"{"type":"object","properties":{}}"#,
};

const FORM: &str = r#"{"type":"object","required":["name","number"],"properties":{
    "name":{"type":"string","title":"Your name"},
    "number":{"type":"integer","title":"A number that means something to you"}}}"#;

/// The number of the user selects one.
const FORTUNES: [&str; 5] = [
    "a connection will break, and nothing will be lost",
    "an answer that you no longer expect is waiting for you",
    "a person with your very id will come, and be turned away",
    "you will come back to where you left off, to the byte",
    "you will be asked twice and answer once",
];

pub(crate) async fn run(
    request: &CallToolRequestParams,
    context: RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let requested_schema: ElicitationSchema = serde_json::from_str(FORM)
        .map_err(|error| ErrorData::internal_error(format!("the form is wrong: {error}"), None))?;
    let message = "The spirits want to know who is asking.".to_owned();
    let form = ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema };
    match InputRequests::new().form("visitor", form).answers(request, &context).await? {
        Answers::All(answers) => Ok(said(tell(answers.get("visitor").unwrap_or(&Value::Null))).into()),
        Answers::NotYet(result) => Ok(result.into()),
    }
}

fn tell(answer: &Value) -> String {
    let (name, number) = (&answer["content"]["name"], &answer["content"]["number"]);
    match (name.as_str(), number.as_i64()) {
        (Some(name), Some(number)) if answer["action"] == "accept" => {
            let which = number.rem_euclid(FORTUNES.len() as i64);
            format!("{name}, {}.", FORTUNES[which as usize])
        }
        _ => "The spirits respect your silence.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fortunes() {
        let accepted = |name: &str, number: i64| {
            tell(&json!({"action": "accept", "content": {"name": name, "number": number}}))
        };
        assert_eq!(accepted("Ada", 7), "Ada, a person with your very id will come, and be turned away.");
        assert_eq!(accepted("Ada", -1), "Ada, you will be asked twice and answer once.");
        for silent in [json!({"action": "decline"}), json!({"action": "accept", "content": {"name": "Ada"}})]
        {
            assert_eq!(tell(&silent), "The spirits respect your silence.");
        }
        assert!(serde_json::from_str::<ElicitationSchema>(FORM).is_ok());
    }
}
