//! The steps of the script "eras". Both clients run each step at the same time.

use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, LoggingLevel, ServerNotification, SetLevelRequestParams, SubscribeRequestParams,
    SubscriptionFilter,
};
use rmcp::service::ServiceError;
use serde_json::json;

use super::client::{Era, TestClient};
use super::handler::Seen;
use crate::control::Control;
use crate::expect;

const WATCHED: &str = "test://watched-resource";
const SAMPLES: usize = 5;

pub(crate) const STEPS: &[&str] = &[
    "connect",
    "elicitation",
    "declined",
    "sampling",
    "roots",
    "rounds",
    "parallel-requests",
    "together",
    "progress",
    "logs",
    "changes",
    "cancelled",
    "reconnection",
    "refused",
    "closed",
];

type Step = Result<String, String>;

#[derive(Debug)]
pub(crate) struct Script {
    legacy: TestClient,
    modern: TestClient,
}

/// Runs a step with both clients at the same time and returns both results.
macro_rules! both {
    ($script:expr, $step:expr) => {{
        let step = $step;
        tokio::try_join!(step(&$script.legacy), step(&$script.modern))
    }};
}

impl Script {
    pub(crate) async fn open(url: &str) -> Result<Self, String> {
        let (legacy, modern) =
            tokio::try_join!(TestClient::connect(url, Era::Legacy), TestClient::connect(url, Era::Modern))?;
        Ok(Self { legacy, modern })
    }

    pub(crate) async fn run(&mut self, step: &str, control: &Control) -> Step {
        match step {
            "connect" => self.connect().await,
            "elicitation" => both!(self, elicitation).map(|_| "a form each, filled in".to_owned()),
            "declined" => both!(self, declined).map(|_| "the server receives it".to_owned()),
            "sampling" => both!(self, |client| sampling(client, 0)).map(|_| "a sample each".to_owned()),
            "roots" => both!(self, roots).map(|_| "the roots are known".to_owned()),
            "rounds" => both!(self, rounds).map(|_| "two requests, one after the other".to_owned()),
            "parallel-requests" => {
                both!(self, parallel_requests).map(|(legacy, modern)| format!("{legacy}; {modern}"))
            }
            "together" => {
                both!(self, together).map(|_| "10 calls each, each with its own server request".to_owned())
            }
            "progress" => both!(self, progress).map(|_| "complete and in order".to_owned()),
            "logs" => self.logs().await,
            "changes" => self.changes().await,
            "cancelled" => both!(self, cancelled).map(|_| "by the request's handle".to_owned()),
            "reconnection" => self.reconnection().await,
            "refused" => both!(self, refused).map(|_| "an unknown tool is -32602".to_owned()),
            "closed" => self.closed(control).await,
            unknown => Err(format!("there is no step {unknown}")),
        }
    }

    async fn connect(&self) -> Step {
        let (legacy, modern) = both!(self, tools)?;
        expect(&legacy, &modern)?;
        let revision =
            |client: &TestClient| client.service.peer().peer_info().map(|i| i.protocol_version.to_string());
        let revisions = [revision(&self.legacy), revision(&self.modern)].map(Option::unwrap_or_default);
        expect(&revisions, &["2025-11-25", "2026-07-28"].map(str::to_owned))?;
        Ok(format!("{}, {} tools each", revisions.join(" and "), legacy.len()))
    }

    async fn logs(&self) -> Step {
        let level = SetLevelRequestParams::new(LoggingLevel::Info);
        self.legacy.service.peer().set_level(level).await.map_err(|error| error.to_string())?;
        both!(self, logs)?;
        self.modern.text_of("test_tool_with_logging", json!({})).await?;
        expect(&self.modern.handler.seen().logs.len(), &3)?;
        Ok("only where the client has enabled them".to_owned())
    }

    async fn changes(&self) -> Step {
        let failed = |error: ServiceError| error.to_string();
        self.legacy.service.peer().subscribe(SubscribeRequestParams::new(WATCHED)).await.map_err(failed)?;
        let filter =
            SubscriptionFilter::builder().tools_list_changed().resource_subscription(WATCHED).build();
        let mut news = self.modern.service.peer().listen(filter).await.map_err(failed)?;
        both!(self, cause_changes)?;
        let (mut tools, mut resource) = (false, false);
        while !(tools && resource) {
            match news.next().await.map_err(failed)? {
                Some(ServerNotification::ToolListChangedNotification(_)) => tools = true,
                Some(ServerNotification::ResourceUpdatedNotification(_)) => resource = true,
                other => return Err(format!("{other:?}")),
            }
        }
        news.cancel().await.map_err(failed)?;
        until(&self.legacy, "news", |seen| seen.tool_changes > 0 && seen.resources == [WATCHED]).await?;
        Ok("of the list of tools and of a resource".to_owned())
    }

    async fn reconnection(&self) -> Step {
        let (legacy, modern) = both!(self, |client| text_of(client, "test_reconnection"))?;
        expect(&legacy, &"The connection was closed; here is the answer.".to_owned())?;
        expect(&modern, &"The connection stayed open.".to_owned())?;
        Ok("the connection of the legacy client was closed, and the client resumed".to_owned())
    }

    async fn closed(&mut self, control: &Control) -> Step {
        let limit = Duration::from_secs(5);
        // The control endpoint reports on the session of the last call.
        text_of(&self.legacy, "test_simple_text").await?;
        self.legacy.service.close_with_timeout(limit).await.map_err(|error| error.to_string())?;
        expect(&control.call().await?["deleted"], &json!(204))?;
        let text = text_of(&self.modern, "test_simple_text").await?;
        expect(&text, &"This is a simple text response for testing.".to_owned())?;
        self.modern.service.close_with_timeout(limit).await.map_err(|error| error.to_string())?;
        Ok("the end of a session does not affect the other client".to_owned())
    }
}

async fn text_of(client: &TestClient, name: &'static str) -> Step {
    client.text_of(name, json!({})).await
}

async fn tools(client: &TestClient) -> Result<Vec<String>, String> {
    let tools = client.service.peer().list_all_tools().await.map_err(|error| error.to_string())?;
    Ok(tools.into_iter().map(|tool| tool.name.into_owned()).collect())
}

async fn elicitation(client: &TestClient) -> Result<(), String> {
    let message = format!("Who is {:?}?", client.era);
    let text = client.text_of("test_elicitation", json!({"message": message})).await?;
    let expected = r#"User response: action=accept, content={"email":"my email","username":"my username"}"#;
    expect(&text, &expected.to_owned())?;
    expect(&client.handler.seen().forms, &vec![message])
}

async fn declined(client: &TestClient) -> Result<(), String> {
    client.handler.seen().declines = true;
    let text = client.text_of("test_elicitation", json!({"message": "Again?"})).await;
    client.handler.seen().declines = false;
    expect(&text?, &"User response: action=decline, content=null".to_owned())
}

async fn sampling(client: &TestClient, number: usize) -> Result<(), String> {
    let prompt = format!("{:?} {number}", client.era);
    let text = client.text_of("test_sampling", json!({"prompt": prompt})).await?;
    expect(&text, &format!("LLM response: answer to {prompt}"))
}

async fn roots(client: &TestClient) -> Result<(), String> {
    let text = client.text_of("test_input_required_result_list_roots", json!({})).await?;
    expect(&text, &"1 root(s): file:///here".to_owned())
}

async fn rounds(client: &TestClient) -> Result<(), String> {
    client.handler.seen().forms.clear();
    let text = client.text_of("test_input_required_result_multi_round", json!({})).await?;
    expect(&text, &"Hello, my name! Your colour is my color.".to_owned())?;
    let running = ["Step 1: What is your name?", "Step 2: What is your favorite color?"];
    expect(&client.handler.seen().forms, &running.map(str::to_owned).to_vec())
}

async fn parallel_requests(client: &TestClient) -> Step {
    client.handler.seen().peak = 0;
    let begun = tokio::time::Instant::now();
    let text = client.text_of("parallel_samples", json!({"n": SAMPLES})).await?;
    let took = begun.elapsed().as_secs_f64();
    expect(&text, &(0..SAMPLES).map(|number| format!("answer to Question {number}\n")).collect())?;
    let peak = client.handler.seen().peak;
    expect(&peak, &SAMPLES)?;
    Ok(format!("{:?}: {peak} of {SAMPLES} at once, {took:.2} s", client.era).to_lowercase())
}

async fn together(client: &TestClient) -> Result<(), String> {
    let one = |number| sampling(client, number);
    tokio::try_join!(one(0), one(1), one(2), one(3), one(4), one(5), one(6), one(7), one(8), one(9))?;
    Ok(())
}

async fn progress(client: &TestClient) -> Result<(), String> {
    client.text_of("test_tool_with_progress", json!({})).await?;
    let expected: Vec<_> = [0.0, 50.0, 100.0].map(|done| (done, Some(100.0))).to_vec();
    expect(&client.handler.seen().progress, &expected)
}

async fn logs(client: &TestClient) -> Result<(), String> {
    client.text_with_logs("test_tool_with_logging").await?;
    until(client, "the last message", |seen| seen.logs.len() >= 3).await?;
    let expected = ["Tool execution started", "Tool processing data", "Tool execution completed"];
    expect(&client.handler.seen().logs, &expected.map(|text| json!(text)).to_vec())
}

async fn cause_changes(client: &TestClient) -> Result<(), String> {
    client.text_of("test_trigger_tool_change", json!({})).await?;
    client.text_of("test_trigger_resource_update", json!({})).await.map(drop)
}

async fn cancelled(client: &TestClient) -> Result<(), String> {
    let label = format!("of {:?}", client.era);
    let handle = client.start("slow_compute", json!({"seconds": 60, "label": label})).await?;
    tokio::time::sleep(Duration::from_millis(200)).await;
    handle.cancel(Some("enough".to_owned())).await.map_err(|error| error.to_string())?;
    for _ in 0..100 {
        if client.text_of("was_stopped", json!({"label": label})).await? == "yes" {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err(format!("the work {label} goes on"))
}

async fn refused(client: &TestClient) -> Result<(), String> {
    match client.call(CallToolRequestParams::new("nonesuch")).await {
        Err(ServiceError::McpError(error)) if error.code.0 == -32602 => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

async fn until(client: &TestClient, what: &str, condition: impl Fn(&Seen) -> bool) -> Result<(), String> {
    for _ in 0..100 {
        if condition(&client.handler.seen()) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err(format!("{what} did not happen"))
}
