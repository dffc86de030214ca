//! The steps of the script "demo".

use std::collections::HashMap;

use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ListToolsRequest, LoggingLevel, NumberOrString,
    SetLevelRequestParams,
};
use rmcp::service::ServiceError;
use rmcp::transport::streamable_http_client::{StreamableHttpClient, StreamableHttpError};
use serde_json::json;

use super::client::{TestClient, text};
use crate::control::Control;
use crate::expect;

pub(crate) const STEPS: &[&str] = &[
    "initialize",
    "progress",
    "logs",
    "notebook",
    "parallel",
    "fortune",
    "council",
    "refused",
    "dropped-early",
    "dropped-midway",
    "dropped-twice",
    "cancelled",
    "restarted",
    "terminated",
];

pub(crate) async fn run(step: &str, client: &mut TestClient, control: &Control) -> Result<String, String> {
    match step {
        "initialize" => initialize(client).await,
        "progress" => countdown(client, 5, 20).await,
        "logs" => logs(client).await,
        "notebook" => notebook(client).await,
        "parallel" => parallel(client).await,
        "fortune" => fortune(client).await,
        "council" => council(client).await,
        "refused" => refused(client).await,
        "dropped-early" => dropped(client, control, "1", 4).await,
        "dropped-midway" => dropped(client, control, "3", 15).await,
        "dropped-twice" => dropped(client, control, "3,2", 30).await,
        "cancelled" => cancelled(client, control).await,
        "restarted" => restarted(client, control).await,
        "terminated" => terminated(client, control).await,
        unknown => Err(format!("there is no step {unknown}")),
    }
}

async fn initialize(client: &TestClient) -> Result<String, String> {
    let tools = client.peer.list_all_tools().await.map_err(|error| error.to_string())?;
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
    expect(&names, &vec!["countdown", "chatter", "notebook", "fortune", "council"])?;
    let info = client.peer.peer_info().ok_or("no peer info")?;
    Ok(format!("{} tools, revision {}", names.len(), info.protocol_version))
}

/// Calls the countdown. Its progress must be complete and in order.
async fn countdown(client: &TestClient, from: usize, step_ms: u64) -> Result<String, String> {
    let handle = client.start("countdown", json!({"from": from, "step_ms": step_ms})).await;
    let handle = handle.map_err(|error| error.to_string())?;
    let token = handle.progress_token.clone();
    let answer = text(handle.await_response().await.map_err(|error| error.to_string())?)?;
    expect(&answer, &format!("Counted down from {from}: lift-off!"))?;
    let received = client.handler.received();
    let progress = received.progress.iter().filter(|progress| progress.progress_token == token);
    let progress: Vec<_> = progress.map(|step| (step.progress, step.total, step.message.clone())).collect();
    let step = |done: usize| (done as f64, Some(from as f64), Some((from - done).to_string()));
    expect(&progress, &(0..from).map(step).collect())?;
    Ok(format!("{from} in order"))
}

async fn logs(client: &TestClient) -> Result<String, String> {
    let level = SetLevelRequestParams::new(LoggingLevel::Info);
    client.peer.set_level(level).await.map_err(|error| error.to_string())?;
    expect(&client.call("chatter", json!({"lines": 4})).await?, &"Said 4 things.".to_owned())?;
    client.handler.until(|received| received.logs.len() >= 4).await;
    expect(
        &client.handler.received().logs,
        &(1..=4).map(|line| json!(format!("message {line} of 4"))).collect(),
    )?;
    Ok("4 in order".to_owned())
}

async fn notebook(client: &TestClient) -> Result<String, String> {
    let added = client.call("notebook", json!({"action": "add", "text": "first"})).await?;
    expect(&added, &"Noted. You have 1 note(s).".to_owned())?;
    expect(&notes(client).await?, &"first".to_owned())?;
    Ok("added and listed".to_owned())
}

async fn parallel(client: &TestClient) -> Result<String, String> {
    let mut handles = Vec::new();
    for number in 0..20 {
        let (name, arguments) = match number % 2 {
            0 => ("notebook", json!({"action": "add", "text": format!("note {number}")})),
            _ => ("countdown", json!({"from": number, "step_ms": 5})),
        };
        let handle = client.start(name, arguments).await.map_err(|error| error.to_string())?;
        handles.push((number, handle));
    }
    for (number, handle) in handles {
        let answer = text(handle.await_response().await.map_err(|error| error.to_string())?)?;
        if number % 2 != 0 {
            expect(&answer, &format!("Counted down from {number}: lift-off!"))?;
        }
    }
    let notes = notes(client).await?;
    let mut notes: Vec<&str> = notes.lines().collect();
    notes.sort_unstable();
    let mut expected: Vec<String> = (0..20).step_by(2).map(|number| format!("note {number}")).collect();
    expected.push("first".to_owned());
    expected.sort_unstable();
    expect(&notes, &expected.iter().map(String::as_str).collect())?;
    Ok("20 calls, each with its own answer".to_owned())
}

async fn fortune(client: &TestClient) -> Result<String, String> {
    let text = client.call("fortune", json!({})).await?;
    expect(&text, &"Ada, a person with your very id will come, and be turned away.".to_owned())?;
    Ok("a form was filled in".to_owned())
}

async fn council(client: &TestClient) -> Result<String, String> {
    let said = client.call("council", json!({"question": "Why?", "advisers": 3})).await?;
    let received = |adviser| format!("{adviser}: I heard: You are {adviser}. Answer in one sentence: Why?");
    let advisers = ["an optimist", "a pessimist", "a pirate"];
    expect(&said.lines().map(str::to_owned).collect(), &advisers.map(received).to_vec())?;
    Ok(format!("{} samples, each for its own prompt", advisers.len()))
}

async fn refused(client: &TestClient) -> Result<String, String> {
    let handle = client.start("nonesuch", json!({})).await.map_err(|error| error.to_string())?;
    match handle.await_response().await {
        Err(ServiceError::McpError(error)) if error.code.0 == -32602 => {
            Ok("an unknown tool is -32602".to_owned())
        }
        other => Err(format!("{other:?}")),
    }
}

/// Calls the countdown while the proxy cuts its connection after these numbers of events.
async fn dropped(client: &TestClient, control: &Control, cuts: &str, from: usize) -> Result<String, String> {
    control.cut(cuts).await?;
    countdown(client, from, 100).await?;
    control.verdict().await
}

async fn cancelled(client: &TestClient, control: &Control) -> Result<String, String> {
    let handle = client.start("countdown", json!({"from": 100, "step_ms": 100})).await;
    let handle = handle.map_err(|error| error.to_string())?;
    let token = handle.progress_token.clone();
    let begun = |received: &super::handler::Received| {
        received.progress.iter().any(|step| step.progress_token == token)
    };
    client.handler.until(begun).await;
    handle.cancel(Some("enough".to_owned())).await.map_err(|error| error.to_string())?;
    expect(&control.call().await?["cancelled"], &json!(true))?;
    countdown(client, 1, 1).await?;
    Ok("by the request's handle; the next call is served".to_owned())
}

async fn restarted(client: &TestClient, control: &Control) -> Result<String, String> {
    let before = notes(client).await?;
    let session = control.call().await?["session"].clone();
    control.restart().await?;
    expect(&notes(client).await?, &before)?;
    expect(&control.call().await?["session"], &session)?;
    countdown(client, 2, 10).await?;
    Ok(format!("the session and its {} notes are still there", before.lines().count()))
}

async fn terminated(client: &mut TestClient, control: &Control) -> Result<String, String> {
    let session = control.call().await?["session"].as_str().unwrap_or_default().to_owned();
    let service = client.service.take().ok_or("the session was ended before")?;
    service.cancel().await.map_err(|error| error.to_string())?;
    expect(&control.call().await?["deleted"], &json!(204))?;
    if client.call("notebook", json!({"action": "list"})).await.is_ok() {
        return Err("a closed client was served".to_owned());
    }
    let request = ClientRequest::ListToolsRequest(ListToolsRequest::default());
    let message = ClientJsonRpcMessage::request(request, NumberOrString::Number(1));
    let http = reqwest::Client::new();
    match http.post_message(client.url.clone(), message, Some(session.into()), None, HashMap::new()).await {
        Err(StreamableHttpError::SessionExpired) => {
            Ok("DELETE is 204 when the client closes; then 404".to_owned())
        }
        other => Err(format!("{other:?}")),
    }
}

async fn notes(client: &TestClient) -> Result<String, String> {
    client.call("notebook", json!({"action": "list"})).await
}
