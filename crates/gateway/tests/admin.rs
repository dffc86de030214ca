//! The admin listener: health checks and metrics.
#![cfg(unix)]

mod support;

use std::collections::BTreeMap;

use serde_json::json;
use support::{Server, countdown, get, note};

#[test]
fn health_and_readiness() {
    let server = Server::start_with(&["--store", "memory:", "--admin", "127.0.0.1:0", "--drain", "10m"]);
    assert!(get(server.admin(), "/healthz").ends_with("\r\n\r\nalive\n"));
    assert!(get(server.admin(), "/readyz").starts_with("HTTP/1.1 200"));
    assert!(get(server.admin(), "/mcp").starts_with("HTTP/1.1 404"));
    let session = server.open_session();
    let mut running = server.post(Some(&session), &countdown(1, 1000, 60_000));
    running.read_until("\"progress\":0.0");
    server.signal("TERM");
    server.wait_until_closed();
    let reply = get(server.admin(), "/readyz");
    assert!(reply.starts_with("HTTP/1.1 503"), "{reply}");
    assert!(reply.ends_with("not ready: the gateway is shutting down\n"), "{reply}");
    assert!(get(server.admin(), "/healthz").starts_with("HTTP/1.1 200"), "/healthz answers during the drain");
}

#[test]
fn there_is_no_admin_listener_by_default() {
    let server = Server::start_with(&["--store", "memory:"]);
    assert!(!server.banner().contains("admin"));
    assert!(server.at("/metrics").send("GET", None, "", "").read_to_end().starts_with("HTTP/1.1 404"));
}

#[test]
fn what_happens_is_counted() {
    let demo = Server::start_with(&["--store", "memory:"]);
    let url = format!("http://{}/mcp", demo.address());
    let gateway = Server::serve(&[
        "--upstream",
        &url,
        "--listen",
        "127.0.0.1:0",
        "--store",
        "memory:",
        "--admin",
        "127.0.0.1:0",
    ]);
    let session = gateway.open_session();
    gateway.post(Some(&session), &note("x")).read_to_end();
    let first = gateway.post(Some(&session), &countdown(1, 2, 0)).read_to_end();
    let event = support::id_of(support::events(&first)[0]).to_owned();
    gateway.resume(&session, &event).read_to_end();
    let wrong = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "nothing"}});
    gateway.post(Some(&session), &wrong).read_to_end();
    gateway.post(Some("no-such-session"), &note("x")).read_to_end();
    gateway.at("/elsewhere").send("PATCH", None, "", "").read_to_end();
    let mut standalone = gateway.at("/mcp").send("GET", Some(&session), "", "");
    standalone.read_until("\n\n");
    let seen = metrics(&gateway);
    let at = |name: &str| seen.get(name).copied().unwrap_or_else(|| panic!("{name} in {seen:#?}"));
    for (name, expect) in [
        (r#"steadfast_sessions"#.to_owned(), 1.0),
        (r#"steadfast_session_events_total{endpoint="/mcp",event="opened"}"#.to_owned(), 1.0),
        (r#"steadfast_calls_begun_total{endpoint="/mcp"}"#.to_owned(), 3.0),
        (r#"steadfast_calls_finished_total{endpoint="/mcp",outcome="result"}"#.to_owned(), 2.0),
        (r#"steadfast_calls_finished_total{endpoint="/mcp",outcome="error"}"#.to_owned(), 1.0),
        (r#"steadfast_call_seconds_count{endpoint="/mcp"}"#.to_owned(), 3.0),
        (r#"steadfast_attachments_total{endpoint="/mcp",kind="resumed"}"#.to_owned(), 1.0),
        (r#"steadfast_attachments_total{endpoint="/mcp",kind="standalone"}"#.to_owned(), 1.0),
        (r#"steadfast_streams{endpoint="/mcp"}"#.to_owned(), 1.0),
        (r#"steadfast_refusals_total{endpoint="/mcp",status="404",reason="no_session"}"#.to_owned(), 1.0),
        (r#"steadfast_refusals_total{endpoint="",status="404",reason="no_endpoint"}"#.to_owned(), 1.0),
        (r#"steadfast_responses_total{endpoint="",method="other",status="404"}"#.to_owned(), 1.0),
        (format!(r#"steadfast_replica_up{{endpoint="/mcp",replica="{url}"}}"#), 1.0),
        (format!(r#"steadfast_replica_sessions{{endpoint="/mcp",replica="{url}"}}"#), 1.0),
        (r#"steadfast_queued_calls{endpoint="/mcp"}"#.to_owned(), 0.0),
    ] {
        assert_eq!(at(&name), expect, "{name}");
    }
    for name in ["received_bytes_total", "sent_bytes_total"] {
        assert!(at(&format!(r#"steadfast_{name}{{endpoint="/mcp"}}"#)) > 100.0, "{name}");
    }
    assert!(at(r#"steadfast_store_seconds_count{operation="apply"}"#) > 3.0);
    let text = get(gateway.admin(), "/metrics");
    assert!(!text.contains(&session[..8]), "no label names a session");
}

/// Requests of revision 2026-07-28 are calls. Subscriptions are not: their duration depends on the
/// client.
#[test]
fn requests_without_a_session_are_counted_as_calls() {
    let demo = Server::start_with(&["--store", "memory:", "--admin", "127.0.0.1:0"]);
    let url = format!("http://{}/mcp", demo.address());
    let arguments = ["--listen", "127.0.0.1:0", "--store", "memory:", "--admin", "127.0.0.1:0"];
    let gateway = Server::serve(&[&["--upstream", &url][..], &arguments[..]].concat());
    let post = |method: &str, params: serde_json::Value| {
        let mut params = params;
        params["_meta"] = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}});
        let name = params["name"].as_str().map(|name| format!("Mcp-Name: {name}\r\n")).unwrap_or_default();
        let headers = format!(
            "Content-Type: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n{name}"
        );
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        gateway.at("/mcp").send("POST", None, &headers, &request.to_string())
    };
    let found = post("server/discover", json!({})).read_to_end();
    assert!(found.contains("supportedVersions"), "{found}");
    let countdown = json!({"name": "countdown", "arguments": {"from": 1, "step_ms": 0}});
    let answer = post("tools/call", countdown).read_to_end();
    assert!(answer.contains("\"result\""), "{answer}");
    // Slow enough to be stored, which must not count again.
    let slow = json!({"name": "countdown", "arguments": {"from": 2, "step_ms": 300}});
    let answer = post("tools/call", slow).read_to_end();
    assert!(answer.contains("\nid: ") && answer.contains("\"result\""), "{answer}");
    let refused = post("tools/call", json!({"name": "nothing"})).read_to_end();
    assert!(refused.contains("\"error\""), "{refused}");
    let mut subscription = post("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    subscription.read_until("acknowledged");
    // The gateway itself has asked the demo server for its revisions as well.
    for (server, begun, results, seconds) in [(&gateway, 4.0, 3.0, Some(4.0)), (&demo, 5.0, 4.0, None)] {
        let seen = metrics(server);
        let at = |name: &str| seen.get(name).copied();
        assert_eq!(at(r#"steadfast_calls_begun_total{endpoint="/mcp"}"#), Some(begun), "{seen:#?}");
        let finished = |outcome: &str| {
            at(&format!(r#"steadfast_calls_finished_total{{endpoint="/mcp",outcome="{outcome}"}}"#))
        };
        assert_eq!((finished("result"), finished("error")), (Some(results), Some(1.0)), "{seen:#?}");
        assert_eq!(at(r#"steadfast_call_seconds_count{endpoint="/mcp"}"#), seconds, "{seen:#?}");
        assert_eq!(at(r#"steadfast_subscriptions{endpoint="/mcp"}"#), Some(1.0));
    }
}

/// claude.ai sends one id with every request.
#[test]
fn quirks_are_counted_and_logged_with_their_reason() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let arguments = ["--demo", "--listen", "127.0.0.1:0", "--store", "memory:", "--admin", "127.0.0.1:0"];
    let server = Server::serve_logged(&arguments, &log, &[]);
    let client = json!({"name": "Anthropic/ClaudeAI", "version": "1.0.0"});
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
    let opened =
        server.post(None, &json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}));
    let opened = opened.read_to_end();
    let session = opened.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap();
    let mut running = server.post(Some(session), &countdown(1, 1000, 60_000));
    running.read_until("\"progress\":0.0");
    let second = server.post(Some(session), &countdown(1, 1, 0)).read_to_end();
    assert!(second.contains("lift-off"), "{second}");
    let name = r#"steadfast_quirks_total{endpoint="/mcp",quirk="isolate_duplicate_ids"}"#;
    assert_eq!(metrics(&server).get(name), Some(&1.0));
    let log = std::fs::read_to_string(log).unwrap();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("known quirks")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains("isolate_duplicate_ids: Sends `id: 1` with every request"), "{}", lines[0]);
}

fn metrics(server: &Server) -> BTreeMap<String, f64> {
    let text = get(server.admin(), "/metrics");
    assert!(
        text.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"),
        "{text}"
    );
    assert!(text.ends_with("# EOF\n"), "{text}");
    let samples = text.lines().filter(|line| line.starts_with("steadfast_"));
    samples
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(name, value)| (name.to_owned(), value.parse().expect("a number")))
        .collect()
}
