//! Which revision is spoken with whom.

use steadfast_client::{Client, Era, Error, Revision};

use crate::support::{Reply, Request, Server, Value, config, json, within};

/// What a server does about the three ways to begin.
#[derive(Clone)]
struct Face {
    discover: Reply,
    initialize: Reply,
    get: Reply,
}

impl Default for Face {
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

/// What was sent, and what came of it.
async fn check(era: Era, face: Face, sent: &[&str], expect: Result<Revision, &str>) {
    let server = Server::raw(move |request: &Request| {
        let reply = match (request.verb.as_str(), request.method()) {
            ("GET", _) => &face.get,
            (_, "server/discover") => &face.discover,
            (_, "initialize") => &face.initialize,
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
async fn stateless_servers_are_recognised() {
    let ours = Revision::V2026_07_28;
    let face = Face { discover: discovered(&["2025-11-25", "2026-07-28"]), ..Face::default() };
    check(Era::Probe, face.clone(), &[D], Ok(ours)).await;
    check(Era::Stateless, face, &[D], Ok(ours)).await;
    let stream = json!({"supportedVersions": ["2026-07-28"]});
    let stream = format!("data: {{\"jsonrpc\":\"2.0\",\"id\":$ID,\"result\":{stream}}}\n\n");
    let face = Face { discover: Reply::stream().send(": hello\n\n").send(&stream), ..Face::default() };
    check(Era::Probe, face, &[D], Ok(ours)).await;
    let face = Face { discover: discovered(&["2027-01-01"]), ..Face::default() };
    check(Era::Probe, face, &[D], Err("the server speaks 2027-01-01 and no revision of ours")).await;
    // It knows the question, so it is not asked in the old way.
    for code in [-32020, -32021] {
        let face = Face { discover: error(400, code), ..Face::default() };
        check(Era::Probe, face, &[D], Err("the server refused with status 400: m")).await;
    }
    // The refusal counts although its sender has not read our id.
    let face = Face { discover: unsupported(&["2030-01-01"]).replace("$ID", "null"), ..Face::default() };
    check(Era::Probe, face, &[D], Err("the server speaks 2030-01-01 and no revision of ours")).await;
    let face = Face { discover: unsupported(&["2026-07-28"]), ..Face::default() };
    check(Era::Probe, face, &[D, D], Err("the server speaks 2026-07-28 and no revision of ours")).await;
}

#[tokio::test]
async fn servers_with_sessions_are_recognised() {
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
        let face = Face { discover, initialize: initialized("2025-06-18"), ..Face::default() };
        check(Era::Probe, face, &[D, I], Ok(Revision::V2025_06_18)).await;
    }
    // A page, an empty answer and a stream without one are no answers.
    for discover in [no(200), no(202), Reply::stream()] {
        let face = Face { discover, initialize: initialized("2025-06-18"), ..Face::default() };
        check(Era::Probe, face, &[D, I], Ok(Revision::V2025_06_18)).await;
    }
    // It names what it speaks, so that is what it is offered.
    let face = Face {
        discover: unsupported(&["2024-11-05", "2025-03-26", "2025-06-18"]),
        initialize: initialized("2025-06-18"),
        ..Face::default()
    };
    check(Era::Probe, face, &[D, "initialize 2025-06-18"], Ok(Revision::V2025_06_18)).await;
    let face = Face { initialize: initialized("2025-03-26"), ..Face::default() };
    check(
        Era::Session(Revision::V2025_06_18),
        face.clone(),
        &["initialize 2025-06-18"],
        Ok(Revision::V2025_03_26),
    )
    .await;
    check(Era::Stateless, face, &[D], Err("the server speaks nothing and no revision of ours")).await;
}

#[tokio::test]
async fn a_closed_door_or_a_fault_says_nothing_about_revisions() {
    for status in [301, 401, 403, 429, 500, 503] {
        let face = Face { discover: no(status), initialize: initialized("2025-11-25"), ..Face::default() };
        let expect = format!("the server refused with status {status}");
        check(Era::Probe, face, &[D], Err(&expect)).await;
    }
}

#[tokio::test]
async fn what_is_not_spoken_here_is_said() {
    let old = "the server speaks 2024-11-05 over HTTP+SSE, which this client does not";
    for status in [400, 404, 405] {
        let get = Reply::stream().send("event: endpoint\ndata: /message?sessionId=1\n\n");
        let face = Face { discover: no(status), initialize: no(status), get };
        check(Era::Probe, face.clone(), &[D, I, "GET"], Err(old)).await;
        check(Era::Session(Revision::V2025_11_25), face, &[I, "GET"], Err(old)).await;
    }
    let refused = "the server refused with status 404";
    let face = Face { discover: no(404), initialize: no(404), get: Reply::stream().send("data: x\n\n") };
    check(Era::Probe, face, &[D, I, "GET"], Err(refused)).await;
    let face = Face { initialize: initialized("2024-11-05"), ..Face::default() };
    check(Era::Probe, face, &[D, I], Err("the server speaks 2024-11-05 and no revision of ours")).await;
    let face = Face { initialize: unsupported(&["2026-07-28"]), ..Face::default() };
    let expect = "the server speaks 2026-07-28 and no revision of ours";
    check(Era::Session(Revision::V2025_11_25), face, &[I], Err(expect)).await;
    let expect = "the configuration cannot be used: this revision has no sessions";
    check(Era::Session(Revision::V2026_07_28), Face::default(), &[], Err(expect)).await;
}
