//! A server of the other era is told apart, and its client told so.

use steadfast_client::{Client, Era, Error, Revision};

use super::front::Front;
use crate::support::{Reply, Server, json, within};

#[tokio::test]
async fn a_server_with_sessions_is_named_as_such() {
    let error = |status, code: i32| {
        let body = json!({"jsonrpc": "2.0", "id": null, "error": {"code": code, "message": "Server not initialized"}});
        Reply::json_with(status, "", &body)
    };
    for (name, method, reply) in [
        ("not initialised", "tools/list", error(400, -32000)),
        ("no session", "tools/list", error(404, -32001)),
        ("no such page", "tools/list", Reply::new(404, "content-type: text/html\r\n", "<html>")),
        ("not allowed", "tools/list", Reply::status(405)),
    ] {
        let server = Server::raw(move |_| Some(reply.clone())).await;
        let front = Front::of(server.url()).await;
        let (status, _, body) = front.post(method, json!({})).await;
        let expect = json!({
            "jsonrpc": "2.0", "id": "mine",
            "error": {
                "code": -32022,
                "message": "The server behind this gateway does not speak 2026-07-28: it has sessions. Open one with initialize.",
                "data": {"supported": ["2025-03-26", "2025-06-18", "2025-11-25"], "requested": "2026-07-28"},
            },
        });
        assert_eq!((status, serde_json::from_str(&body).ok()), (400, Some(expect)), "{name}");
    }
}

/// Some clients stop after an error. They open a session after a result that lists no stateless
/// revision.
#[tokio::test]
async fn an_unknown_question_has_a_result_that_offers_sessions() {
    let unknown = json!({"code": -32601, "message": "Method not found"});
    for (name, status, error) in
        [("unknown", 200, Some(unknown.clone())), ("missing", 404, Some(unknown)), ("plain", 422, None)]
    {
        let server = Server::raw(move |request| {
            Some(match &error {
                Some(error) => Reply::error(request, status, error),
                None => Reply::status(status),
            })
        })
        .await;
        let (status, _, body) = Front::of(server.url())
            .await
            .post_with("server/discover", json!({}), &[("user-agent", "tests")])
            .await;
        let result = json!({
            "resultType": "complete", "capabilities": {}, "ttlMs": 0, "cacheScope": "private",
            "supportedVersions": ["2025-03-26", "2025-06-18", "2025-11-25"],
        });
        let expect = json!({"jsonrpc": "2.0", "id": "mine", "result": result});
        assert_eq!((status, serde_json::from_str(&body).ok()), (200, Some(expect)), "{name}");
    }
}

#[tokio::test]
async fn an_unknown_method_of_a_stateless_server_is_its_answer() {
    let error = json!({"code": -32601, "message": "Method not found"});
    let server = Server::raw(move |request| Some(Reply::error(request, 200, &error))).await;
    let front = Front::of(server.url()).await;
    let (status, _, body) = front.post("tools/list", json!({})).await;
    assert!(status == 404 && body.contains("-32601"), "{status} {body}");
}

#[tokio::test]
async fn a_client_with_sessions_is_told_of_a_server_without() {
    let server = Server::raw(|request| {
        let data = json!({"supported": ["2026-07-28"], "requested": "2025-11-25"});
        Some(Reply::error(request, 400, &json!({"code": -32022, "message": "m", "data": data})))
    })
    .await;
    let mut config = steadfast_client::Config::new(server.url());
    config.era = Era::Session(Revision::V2025_11_25);
    let error = within("a refusal", Client::connect(config, ())).await.expect_err("there are no sessions");
    assert_eq!(error, Error::NoCommonRevision { offered: vec!["2026-07-28".to_owned()] });
}
