//! What servers answer, and what they fail to.

use std::time::Duration;

use http::HeaderValue;
use steadfast_client::transport::{Http, Transport as _};
use steadfast_client::{Limits, Timeouts};
use steadfast_upstream::{Config, Credential};

use super::front::{Front, closed};
use crate::support::{Reply, Request, Server, Value, json};

fn echo() -> Value {
    json!({"name": "echo", "arguments": {}})
}

/// The status and the message that come back when the server does this.
async fn answer(script: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> (u16, Value) {
    let server = Server::raw(move |request| Some(script(request))).await;
    let front = Front::of(server.url()).await;
    let (status, headers, body) = front.post("tools/call", echo()).await;
    assert_eq!(headers["content-type"], "application/json", "{body}");
    (status, serde_json::from_str(&body).expect("JSON"))
}

#[tokio::test]
async fn an_answer_comes_back_as_it_was_whatever_its_framing() {
    let result = r#"{"resultType":"input_required",  "requestState":"\u0041","x":1.50}"#;
    let message = move |request: &Request| {
        format!(r#"{{"id":{},"result":{result},"jsonrpc":"2.0"}}"#, request.body["id"])
    };
    type Framing = fn(String) -> Reply;
    let framings: [(&str, Framing); 6] = [
        ("JSON", |text| Reply::new(200, "content-type: application/json; charset=utf-8\r\n", &text)),
        ("SSE", |text| Reply::stream().send(&format!("event: message\ndata: {text}\n\n"))),
        ("CRLF", |text| Reply::stream().send(&format!(": hi\r\ndata:{text}\r\n\r\n"))),
        ("drip", |text| Reply::stream().drip(&format!("id: 1\nretry: 5\ndata: \n\ndata: {text}\n\n"))),
        ("chunked", |text| Reply::chunked().chunk(&format!("\u{feff}data: {text}\n")).chunk("\n").end()),
        ("open", |text| Reply::stream().send(&format!("data: {text}\n\n")).hang()),
    ];
    for (name, framing) in framings {
        let server = Server::raw(move |request| Some(framing(message(request)))).await;
        let front = Front::of(server.url()).await;
        let (status, _, body) = front.post("tools/call", echo()).await;
        let expect = format!(r#"{{"jsonrpc":"2.0","id":"mine","result":{result}}}"#);
        assert_eq!((status, body), (200, expect), "{name}");
    }
}

#[tokio::test]
async fn the_request_goes_on_as_it_came_with_an_id_of_ours() {
    let server = Server::raw(|request| Some(Reply::result(request, &json!({})))).await;
    let mut config = Config::http(vec![server.url()]);
    config.credential = Credential::Own(HeaderValue::from_static("Bearer ours"));
    let front = Front::with(config).await;
    let params =
        json!({"name": "echo", "requestState": "s", "inputResponses": {"a": 1}, "_meta": {"x": 2.5}});
    let extra = [("mcp-param-region", "eu"), ("authorization", "Bearer theirs"), ("cookie", "a=b")];
    front.post_with("tools/call", params.clone(), &extra).await;
    front.post("tools/call", echo()).await;
    let log = server.log();
    assert_eq!((&log[0].body["id"], &log[1].body["id"]), (&json!(1), &json!(2)));
    let mut expect = params;
    expect["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
    expect["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    assert_eq!(log[0].body["params"], expect);
    for (name, value) in [
        ("mcp-protocol-version", Some("2026-07-28")),
        ("mcp-method", Some("tools/call")),
        ("mcp-name", Some("echo")),
        ("mcp-param-region", Some("eu")),
        ("authorization", Some("Bearer ours")),
        ("cookie", None),
    ] {
        assert_eq!(log[0].header(name), value, "{name}");
    }
}

#[tokio::test]
async fn progress_comes_back_under_the_token_of_the_client() {
    let server = Server::raw(|request| {
        let token = &request.body["params"]["_meta"]["progressToken"];
        assert_eq!(*token, request.body["id"]);
        let progress = |token: &Value| {
            json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}})
        };
        let log = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}});
        let stream = Reply::stream().event(&progress(token)).event(&progress(&json!(999))).event(&log);
        Some(stream.answer(request, &json!({})))
    })
    .await;
    let front = Front::of(server.url()).await;
    let params = json!({"name": "echo", "_meta": {"progressToken": "t"}});
    let (status, headers, body) = front.post("tools/call", params).await;
    assert_eq!((status, headers["content-type"].to_str().unwrap()), (200, "text/event-stream"));
    let seen: Vec<Value> = body
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    assert_eq!(
        seen,
        [
            json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "t", "progress": 1}}),
            json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}}),
            json!({"jsonrpc": "2.0", "id": "mine", "result": {}}),
        ]
    );
}

#[tokio::test]
async fn an_error_of_the_server_keeps_its_code_and_data() {
    let error = json!({"code": -32021, "message": "m", "data": {"requiredCapabilities": {"sampling": {}}}});
    let theirs = error.clone();
    let (status, body) = answer(move |request| Reply::error(request, 400, &theirs)).await;
    assert_eq!((status, body), (400, json!({"jsonrpc": "2.0", "id": "mine", "error": error})));
    let unknown = json!({"code": -32601, "message": "no such method"});
    let (status, body) = answer(move |request| Reply::error(request, 404, &unknown)).await;
    assert_eq!((status, &body["error"]["code"]), (404, &json!(-32601)));
    let custom = json!({"code": 1234, "message": "m"});
    let (status, body) = answer(move |request| Reply::error(request, 200, &custom)).await;
    assert_eq!((status, &body["error"]["code"]), (200, &json!(1234)));
}

/// The reason of an error and whether to try again.
fn reason(body: &Value) -> (&str, bool) {
    let data = &body["error"]["data"];
    (data["reason"].as_str().unwrap_or_default(), data["retryable"].as_bool().unwrap_or_default())
}

#[tokio::test]
async fn a_stream_that_breaks_leaves_the_outcome_unknown() {
    for (name, reply) in [
        ("ended", Reply::stream()),
        ("broken", Reply::chunked().chunk("data: {\"jsonrpc\"")),
        ("head", Reply::default()),
        (
            "short",
            Reply::default()
                .send("HTTP/1.1 200 x\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{"),
        ),
        ("failed", Reply::status(500)),
        ("bad gateway", Reply::new(502, "content-type: text/html\r\n", "<html>nginx")),
        ("unavailable", Reply::new(503, "content-type: text/html\r\n", "<html>nginx")),
        ("too slow", Reply::new(504, "content-type: text/html\r\n", "<html>nginx")),
        ("accepted", Reply::status(202)),
        ("empty", Reply::new(200, "content-type: application/json\r\n", "")),
        ("other", Reply::json(&json!({"jsonrpc": "2.0", "id": 999, "result": {}}))),
    ] {
        let (status, body) = answer(move |_| reply.clone()).await;
        assert_eq!((status, reason(&body)), (200, ("outcome_unknown", false)), "{name}: {body}");
        assert!(!body.to_string().contains("nginx"), "{name}: {body}");
    }
    let server = Server::raw(|_| Some(Reply::stream())).await;
    let front = Front::of(server.url()).await;
    let (_, _, body) = front.post("tools/list", json!({})).await;
    assert_eq!(reason(&serde_json::from_str(&body).unwrap()), ("outcome_unknown", true));
}

#[tokio::test]
async fn an_answer_that_is_none_is_said_so() {
    let server_request = json!({"jsonrpc": "2.0", "id": 5, "method": "sampling/createMessage", "params": {}});
    let large = "x".repeat(Limits::default().event_bytes + 1);
    for (name, reply) in [
        ("page", Reply::new(200, "content-type: text/html\r\n", "<html>")),
        ("ask", Reply::stream().event(&server_request).hang()),
        ("large", Reply::stream().send(&format!("data: {large}\n\n")).hang()),
        ("moved", Reply::new(302, "location: /there\r\n", "")),
    ] {
        let (status, body) = answer(move |_| reply.clone()).await;
        assert_eq!((status, reason(&body)), (200, ("bad_response", false)), "{name}: {body}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let front = Front::of(format!("http://{port}/mcp").parse().unwrap()).await;
    let (status, _, body) = front.post("tools/call", echo()).await;
    assert_eq!(
        (status, reason(&serde_json::from_str(&body).unwrap())),
        (200, ("upstream_unavailable", true))
    );
}

#[tokio::test]
async fn a_server_that_says_nothing_is_not_waited_for() {
    let server = Server::raw(|_| Some(Reply::default().hang())).await;
    let mut config = Config::http(vec![server.url()]);
    config.timeouts = Timeouts { head: Duration::from_millis(50), ..config.timeouts };
    let (_, _, body) = Front::with(config.clone()).await.post("tools/call", echo()).await;
    assert_eq!(reason(&serde_json::from_str(&body).unwrap()), ("outcome_unknown", false));
    let server = Server::raw(|_| Some(Reply::stream().send(": hi\n\n").hang())).await;
    let mut config = Config::http(vec![server.url()]);
    config.timeouts = Timeouts { call: Duration::from_millis(50), ..config.timeouts };
    let (_, _, body) = Front::with(config).await.post("tools/call", echo()).await;
    assert_eq!(reason(&serde_json::from_str(&body).unwrap()), ("outcome_unknown", false));
    closed(&server).await;
}

#[tokio::test]
async fn a_client_that_goes_closes_the_connection_to_the_server() {
    for begun in [Reply::default(), Reply::stream().send(": hi\n\n")] {
        let server = Server::raw(move |_| Some(begun.clone().hang())).await;
        let front = Front::of(server.url()).await;
        let http = Http::new(&Timeouts::default(), &Limits::default());
        let request = front.request("tools/call", echo(), &[]);
        let sent = tokio::spawn(async move { http.send(request).await.map(|_| ()) });
        server.until("the request", |log| !log.is_empty()).await;
        sent.abort();
        closed(&server).await;
    }
}
