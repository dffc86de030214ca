//! Calls of 2026-07-28 through real processes: a client resumes the response after its connection
//! broke, at another gateway, and after a gateway was killed.

mod support;

use serde_json::{Value, json};
use support::{Reply, Server, events, eventually, id_of, messages};

const VERSION: &str = "MCP-Protocol-Version: 2026-07-28\r\n";

/// A call that counts down, with a progress notification for each step.
fn countdown(server: &Server, id: impl Into<Value>, from: u64, step_ms: u64) -> Reply {
    let message = json!({"jsonrpc": "2.0", "id": id.into(), "method": "tools/call", "params": {
        "name": "countdown", "arguments": {"from": from, "step_ms": step_ms}, "_meta": {
            "progressToken": "p",
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    }});
    let headers = format!(
        "Content-Type: application/json\r\n{VERSION}Mcp-Method: tools/call\r\nMcp-Name: countdown\r\n"
    );
    server.at("/mcp").send("POST", None, &headers, &message.to_string())
}

fn resume(server: &Server, event: &str) -> Reply {
    server.at("/mcp").send("GET", None, &format!("{VERSION}Last-Event-ID: {event}\r\n"), "")
}

/// The arguments of a gateway in front of `upstream`, with its sessions in `store`.
fn gateway(upstream: &Server, store: &str) -> Server {
    let url = format!("http://{}/mcp", upstream.address());
    Server::serve(&["--upstream", &url, "--listen", "127.0.0.1:0", "--store", store])
}

/// A gateway with one endpoint.
fn configured(endpoint: &str) -> Server {
    let directory = tempfile::tempdir().expect("a folder");
    let file = directory.path().join("steadfast.toml");
    let text = format!(
        "listen = \"127.0.0.1:0\"\nstore = \"memory:\"\nadmin.listen = \"127.0.0.1:0\"\n[[endpoint]]\n{endpoint}\n"
    );
    std::fs::write(&file, text).expect("the file is written");
    Server::serve(&["--config", &file.display().to_string()])
}

fn is_answer(message: &Value) -> bool {
    message.get("method").is_none()
}

#[test]
fn a_call_is_resumed_through_the_gateway_and_at_another_gateway() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", directory.path().join("sessions.db").display());
    let upstream = Server::start_with(&["--store", "memory:"]);
    let (one, two) = (gateway(&upstream, &store), gateway(&upstream, &store));
    let mut first = countdown(&one, "my id", 20, 100);
    let seen = first.read_until("\"progress\":1.0");
    drop(first);
    let mut whole = Vec::new();
    for (server, i) in [(&one, 0), (&two, 1)] {
        let from = id_of(events(&seen)[i]).to_owned();
        let rest = resume(server, &from).read_to_end();
        let rest = events(&rest);
        assert_eq!(id_of(rest[0]), from, "a resumed stream first repeats the id");
        whole.push(rest[1..].iter().map(|event| (*event).to_owned()).collect::<Vec<_>>());
    }
    assert_eq!(whole[0][1..], whole[1], "byte for byte");
    let answers: Vec<Value> = messages(&whole[0].join("\n\n")).into_iter().filter(is_answer).collect();
    assert_eq!((answers.len(), &answers[0]["id"]), (1, &json!("my id")));
    assert!(answers[0]["result"].is_object(), "{answers:?}");
}

#[test]
fn a_killed_gateway_leaves_an_answer_for_the_client_that_resumes() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", directory.path().join("sessions.db").display());
    let upstream = Server::start_with(&["--store", "memory:"]);
    let server = gateway(&upstream, &store);
    let mut finished = countdown(&server, 1, 2, 300);
    let finished = {
        finished.read_until("\"id\":1");
        finished.read_to_end()
    };
    let mut running = countdown(&server, 2, 1000, 60_000);
    let seen = running.read_until("\"progress\":0.0");
    server.kill();
    let server = gateway(&upstream, &store);
    let (first, rest) = (id_of(events(&finished)[0]), &events(&finished)[1..]);
    assert_eq!(events(&resume(&server, first).read_to_end())[1..], *rest, "the answer was kept");
    let rest = messages(&resume(&server, id_of(events(&seen)[0])).read_to_end());
    let answers: Vec<&Value> = rest.iter().filter(|message| is_answer(message)).collect();
    assert_eq!((answers.len(), &answers[0]["id"]), (1, &json!(2)));
    assert_eq!(answers[0]["error"]["data"]["reason"], "outcome_unknown");
}

#[test]
fn a_gateway_that_shuts_down_lets_a_call_finish() {
    let upstream = Server::start_with(&["--store", "memory:"]);
    let mut server = gateway(&upstream, "memory:");
    let mut call = countdown(&server, 1, 8, 200);
    call.read_until("\"progress\":1.0");
    server.signal("TERM");
    let whole = call.read_to_end();
    let answer = messages(&whole).into_iter().find(is_answer).expect("an answer");
    assert!(answer["result"].is_object(), "{answer}");
    assert!(server.ended().is_some_and(|status| status.success()));
}

/// The server learns that a client is gone for good.
#[test]
fn a_call_that_no_client_resumes_is_cancelled_at_the_server() {
    // The server itself follows the letter of the specification.
    let upstream = configured("demo = true\nmodern.resume_grace = \"0s\"");
    let url = format!("http://{}/mcp", upstream.address());
    let server = configured(&format!("upstream = \"{url}\"\nmodern.resume_grace = \"1ms\""));
    let mut call = countdown(&server, 1, 1000, 60_000);
    call.read_until("\"progress\":0.0");
    let in_flight = || {
        let metrics = support::get(upstream.admin(), "/metrics");
        let line = metrics.lines().find(|line| line.starts_with("steadfast_exchanges{")).expect("a metric");
        line.rsplit(' ').next().unwrap().to_owned()
    };
    assert_eq!(in_flight(), "1");
    drop(call);
    eventually("the call is cancelled", || in_flight() == "0");
}
