//! The steps.

use std::collections::HashMap;

use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ListToolsRequest, LoggingLevel, NumberOrString,
    SetLevelRequestParams,
};
use rmcp::service::ServiceError;
use rmcp::transport::streamable_http_client::{StreamableHttpClient, StreamableHttpError};
use serde_json::json;

use crate::player::{Player, text};
use crate::stage::Stage;

pub(crate) const STEPS: &[&str] = &[
    "initialize",
    "progress",
    "logs",
    "notebook",
    "parallel",
    "refused",
    "dropped-early",
    "dropped-midway",
    "dropped-twice",
    "cancelled",
    "restarted",
    "terminated",
];

pub(crate) async fn play(step: &str, player: &mut Player, stage: &Stage) -> Result<String, String> {
    match step {
        "initialize" => initialize(player).await,
        "progress" => countdown(player, 5, 20).await,
        "logs" => logs(player).await,
        "notebook" => notebook(player).await,
        "parallel" => parallel(player).await,
        "refused" => refused(player).await,
        "dropped-early" => dropped(player, stage, "1", 4).await,
        "dropped-midway" => dropped(player, stage, "3", 15).await,
        "dropped-twice" => dropped(player, stage, "3,2", 30).await,
        "cancelled" => cancelled(player, stage).await,
        "restarted" => restarted(player, stage).await,
        "terminated" => terminated(player, stage).await,
        unknown => Err(format!("there is no step {unknown}")),
    }
}

async fn initialize(player: &Player) -> Result<String, String> {
    let tools = player.peer.list_all_tools().await.map_err(|error| error.to_string())?;
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
    expect(&names, &vec!["countdown", "chatter", "notebook", "survey"])?;
    let info = player.peer.peer_info().ok_or("no peer info")?;
    Ok(format!("{} tools, revision {}", names.len(), info.protocol_version))
}

/// A countdown whose progress comes complete and in order.
async fn countdown(player: &Player, from: usize, step_ms: u64) -> Result<String, String> {
    let handle = player.start("countdown", json!({"from": from, "step_ms": step_ms})).await;
    let handle = handle.map_err(|error| error.to_string())?;
    let token = handle.progress_token.clone();
    let answer = text(handle.await_response().await.map_err(|error| error.to_string())?)?;
    expect(&answer, &format!("Counted down from {from}: lift-off!"))?;
    let heard = player.listener.heard();
    let progress = heard.progress.iter().filter(|progress| progress.progress_token == token);
    let progress: Vec<_> = progress.map(|step| (step.progress, step.total, step.message.clone())).collect();
    let step = |done: usize| (done as f64, Some(from as f64), Some((from - done).to_string()));
    expect(&progress, &(0..from).map(step).collect())?;
    Ok(format!("{from} in order"))
}

async fn logs(player: &Player) -> Result<String, String> {
    let level = SetLevelRequestParams::new(LoggingLevel::Info);
    player.peer.set_level(level).await.map_err(|error| error.to_string())?;
    expect(&player.call("chatter", json!({"lines": 4})).await?, &"Said 4 things.".to_owned())?;
    player.listener.until(|heard| heard.logs.len() >= 4).await;
    expect(
        &player.listener.heard().logs,
        &(1..=4).map(|line| json!(format!("message {line} of 4"))).collect(),
    )?;
    Ok("4 in order".to_owned())
}

async fn notebook(player: &Player) -> Result<String, String> {
    let added = player.call("notebook", json!({"action": "add", "text": "first"})).await?;
    expect(&added, &"Noted. You have 1 note(s).".to_owned())?;
    expect(&notes(player).await?, &"first".to_owned())?;
    Ok("added and listed".to_owned())
}

async fn parallel(player: &Player) -> Result<String, String> {
    let mut handles = Vec::new();
    for number in 0..20 {
        let (name, arguments) = match number % 2 {
            0 => ("notebook", json!({"action": "add", "text": format!("note {number}")})),
            _ => ("countdown", json!({"from": number, "step_ms": 5})),
        };
        let handle = player.start(name, arguments).await.map_err(|error| error.to_string())?;
        handles.push((number, handle));
    }
    for (number, handle) in handles {
        let answer = text(handle.await_response().await.map_err(|error| error.to_string())?)?;
        if number % 2 != 0 {
            expect(&answer, &format!("Counted down from {number}: lift-off!"))?;
        }
    }
    let notes = notes(player).await?;
    let mut notes: Vec<&str> = notes.lines().collect();
    notes.sort_unstable();
    let mut expected: Vec<String> = (0..20).step_by(2).map(|number| format!("note {number}")).collect();
    expected.push("first".to_owned());
    expected.sort_unstable();
    expect(&notes, &expected.iter().map(String::as_str).collect())?;
    Ok("20 calls, each with its own answer".to_owned())
}

async fn refused(player: &Player) -> Result<String, String> {
    let handle = player.start("nonesuch", json!({})).await.map_err(|error| error.to_string())?;
    match handle.await_response().await {
        Err(ServiceError::McpError(error)) if error.code.0 == -32602 => {
            Ok("an unknown tool is -32602".to_owned())
        }
        other => Err(format!("{other:?}")),
    }
}

/// A countdown; the proxy cuts its connection after the given numbers of events.
async fn dropped(player: &Player, stage: &Stage, cuts: &str, from: usize) -> Result<String, String> {
    stage.cut(cuts).await?;
    countdown(player, from, 100).await?;
    stage.verdict().await
}

async fn cancelled(player: &Player, stage: &Stage) -> Result<String, String> {
    let handle = player.start("countdown", json!({"from": 100, "step_ms": 100})).await;
    let handle = handle.map_err(|error| error.to_string())?;
    let token = handle.progress_token.clone();
    let begun =
        |heard: &crate::listener::Heard| heard.progress.iter().any(|step| step.progress_token == token);
    player.listener.until(begun).await;
    handle.cancel(Some("enough".to_owned())).await.map_err(|error| error.to_string())?;
    expect(&stage.call().await?["cancelled"], &json!(true))?;
    countdown(player, 1, 1).await?;
    Ok("by the request's handle; the next call is served".to_owned())
}

async fn restarted(player: &Player, stage: &Stage) -> Result<String, String> {
    let before = notes(player).await?;
    let session = stage.call().await?["session"].clone();
    stage.restart().await?;
    expect(&notes(player).await?, &before)?;
    expect(&stage.call().await?["session"], &session)?;
    countdown(player, 2, 10).await?;
    Ok(format!("the session and its {} notes are still there", before.lines().count()))
}

async fn terminated(player: &mut Player, stage: &Stage) -> Result<String, String> {
    let session = stage.call().await?["session"].as_str().unwrap_or_default().to_owned();
    let service = player.service.take().ok_or("the session was ended before")?;
    service.cancel().await.map_err(|error| error.to_string())?;
    expect(&stage.call().await?["deleted"], &json!(204))?;
    if player.call("notebook", json!({"action": "list"})).await.is_ok() {
        return Err("a closed client was served".to_owned());
    }
    let request = ClientRequest::ListToolsRequest(ListToolsRequest::default());
    let message = ClientJsonRpcMessage::request(request, NumberOrString::Number(1));
    let http = reqwest::Client::new();
    match http.post_message(player.url.clone(), message, Some(session.into()), None, HashMap::new()).await {
        Err(StreamableHttpError::SessionExpired) => {
            Ok("DELETE is 204 when the client closes; then 404".to_owned())
        }
        other => Err(format!("{other:?}")),
    }
}

async fn notes(player: &Player) -> Result<String, String> {
    player.call("notebook", json!({"action": "list"})).await
}

fn expect<T: PartialEq + std::fmt::Debug>(got: &T, wanted: &T) -> Result<(), String> {
    if got == wanted { Ok(()) } else { Err(format!("got {got:?}, wanted {wanted:?}")) }
}
