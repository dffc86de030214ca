//! `notebook`: keeps notes in the state of the session, which survives a restart.

use rmcp::ErrorData;
use rmcp::model::CallToolResult;
use rmcp::service::{RequestContext, RoleServer};
use steadfast::Session;

use super::tool::{Arguments, DemoTool, said};

const KEY: &str = "notebook";

pub(crate) const TOOL: DemoTool = DemoTool {
    name: "notebook",
    description: "Keeps notes in the session itself: they are there after the server was killed and restarted, and \
                  parallel writers lose nothing.",
    schema: r#"{"type":"object","required":["action"],"properties":{
        "action":{"type":"string","enum":["add","list","clear"]},
        "text":{"type":"string","description":"the note to add"}}}"#,
};

pub(crate) async fn run(
    arguments: &Arguments,
    context: RequestContext<RoleServer>,
) -> Result<CallToolResult, ErrorData> {
    let session = context.extensions.get::<Session>().ok_or_else(|| {
        ErrorData::invalid_request("notes belong to a session, and this request has none", None)
    })?;
    let failed = |error: steadfast::StateError| ErrorData::internal_error(error.to_string(), None);
    match (arguments.text("action"), arguments.text("text")) {
        (Some("add"), Some(text)) => {
            let add = |notes: &mut Vec<String>| {
                notes.push(text.to_owned());
                notes.len()
            };
            let count = session.update(KEY, add).await.map_err(failed)?;
            Ok(said(format!("Noted. You have {count} note(s).")))
        }
        (Some("list"), _) => {
            let notes = session
                .get::<Vec<String>>(KEY)
                .await
                .map_err(failed)?
                .map_or_else(Vec::new, |(notes, _)| notes);
            Ok(said(if notes.is_empty() { "No notes yet.".to_owned() } else { notes.join("\n") }))
        }
        (Some("clear"), _) => {
            session.update(KEY, Vec::<String>::clear).await.map_err(failed)?;
            Ok(said("All notes are gone."))
        }
        _ => Err(ErrorData::invalid_params("`action` must be add (with `text`), list or clear", None)),
    }
}
