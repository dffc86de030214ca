//! Tasks of 2026-07-28 over real HTTP, on every store.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use steadfast::store::MemoryStore;
use steadfast::store::testing::{Fault, FaultyStore, Operation};
use steadfast::{Denied, Principal};
use steadfast_session::{Command, Rules};
use support::{Backing, Host, Http, Reply, Request, Value, json, within};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

on_every_store! {
    a_task_works_and_completes,
    a_task_asks_and_goes_on_when_it_is_answered,
    a_task_that_fails_says_why,
    a_cancelled_task_is_cancelled_for_good,
    a_result_that_is_too_large_fails_its_task,
    strangers_and_the_undeclared_get_nothing,
    a_task_is_no_session,
    subscribers_hear_of_each_step,
    a_task_past_its_deadline_fails,
    draining_fails_what_does_not_end,
    finished_tasks_expire,
}

/// A client that declares tasks.
struct Client {
    http: Http,
    token: &'static str,
    declares: bool,
}

impl Client {
    fn to(host: &Host) -> Self {
        Self { http: Http::to(host), token: "me", declares: true }
    }

    fn request(&self, method: &str, name: Option<&str>, params: Value) -> Request {
        let extensions =
            if self.declares { json!({ "io.modelcontextprotocol/tasks": {} }) } else { json!({}) };
        let mut params = params;
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": { "extensions": extensions },
        });
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let request = self
            .http
            .post(&message)
            .header("MCP-Protocol-Version", "2026-07-28")
            .header("Mcp-Method", method)
            .header("Authorization", self.token);
        match name {
            Some(name) => request.header("Mcp-Name", name),
            None => request,
        }
    }

    async fn call(&self, tool: &str, arguments: Value) -> Reply {
        self.request("tools/call", Some(tool), json!({ "name": tool, "arguments": arguments })).send().await
    }

    async fn start(&self, tool: &str, arguments: Value) -> String {
        let reply = self.call(tool, arguments).await;
        let result = &reply.answer()["result"];
        assert_eq!(result["resultType"], "task", "{}", reply.text());
        assert_eq!(result["status"], "working");
        result["taskId"].as_str().unwrap().to_owned()
    }

    async fn get(&self, id: &str) -> Reply {
        self.request("tasks/get", Some(id), json!({ "taskId": id })).send().await
    }

    async fn update(&self, id: &str, responses: Value) -> Reply {
        let params = json!({ "taskId": id, "inputResponses": responses });
        self.request("tasks/update", Some(id), params).send().await
    }

    async fn cancel(&self, id: &str) -> Reply {
        self.request("tasks/cancel", Some(id), json!({ "taskId": id })).send().await
    }

    /// Looks until the task has this status.
    async fn until(&self, id: &str, status: &str) -> Value {
        let look = async {
            loop {
                let result = self.get(id).await.answer()["result"].clone();
                assert_eq!(result["resultType"], "complete");
                assert!(result["status"] == status || !is_over(&result), "{result}");
                if result["status"] == status {
                    return result;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        within(status, look).await
    }
}

async fn host(backing: Backing) -> Host {
    Host::start(backing, |builder| {
        builder.principal(|parts| {
            let token = parts.headers.get("authorization").and_then(|value| value.to_str().ok());
            token.map(Principal::new).ok_or(Denied::Forbidden)
        })
    })
    .await
}

fn is_over(task: &Value) -> bool {
    ["completed", "failed", "cancelled"].iter().any(|status| task["status"] == *status)
}

fn text(result: &Value) -> &str {
    result["result"]["content"][0]["text"].as_str().unwrap_or_default()
}

async fn a_task_works_and_completes(backing: Backing) {
    let host = host(backing).await;
    let client = Client::to(&host);
    let id = client.start("task_gate", json!({ "name": "go", "text": "done" })).await;
    let shown = client.get(&id).await.answer()["result"].clone();
    assert_eq!(shown["status"], "working");
    assert_eq!(shown["statusMessage"], "begun");
    assert_eq!(shown["createdAt"], "2027-01-15T08:00:00.000Z");
    assert_eq!(shown["ttlMs"], 7 * DAY.as_millis() as u64);
    assert!(shown["_meta"]["io.modelcontextprotocol/serverInfo"].is_object());
    host.gates.open("go");
    let shown = client.until(&id, "completed").await;
    assert_eq!(text(&shown), "done");
    assert_eq!(shown["statusMessage"], "through the gate");
    assert_eq!(client.get(&id).await.answer()["result"], shown, "a result may be read again and again");
    assert_eq!(client.cancel(&id).await.answer()["result"]["resultType"], "complete");
    assert_eq!(client.get(&id).await.answer()["result"], shown, "what is over stays as it is");
}

async fn a_task_asks_and_goes_on_when_it_is_answered(backing: Backing) {
    let host = host(backing).await;
    let client = Client::to(&host);
    let id = client.start("task_ask", json!({})).await;
    let both = async {
        loop {
            let shown = client.until(&id, "input_required").await;
            if shown["inputRequests"].as_object().is_some_and(|requests| requests.len() == 2) {
                return shown;
            }
        }
    };
    let shown = within("both questions", both).await;
    assert_eq!(shown["inputRequests"]["one"]["method"], "roots/list");
    assert_eq!(client.update(&id, json!({ "one": { "roots": [] }, "unknown": {} })).await.status, 200);
    let shown = client.get(&id).await.answer()["result"].clone();
    assert_eq!(shown["status"], "input_required");
    assert!(shown["inputRequests"].get("one").is_none());
    // Answered twice: the first answer counts.
    client.update(&id, json!({ "one": { "roots": [{ "uri": "file:///late" }] } })).await;
    client.update(&id, json!({ "two": { "roots": [{ "uri": "file:///a" }] } })).await;
    let shown = client.until(&id, "completed").await;
    assert_eq!(text(&shown), r#"{"roots":[]} {"roots":[{"uri":"file:///a"}]}"#);
}

async fn a_task_that_fails_says_why(backing: Backing) {
    let host = host(backing).await;
    let client = Client::to(&host);
    let id = client.start("task_fail", json!({})).await;
    assert_eq!(client.until(&id, "failed").await["error"]["code"], -32602);
    let id = client.start("task_panic", json!({})).await;
    let shown = client.until(&id, "failed").await;
    assert_eq!(shown["error"]["data"]["reason"], "handler_panicked");
}

async fn a_cancelled_task_is_cancelled_for_good(backing: Backing) {
    let host = host(backing).await;
    let client = Client::to(&host);
    let id = client.start("task_until_cancelled", json!({})).await;
    assert_eq!(client.cancel(&id).await.answer()["result"]["resultType"], "complete");
    assert_eq!(client.get(&id).await.answer()["result"]["status"], "cancelled");
    within("the work to notice", host.gates.reached("task cancelled", 1)).await;
    let shown = client.until(&id, "cancelled").await;
    assert!(shown.get("result").is_none());
    assert_eq!(client.cancel(&id).await.status, 200);
}

async fn a_result_that_is_too_large_fails_its_task(backing: Backing) {
    let host = host(backing).await;
    let client = Client::to(&host);
    let id = client.start("task_big", json!({})).await;
    assert_eq!(client.until(&id, "failed").await["error"]["data"]["reason"], "bad_task_result");
}

async fn strangers_and_the_undeclared_get_nothing(backing: Backing) {
    let host = host(backing).await;
    let client = Client::to(&host);
    let id = client.start("task_gate", json!({ "name": "go" })).await;
    let stranger = Client { token: "you", ..Client::to(&host) };
    for reply in [
        stranger.get(&id).await,
        stranger.update(&id, json!({})).await,
        stranger.cancel(&id).await,
        client.get("nonsense").await,
        client.get("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA").await,
    ] {
        assert_eq!(reply.refusal(), (200, -32602), "{}", reply.text());
    }
    let undeclared = Client { declares: false, ..Client::to(&host) };
    for reply in [
        undeclared.get(&id).await,
        undeclared.update(&id, json!({})).await,
        undeclared.cancel(&id).await,
        undeclared.call("task_gate", json!({ "name": "go" })).await,
    ] {
        assert_eq!(reply.refusal(), (400, -32021), "{}", reply.text());
        let required = &reply.json()["error"]["data"]["requiredCapabilities"];
        assert!(required["extensions"]["io.modelcontextprotocol/tasks"].is_object(), "{required}");
    }
    assert_eq!(client.get(&id).await.answer()["result"]["status"], "working");
}

async fn a_task_is_no_session(backing: Backing) {
    let host = host(backing).await;
    let client = Client::to(&host);
    let id = client.start("task_gate", json!({ "name": "go" })).await;
    let http = Http::to(&host);
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    for request in [http.post(&call), http.get(), http.delete()] {
        let request = request
            .header("Mcp-Session-Id", &id)
            .header("MCP-Protocol-Version", "2025-11-25")
            .header("Authorization", "me");
        assert_eq!(request.send().await.status, 404);
    }
    assert_eq!(client.get(&id).await.answer()["result"]["status"], "working");
    assert!(host.heard.is_silent(), "no session was opened");
}

async fn subscribers_hear_of_each_step(backing: Backing) {
    let host = host(backing).await;
    let client = Client::to(&host);
    let id = client.start("task_gate", json!({ "name": "go", "text": "done" })).await;
    let listen = |client: &Client, ids: &[&str]| {
        client.request("subscriptions/listen", None, json!({ "notifications": { "taskIds": ids } }))
    };
    let mut stream = listen(&client, &[&id, "nonsense"]).stream().await;
    let acknowledged = stream.message().await;
    assert_eq!(acknowledged["params"]["notifications"], json!({ "taskIds": [id] }));
    let stranger = Client { token: "you", ..Client::to(&host) };
    let acknowledged = listen(&stranger, &[&id]).stream().await.message().await;
    assert_eq!(acknowledged["params"]["notifications"], json!({}));
    let undeclared = Client { declares: false, ..Client::to(&host) };
    assert_eq!(listen(&undeclared, &[&id]).send().await.refusal(), (400, -32021));
    host.gates.open("go");
    let mut seen = Vec::new();
    while seen.last() != Some(&"completed".to_owned()) {
        let message = stream.message().await;
        assert_eq!(message["method"], "notifications/tasks");
        assert_eq!(message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 1);
        assert_eq!(message["params"]["taskId"], id.as_str());
        seen.push(message["params"]["status"].as_str().unwrap().to_owned());
    }
    assert_eq!(seen, ["working", "completed"]);
}

async fn a_task_past_its_deadline_fails(backing: Backing) {
    let host = Host::start(backing, |builder| {
        builder.call_deadline(Duration::from_secs(60)).principal(|_| Ok(Principal::new("me")))
    })
    .await;
    let client = Client::to(&host);
    let id = client.start("task_until_cancelled", json!({})).await;
    host.sweep_after(Duration::from_secs(61)).await;
    within("the work to notice", host.gates.reached("task cancelled", 1)).await;
    let shown = client.until(&id, "failed").await;
    assert_eq!(shown["error"]["data"]["reason"], "task_stopped");
}

async fn draining_fails_what_does_not_end(backing: Backing) {
    let mut host = host(backing).await;
    let client = Client::to(&host);
    let id = client.start("task_gate", json!({ "name": "never" })).await;
    host.stop().await;
    if backing == Backing::Memory {
        return;
    }
    host.restart().await;
    let shown = Client::to(&host).until(&id, "failed").await;
    assert_eq!(shown["error"]["code"], -32603);
}

async fn finished_tasks_expire(backing: Backing) {
    let host = host(backing).await;
    let client = Client::to(&host);
    let id = client.start("task_gate", json!({ "name": "go" })).await;
    // A task that works does not expire.
    host.sweep_after(Duration::from_secs(50 * 60)).await;
    assert_eq!(client.get(&id).await.answer()["result"]["status"], "working");
    host.gates.open("go");
    client.until(&id, "completed").await;
    host.sweep_after(DAY * 6).await;
    client.until(&id, "completed").await;
    host.sweep_after(DAY * 14).await;
    assert_eq!(client.get(&id).await.refusal(), (200, -32602));
}

#[tokio::test]
async fn a_task_outlives_its_node_as_a_failure_and_its_result_as_it_is() {
    let mut host = host(Backing::Sqlite).await;
    let client = Client::to(&host);
    let finished = client.start("task_gate", json!({ "name": "go", "text": "done" })).await;
    host.gates.open("go");
    client.until(&finished, "completed").await;
    let running = client.start("task_gate", json!({ "name": "never" })).await;
    host.restart().await;
    let client = Client::to(&host);
    assert_eq!(text(&client.until(&finished, "completed").await), "done");
    let shown = client.until(&running, "failed").await;
    assert_eq!(shown["error"]["data"]["reason"], "outcome_unknown");
}

#[tokio::test]
async fn another_process_answers_for_a_task() {
    let here = host(Backing::Sqlite).await;
    let there = here.beside().await;
    let (client, other) = (Client::to(&here), Client::to(&there));
    let id = client.start("task_ask", json!({})).await;
    other.until(&id, "input_required").await;
    other.update(&id, json!({ "one": {}, "two": {} })).await;
    // The second question may have come later than the first answer.
    let finish = async {
        while other.get(&id).await.answer()["result"]["status"] != "completed" {
            other.update(&id, json!({ "one": {}, "two": {} })).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within("the task to hear of its answers", finish).await;
    let id = client.start("task_until_cancelled", json!({})).await;
    other.cancel(&id).await;
    assert_eq!(client.get(&id).await.answer()["result"]["status"], "cancelled");
    within("the work to notice", here.gates.reached("task cancelled", 1)).await;
}

#[tokio::test]
async fn a_result_waits_for_a_store_that_fails_for_a_while() {
    let store = FaultyStore::new(MemoryStore::new(Rules::default()));
    let (faults, store) = (store.faults.clone(), Arc::new(store));
    let host = Host::start(Backing::Memory, move |builder| {
        builder.custom_store(store.clone()).principal(|_| Ok(Principal::new("me")))
    })
    .await;
    let client = Client::to(&host);
    let id = client.start("task_gate", json!({ "name": "go", "text": "done" })).await;
    host.gates.reached("go", 1).await;
    let writes = |operation: Operation<'_>| matches!(operation, Operation::Apply(_, Command::PutState(put)) if has_result(&put.value));
    for fault in [Fault::BeforeCommit, Fault::BeforeCommit, Fault::AfterCommit] {
        faults.push_for(writes, fault);
    }
    host.gates.open("go");
    assert_eq!(text(&client.until(&id, "completed").await), "done");
    assert_eq!(faults.injected(), 3);
}

fn has_result(value: &Option<Bytes>) -> bool {
    value.as_ref().is_some_and(|value| String::from_utf8_lossy(value).contains("Completed"))
}
