//! Clients that cannot run here, replayed from traces that were written by hand after their source
//! or the reports of their users. A trace that needs a quirk fails if quirks are ignored.

use std::collections::BTreeMap;

use serde::Deserialize;
use steadfast::{Limits, Quirks, Revisions};
use tokio::task::JoinHandle;

use crate::support::{Backing, Gates, Host, Http, Reply, Value, within};

const TRACES: [(&str, &str); 8] = [
    ("chatgpt", include_str!("chatgpt.json")),
    ("claude_ai", include_str!("claude_ai.json")),
    ("codex", include_str!("codex.json")),
    ("cursor", include_str!("cursor.json")),
    ("gemini_cli", include_str!("gemini_cli.json")),
    ("goose", include_str!("goose.json")),
    ("vscode", include_str!("vscode.json")),
    ("zed", include_str!("zed.json")),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Trace {
    /// Where the behaviour of the client is documented.
    #[serde(rename = "source")]
    _source: String,
    endpoint: Endpoint,
    /// Whether the client depends on a quirk.
    needs_quirk: bool,
    /// The headers of every request of the client.
    headers: BTreeMap<String, String>,
    steps: Vec<Step>,
}

/// The settings of the endpoint that the client meets.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Endpoint {
    only_sessions: bool,
    /// Calls in flight in one session.
    calls: usize,
}

/// A request and its reply.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    /// The HTTP method. Without it the step reads the reply to the call at `gate`.
    method: Option<String>,
    /// Further headers. `$SESSION` is the id of the newest session.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<Value>,
    /// The call waits at this gate, and the next steps happen meanwhile.
    gate: Option<String>,
    status: Option<u16>,
    /// Headers of the reply.
    #[serde(default)]
    reply_headers: BTreeMap<String, String>,
    /// Members of the JSON-RPC message in the reply.
    answer: Option<Value>,
}

#[tokio::test]
async fn every_client_is_served() {
    for (name, text) in TRACES {
        let trace: Trace = serde_json::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(replay(&trace, Quirks::Apply).await, Ok(()), "{name}");
        let ignored = replay(&trace, Quirks::Ignore).await;
        assert_eq!(ignored.is_err(), trace.needs_quirk, "{name} without quirks: {ignored:?}");
    }
}

/// Sends the requests of a trace. Fails at the first reply that is not the expected one.
async fn replay(trace: &Trace, quirks: Quirks) -> Result<(), String> {
    let Endpoint { only_sessions, calls } = trace.endpoint;
    let host = Host::start(Backing::Memory, move |builder| {
        let revisions = if only_sessions { Revisions::legacy() } else { Revisions::all() };
        builder.revisions(revisions).limits(Limits { calls, ..Limits::default() }).quirks(quirks)
    })
    .await;
    let mut client = Client {
        http: Http::to(&host),
        gates: host.gates.clone(),
        session: String::new(),
        waiting: BTreeMap::new(),
    };
    for (at, step) in trace.steps.iter().enumerate() {
        client.take(step, &trace.headers).await.map_err(|why| format!("step {at}: {why}"))?;
    }
    Ok(())
}

struct Client {
    http: Http,
    gates: Gates,
    session: String,
    /// Calls by the gate that they wait at.
    waiting: BTreeMap<String, JoinHandle<Reply>>,
}

impl Client {
    async fn take(&mut self, step: &Step, headers: &BTreeMap<String, String>) -> Result<(), String> {
        let reply = match (&step.method, &step.gate) {
            (Some(method), gate) => {
                let mut request = self.http.request(method);
                for (name, value) in headers.iter().chain(&step.headers) {
                    request = request.header(name, &value.replace("$SESSION", &self.session));
                }
                if let Some(body) = &step.body {
                    request = request.body(body.to_string());
                }
                let mut reply = tokio::spawn(async move { request.send().await });
                let Some(gate) = gate else {
                    return self.check(step, &within("a reply", reply).await.unwrap());
                };
                tokio::select! {
                    () = self.gates.reached(gate, 1) => {}
                    reply = &mut reply => return Err(format!("the call got {}", reply.unwrap().text())),
                }
                self.waiting.insert(gate.clone(), reply);
                return Ok(());
            }
            (None, Some(gate)) => {
                self.gates.open(gate);
                let reply = self.waiting.remove(gate).ok_or("no call waits at this gate")?;
                within("a reply", reply).await.unwrap()
            }
            (None, None) => return Err("the step does nothing".to_owned()),
        };
        self.check(step, &reply)
    }

    fn check(&mut self, step: &Step, reply: &Reply) -> Result<(), String> {
        if let Some(session) = reply.header("mcp-session-id") {
            self.session = session.to_owned();
        }
        let described = || format!("{} {}", reply.status, reply.text());
        let has_headers =
            step.reply_headers.iter().all(|(name, value)| reply.header(name) == Some(value.as_str()));
        if step.status.is_some_and(|status| status != reply.status) || !has_headers {
            return Err(described());
        }
        match &step.answer {
            Some(expected) if reply.body.is_empty() || !contains(&reply.answer(), expected) => {
                Err(described())
            }
            _ => Ok(()),
        }
    }
}

/// Returns true if `value` has every member of `expected`.
fn contains(value: &Value, expected: &Value) -> bool {
    match expected {
        Value::Object(members) => members.iter().all(|(name, expected)| contains(&value[name], expected)),
        _ => value == expected,
    }
}
