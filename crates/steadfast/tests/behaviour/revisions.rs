//! Which revisions an endpoint offers.

use steadfast::{Revision, Revisions};

use crate::support::session::initialize;
use crate::support::{Backing, Host, Http, Modern, Request, Session, Value, json};

async fn offering(revisions: &'static [Revision]) -> Host {
    let revisions = move || Revisions::new(revisions.iter().copied()).expect("not empty");
    Host::start(Backing::Memory, move |builder| builder.revisions(revisions())).await
}

/// A client that is not one of the libraries that send no `User-Agent`.
fn discover(host: &Host, version: &str) -> Request {
    let client = Modern::to(host).meta("io.modelcontextprotocol/protocolVersion", version);
    let request = client.request(1, "server/discover", json!({}));
    request.header("MCP-Protocol-Version", version).header("User-Agent", "tests")
}

async fn listed(host: &Host) -> Value {
    discover(host, "2026-07-28").send().await.json()["result"]["supportedVersions"].clone()
}

#[tokio::test]
async fn declined_stateless_revisions_are_not_an_error_of_discover() {
    let host = offering(&[Revision::V2025_06_18, Revision::V2025_11_25]).await;
    for version in ["2026-07-28", "2027-01-01"] {
        let reply = discover(&host, version).send().await;
        let result = json!({
            "resultType": "complete", "supportedVersions": ["2025-06-18", "2025-11-25"], "capabilities": {},
            "ttlMs": 0, "cacheScope": "private",
        });
        assert_eq!((reply.status, reply.json()), (200, json!({"jsonrpc": "2.0", "id": 1, "result": result})));
    }
    let refused = Modern::to(&host).tool(2, "echo", json!({})).send().await;
    assert_eq!(refused.refusal(), (400, -32022));
    let data = json!({"supported": ["2025-06-18", "2025-11-25"], "requested": "2026-07-28"});
    assert_eq!(refused.json()["error"]["data"], data);
    // A malformed request is no reason to open a session.
    let mismatch = discover(&host, "2026-07-28").header("Mcp-Method", "tools/list").send().await;
    assert_eq!(mismatch.refusal(), (400, -32020));
}

#[tokio::test]
async fn initialize_negotiates_an_offered_revision() {
    let host = offering(&[Revision::V2025_06_18, Revision::V2026_07_28]).await;
    for requested in ["2025-03-26", "2025-11-25", "2026-07-28", "banana"] {
        let reply = Http::to(&host).post(&initialize(requested)).send().await;
        assert_eq!(reply.json()["result"]["protocolVersion"], "2025-06-18", "{requested}");
    }
    Session::at(&host, "2025-06-18").await;
    assert_eq!(listed(&host).await, json!(["2025-06-18", "2026-07-28"]), "declined ones are not listed");
    assert_eq!(Modern::to(&host).say(1, "echo", json!({"text": "x"})).await, "x");
}

#[tokio::test]
async fn an_endpoint_without_sessions_names_what_it_offers() {
    let host = offering(&[Revision::V2026_07_28]).await;
    let refused = Http::to(&host).post(&initialize("2025-11-25")).send().await;
    assert_eq!(refused.refusal(), (400, -32022));
    let data = json!({"supported": ["2026-07-28"], "requested": "2025-11-25"});
    assert_eq!(refused.json()["error"]["data"], data);
    assert_eq!(listed(&host).await, json!(["2026-07-28"]));
}
