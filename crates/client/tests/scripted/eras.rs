//! Detection of protocol eras and negotiation of revisions.

use steadfast_client::{Client, Era, Error, Revision};

use crate::support::{Reply, Request, Server, Value, config, json, within};

/// How a server responds to the three ways to start: `server/discover`, `initialize` and GET.
#[derive(Clone)]
struct Behaviour {
    discover: Reply,
    initialize: Reply,
    get: Reply,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self { discover: no(400), initialize: no(400), get: no(405) }
    }
}

fn no(status: u16) -> Reply {
    Reply::new(status, "content-type: text/html\r\n", "<p>no</p>")
}

/// `$ID` stands for the id of the request.
fn json_reply(status: u16, member: &str, value: &Value) -> Reply {
    let text = format!(r#"{{"jsonrpc":"2.0","id":$ID,"{member}":{value}}}"#);
    let head = format!("HTTP/1.1 {status} x\r\ncontent-type: application/json\r\n\r\n");
    Reply::default().send(&format!("{head}{text}"))
}

fn discovered(versions: &[&str]) -> Reply {
    json_reply(200, "result", &json!({"supportedVersions": versions, "capabilities": {}}))
}

fn initialized(version: &str) -> Reply {
    json_reply(200, "result", &json!({"protocolVersion": version, "capabilities": {}}))
}

fn unsupported(versions: &[&str]) -> Reply {
    json_reply(400, "error", &json!({"code": -32022, "message": "m", "data": {"supported": versions}}))
}

fn error(status: u16, code: i32) -> Reply {
    json_reply(status, "error", &json!({"code": code, "message": "m"}))
}

/// Checks which requests the client sent, and the outcome.
async fn check(era: Era, behaviour: Behaviour, sent: &[&str], expect: Result<Revision, &str>) {
    let server = Server::raw(move |request: &Request| {
        let reply = match (request.verb.as_str(), request.method()) {
            ("GET", _) => &behaviour.get,
            (_, "server/discover") => &behaviour.discover,
            (_, "initialize") => &behaviour.initialize,
            (_, "notifications/initialized") => return Some(Reply::status(202)),
            _ => return None,
        };
        Some(reply.clone().replace("$ID", &request.body["id"].to_string()))
    })
    .await;
    let mut config = config(&server);
    config.era = era;
    let outcome: Result<Client, Error> = within("an agreement", Client::connect(config, ())).await;
    let log = server.log();
    let log: Vec<_> = log
        .iter()
        .filter(|one| one.method() != "notifications/initialized")
        .map(|one| match one.body["params"]["protocolVersion"].as_str() {
            Some(version) => format!("{} {version}", one.method()),
            None if one.verb == "GET" => "GET".to_owned(),
            None => one.method().to_owned(),
        })
        .collect();
    let outcome = outcome.map(|client| client.revision()).map_err(|error| error.to_string());
    assert_eq!(
        (log, outcome),
        (sent.iter().map(|one| (*one).to_owned()).collect(), expect.map_err(str::to_owned))
    );
}

const D: &str = "server/discover";
const I: &str = "initialize 2025-11-25";

#[tokio::test]
async fn stateless_servers_are_detected() {
    let ours = Revision::V2026_07_28;
    let behaviour = Behaviour { discover: discovered(&["2025-11-25", "2026-07-28"]), ..Behaviour::default() };
    check(Era::Probe, behaviour.clone(), &[D], Ok(ours)).await;
    check(Era::Stateless, behaviour, &[D], Ok(ours)).await;
    let stream = json!({"supportedVersions": ["2026-07-28"]});
    let stream = format!("data: {{\"jsonrpc\":\"2.0\",\"id\":$ID,\"result\":{stream}}}\n\n");
    let behaviour =
        Behaviour { discover: Reply::stream().send(": hello\n\n").send(&stream), ..Behaviour::default() };
    check(Era::Probe, behaviour, &[D], Ok(ours)).await;
    let behaviour = Behaviour { discover: discovered(&["2027-01-01"]), ..Behaviour::default() };
    check(
        Era::Probe,
        behaviour,
        &[D],
        Err("the server supports 2027-01-01 and no revision that this client supports"),
    )
    .await;
    // These errors show that the server knows `server/discover`, so the client does not send
    // `initialize`.
    for code in [-32020, -32021] {
        let behaviour = Behaviour { discover: error(400, code), ..Behaviour::default() };
        check(Era::Probe, behaviour, &[D], Err("the server refused with status 400: m")).await;
    }
    // The error counts although it has no id.
    let behaviour =
        Behaviour { discover: unsupported(&["2030-01-01"]).replace("$ID", "null"), ..Behaviour::default() };
    check(
        Era::Probe,
        behaviour,
        &[D],
        Err("the server supports 2030-01-01 and no revision that this client supports"),
    )
    .await;
    let behaviour = Behaviour { discover: unsupported(&["2026-07-28"]), ..Behaviour::default() };
    check(
        Era::Probe,
        behaviour,
        &[D, D],
        Err("the server supports 2026-07-28 and no revision that this client supports"),
    )
    .await;
}

#[tokio::test]
async fn servers_with_sessions_are_detected() {
    for discover in [
        no(400),
        no(404),
        no(405),
        no(415),
        no(422),
        error(400, -32000),
        error(404, -32601),
        error(200, -32601),
    ] {
        let behaviour = Behaviour { discover, initialize: initialized("2025-06-18"), ..Behaviour::default() };
        check(Era::Probe, behaviour, &[D, I], Ok(Revision::V2025_06_18)).await;
    }
    // An HTML page, an empty body and a stream without an answer are not answers.
    for discover in [no(200), no(202), Reply::stream()] {
        let behaviour = Behaviour { discover, initialize: initialized("2025-06-18"), ..Behaviour::default() };
        check(Era::Probe, behaviour, &[D, I], Ok(Revision::V2025_06_18)).await;
    }
    // The client offers a revision that the server lists.
    let behaviour = Behaviour {
        discover: unsupported(&["2024-11-05", "2025-03-26", "2025-06-18"]),
        initialize: initialized("2025-06-18"),
        ..Behaviour::default()
    };
    check(Era::Probe, behaviour, &[D, "initialize 2025-06-18"], Ok(Revision::V2025_06_18)).await;
    let behaviour = Behaviour { initialize: initialized("2025-03-26"), ..Behaviour::default() };
    check(
        Era::Session(Revision::V2025_06_18),
        behaviour.clone(),
        &["initialize 2025-06-18"],
        Ok(Revision::V2025_03_26),
    )
    .await;
    check(
        Era::Stateless,
        behaviour,
        &[D],
        Err("the server supports nothing and no revision that this client supports"),
    )
    .await;
}

#[tokio::test]
async fn a_denial_or_a_failure_says_nothing_about_revisions() {
    for status in [301, 401, 403, 429, 500, 503] {
        let behaviour =
            Behaviour { discover: no(status), initialize: initialized("2025-11-25"), ..Behaviour::default() };
        let expect = format!("the server refused with status {status}");
        check(Era::Probe, behaviour, &[D], Err(&expect)).await;
    }
}

#[tokio::test]
async fn unsupported_revisions_are_reported() {
    let old = "the server supports only 2024-11-05 over HTTP+SSE, which this client does not support";
    for status in [400, 404, 405] {
        let get = Reply::stream().send("event: endpoint\ndata: /message?sessionId=1\n\n");
        let behaviour = Behaviour { discover: no(status), initialize: no(status), get };
        check(Era::Probe, behaviour.clone(), &[D, I, "GET"], Err(old)).await;
        check(Era::Session(Revision::V2025_11_25), behaviour, &[I, "GET"], Err(old)).await;
    }
    let refused = "the server refused with status 404";
    let behaviour =
        Behaviour { discover: no(404), initialize: no(404), get: Reply::stream().send("data: x\n\n") };
    check(Era::Probe, behaviour, &[D, I, "GET"], Err(refused)).await;
    let behaviour = Behaviour { initialize: initialized("2024-11-05"), ..Behaviour::default() };
    check(
        Era::Probe,
        behaviour,
        &[D, I],
        Err("the server supports 2024-11-05 and no revision that this client supports"),
    )
    .await;
    let behaviour = Behaviour { initialize: unsupported(&["2026-07-28"]), ..Behaviour::default() };
    let expect = "the server supports 2026-07-28 and no revision that this client supports";
    check(Era::Session(Revision::V2025_11_25), behaviour, &[I], Err(expect)).await;
    let expect = "invalid client configuration: this revision has no sessions";
    check(Era::Session(Revision::V2026_07_28), Behaviour::default(), &[], Err(expect)).await;
}
