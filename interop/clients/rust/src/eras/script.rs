//! The steps. Whatever is tried is tried in both eras at once.

use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, LoggingLevel, ServerNotification, SetLevelRequestParams, SubscribeRequestParams,
    SubscriptionFilter,
};
use rmcp::service::ServiceError;
use serde_json::json;

use super::handler::Seen;
use super::player::{Era, Player};
use crate::expect;
use crate::stage::Stage;

const WATCHED: &str = "test://watched-resource";
const ASKS: usize = 5;

pub(crate) const STEPS: &[&str] = &[
    "connect",
    "elicitation",
    "declined",
    "sampling",
    "roots",
    "rounds",
    "parallel-asks",
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
    legacy: Player,
    modern: Player,
}

/// Plays one thing in both eras at once, and gives both results.
macro_rules! both {
    ($script:expr, $play:expr) => {{
        let play = $play;
        tokio::try_join!(play(&$script.legacy), play(&$script.modern))
    }};
}

impl Script {
    pub(crate) async fn open(url: &str) -> Result<Self, String> {
        let (legacy, modern) =
            tokio::try_join!(Player::connect(url, Era::Legacy), Player::connect(url, Era::Modern))?;
        Ok(Self { legacy, modern })
    }

    pub(crate) async fn play(&mut self, step: &str, stage: &Stage) -> Step {
        match step {
            "connect" => self.connect().await,
            "elicitation" => both!(self, elicitation).map(|_| "a form each, filled in".to_owned()),
            "declined" => both!(self, declined).map(|_| "the server hears it".to_owned()),
            "sampling" => both!(self, |player| sampling(player, 0)).map(|_| "a sample each".to_owned()),
            "roots" => both!(self, roots).map(|_| "the roots are known".to_owned()),
            "rounds" => both!(self, rounds).map(|_| "two questions, one after the other".to_owned()),
            "parallel-asks" => {
                both!(self, parallel_asks).map(|(legacy, modern)| format!("{legacy}; {modern}"))
            }
            "together" => both!(self, together)
                .map(|_| "10 calls each, every one with a question of its own".to_owned()),
            "progress" => both!(self, progress).map(|_| "complete and in order".to_owned()),
            "logs" => self.logs().await,
            "changes" => self.changes().await,
            "cancelled" => both!(self, cancelled).map(|_| "by the request's handle".to_owned()),
            "reconnection" => self.reconnection().await,
            "refused" => both!(self, refused).map(|_| "an unknown tool is -32602".to_owned()),
            "closed" => self.closed(stage).await,
            unknown => Err(format!("there is no step {unknown}")),
        }
    }

    async fn connect(&self) -> Step {
        let (legacy, modern) = both!(self, tools)?;
        expect(&legacy, &modern)?;
        let revision =
            |player: &Player| player.service.peer().peer_info().map(|i| i.protocol_version.to_string());
        let revisions = [revision(&self.legacy), revision(&self.modern)].map(Option::unwrap_or_default);
        expect(&revisions, &["2025-11-25", "2026-07-28"].map(str::to_owned))?;
        Ok(format!("{}, {} tools each", revisions.join(" and "), legacy.len()))
    }

    async fn logs(&self) -> Step {
        let level = SetLevelRequestParams::new(LoggingLevel::Info);
        self.legacy.service.peer().set_level(level).await.map_err(|error| error.to_string())?;
        both!(self, logs)?;
        self.modern.say("test_tool_with_logging", json!({})).await?;
        expect(&self.modern.handler.seen().logs.len(), &3)?;
        Ok("to those who want them".to_owned())
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
        let (legacy, modern) = both!(self, |player| say(player, "test_reconnection"))?;
        expect(&legacy, &"The connection was closed; here is the answer.".to_owned())?;
        expect(&modern, &"The connection stayed open.".to_owned())?;
        Ok("the legacy client was sent away and came back".to_owned())
    }

    async fn closed(&mut self, stage: &Stage) -> Step {
        let limit = Duration::from_secs(5);
        // The stage knows what became of the session of the last call.
        say(&self.legacy, "test_simple_text").await?;
        self.legacy.service.close_with_timeout(limit).await.map_err(|error| error.to_string())?;
        expect(&stage.call().await?["deleted"], &json!(204))?;
        let said = say(&self.modern, "test_simple_text").await?;
        expect(&said, &"This is a simple text response for testing.".to_owned())?;
        self.modern.service.close_with_timeout(limit).await.map_err(|error| error.to_string())?;
        Ok("the end of a session concerns no other client".to_owned())
    }
}

async fn say(player: &Player, name: &'static str) -> Step {
    player.say(name, json!({})).await
}

async fn tools(player: &Player) -> Result<Vec<String>, String> {
    let tools = player.service.peer().list_all_tools().await.map_err(|error| error.to_string())?;
    Ok(tools.into_iter().map(|tool| tool.name.into_owned()).collect())
}

async fn elicitation(player: &Player) -> Result<(), String> {
    let message = format!("Who is {:?}?", player.era);
    let said = player.say("test_elicitation", json!({"message": message})).await?;
    let expected = r#"User response: action=accept, content={"email":"my email","username":"my username"}"#;
    expect(&said, &expected.to_owned())?;
    expect(&player.handler.seen().forms, &vec![message])
}

async fn declined(player: &Player) -> Result<(), String> {
    player.handler.seen().declines = true;
    let said = player.say("test_elicitation", json!({"message": "Again?"})).await;
    player.handler.seen().declines = false;
    expect(&said?, &"User response: action=decline, content=null".to_owned())
}

async fn sampling(player: &Player, number: usize) -> Result<(), String> {
    let prompt = format!("{:?} {number}", player.era);
    let said = player.say("test_sampling", json!({"prompt": prompt})).await?;
    expect(&said, &format!("LLM response: answer to {prompt}"))
}

async fn roots(player: &Player) -> Result<(), String> {
    let said = player.say("test_input_required_result_list_roots", json!({})).await?;
    expect(&said, &"1 root(s): file:///here".to_owned())
}

async fn rounds(player: &Player) -> Result<(), String> {
    player.handler.seen().forms.clear();
    let said = player.say("test_input_required_result_multi_round", json!({})).await?;
    expect(&said, &"Hello, my name! Your colour is my color.".to_owned())?;
    let asked = ["Step 1: What is your name?", "Step 2: What is your favorite color?"];
    expect(&player.handler.seen().forms, &asked.map(str::to_owned).to_vec())
}

async fn parallel_asks(player: &Player) -> Step {
    player.handler.seen().peak = 0;
    let begun = tokio::time::Instant::now();
    let said = player.say("parallel_asks", json!({"n": ASKS})).await?;
    let took = begun.elapsed().as_secs_f64();
    expect(&said, &(0..ASKS).map(|number| format!("answer to Question {number}\n")).collect())?;
    let peak = player.handler.seen().peak;
    expect(&peak, &ASKS)?;
    Ok(format!("{:?}: {peak} of {ASKS} at once, {took:.2} s", player.era).to_lowercase())
}

async fn together(player: &Player) -> Result<(), String> {
    let one = |number| sampling(player, number);
    tokio::try_join!(one(0), one(1), one(2), one(3), one(4), one(5), one(6), one(7), one(8), one(9))?;
    Ok(())
}

async fn progress(player: &Player) -> Result<(), String> {
    player.say("test_tool_with_progress", json!({})).await?;
    let expected: Vec<_> = [0.0, 50.0, 100.0].map(|done| (done, Some(100.0))).to_vec();
    expect(&player.handler.seen().progress, &expected)
}

async fn logs(player: &Player) -> Result<(), String> {
    player.say_aloud("test_tool_with_logging").await?;
    until(player, "the last message", |seen| seen.logs.len() >= 3).await?;
    let expected = ["Tool execution started", "Tool processing data", "Tool execution completed"];
    expect(&player.handler.seen().logs, &expected.map(|text| json!(text)).to_vec())
}

async fn cause_changes(player: &Player) -> Result<(), String> {
    player.say("test_trigger_tool_change", json!({})).await?;
    player.say("test_trigger_resource_update", json!({})).await.map(drop)
}

async fn cancelled(player: &Player) -> Result<(), String> {
    let label = format!("of {:?}", player.era);
    let handle = player.start("slow_compute", json!({"seconds": 60, "label": label})).await?;
    tokio::time::sleep(Duration::from_millis(200)).await;
    handle.cancel(Some("enough".to_owned())).await.map_err(|error| error.to_string())?;
    for _ in 0..100 {
        if player.say("was_stopped", json!({"label": label})).await? == "yes" {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err(format!("the work {label} goes on"))
}

async fn refused(player: &Player) -> Result<(), String> {
    match player.call(CallToolRequestParams::new("nonesuch")).await {
        Err(ServiceError::McpError(error)) if error.code.0 == -32602 => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

async fn until(player: &Player, what: &str, condition: impl Fn(&Seen) -> bool) -> Result<(), String> {
    for _ in 0..100 {
        if condition(&player.handler.seen()) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err(format!("{what} did not happen"))
}
