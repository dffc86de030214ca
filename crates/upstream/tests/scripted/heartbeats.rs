//! Heartbeats: clients that give up without progress do not, while the server is silent and alive.

use std::num::NonZeroUsize;
use std::sync::atomic::Ordering;
use std::time::Duration;

use steadfast_http::ResponseMode;

use crate::support::server::{Reply, Request, Server};
use crate::support::session::tool_call;
use crate::support::{Backing, Builder, Host, Session, Stream, Value, json, within};

use super::absent::Fronted;
use super::replicas::until;

const INTERVAL: Duration = Duration::from_secs(20);

/// How long the TypeScript SDK waits for progress.
const GIVES_UP_AFTER: Duration = Duration::from_secs(60);

fn is_prodded(log: &[Request]) -> bool {
    log.iter().any(|request| request.verb == "PROD")
}

/// The server's progress for the call in `request`.
fn progress(request: &Request, value: f64, message: &str) -> Value {
    let token = &request.body["params"]["_meta"]["progressToken"];
    let params = json!({"progressToken": token, "progress": value, "message": message});
    json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
}

/// A server whose calls answer when it is prodded.
async fn silent() -> Server {
    Server::with_sessions(|request| {
        let reply = || Reply::stream().until(is_prodded).answer(request, &json!({"done": true}));
        (request.method() == "tools/call").then(reply)
    })
    .await
}

type Configure = fn(Builder) -> Builder;

async fn gateway(server: &Server, configure: Configure) -> Host {
    Host::before(Backing::Memory, [server.url()], move |builder| {
        configure(builder.call_deadline(Duration::from_secs(2 * 60 * 60)).heartbeat(INTERVAL))
    })
    .await
}

/// Calls a tool with the progress token `"mine"`, and waits until the server has the call.
async fn begin(server: &Server, session: &Session) -> Stream {
    let mut call = tool_call(1, "t", json!({}));
    call["params"]["_meta"] = json!({"progressToken": "mine"});
    let mut stream = session.post(&call).stream().await;
    assert!(stream.next().await.unwrap().is_priming());
    server.until("the call", |log| log.iter().any(|request| request.calls("t"))).await;
    stream
}

/// Returns the value of the next message, which must be a heartbeat without an event id.
async fn heartbeat(stream: &mut Stream) -> f64 {
    let frame = stream.event().await;
    let message = frame.message().unwrap();
    assert_eq!((frame.id, &message["method"]), (None, &json!("notifications/progress")), "{message}");
    assert_eq!(message["params"]["progressToken"], "mine");
    message["params"]["progress"].as_f64().unwrap_or_else(|| panic!("{message}"))
}

#[tokio::test]
async fn a_call_of_one_hour_survives_a_client_that_gives_up_without_progress() {
    let server = silent().await;
    let host = gateway(&server, |builder| builder).await;
    let session = Session::open(&host).await;
    let mut stream = begin(&server, &session).await;
    let (mut waited, mut last) = (Duration::ZERO, None);
    while waited < Duration::from_secs(60 * 60) {
        host.sweep_after(GIVES_UP_AFTER / 3).await;
        waited += GIVES_UP_AFTER / 3;
        let value = heartbeat(&mut stream).await;
        assert!(last.is_none_or(|last| last < value), "{last:?}, then {value}");
        last = Some(value);
    }
    assert_eq!(host.upstream().heartbeats(), 180);
    server.prod();
    assert_eq!(stream.message().await["result"], json!({"done": true}));
    assert!(stream.messages().await.is_empty());
}

#[tokio::test]
async fn values_of_the_server_stay_above_heartbeats_and_keep_their_message() {
    let server = Server::with_sessions(|request| {
        let reply = || {
            let begun = Reply::stream().event(&progress(request, 5.0, "half"));
            let more = begun.until(is_prodded).event(&progress(request, 5.0, "still half"));
            more.event(&progress(request, 6.0, "more")).answer(request, &json!({}))
        };
        (request.method() == "tools/call").then(reply)
    })
    .await;
    let host = gateway(&server, |builder| builder).await;
    let session = Session::open(&host).await;
    let mut stream = begin(&server, &session).await;
    let first = stream.event().await;
    assert_eq!(first.message().unwrap()["params"]["progress"], 5.0);
    // The server's own progress counts: no heartbeat is due before the interval is over.
    host.sweep_after(INTERVAL / 2).await;
    host.sweep_after(INTERVAL).await;
    let beat = heartbeat(&mut stream).await;
    assert!(beat > 5.0 && beat < 5.001, "{beat}");
    server.prod();
    let (raised, more) = (stream.message().await, stream.message().await);
    let value = raised["params"]["progress"].as_f64().unwrap();
    assert!(value > beat && value < 5.001, "{raised}");
    assert_eq!(raised["params"]["message"], "still half");
    assert_eq!((&more["params"]["progress"], &more["params"]["message"]), (&json!(6.0), &json!("more")));
    assert_eq!(host.upstream().heartbeats(), 1);
    // Heartbeats are not in the log.
    let replayed = session.resume(&first.id.unwrap()).stream().await.messages().await;
    assert_eq!(replayed.len(), 3, "{replayed:?}");
}

/// Returns everything that a client hears whose call is silent for a minute and then ends.
async fn heard(server: &Server, host: &Host, call: &Value) -> Vec<Value> {
    let session = Session::open(host).await;
    let request = session.post(call);
    let reply = tokio::spawn(async move { request.send().await.messages() });
    server.until("the call", |log| log.iter().any(|request| request.calls("t"))).await;
    for _ in 0..3 {
        host.sweep_after(INTERVAL).await;
    }
    server.prod();
    within("the answer", reply).await.unwrap()
}

#[tokio::test]
async fn only_clients_that_ask_for_progress_get_heartbeats() {
    let answer = json!({"jsonrpc": "2.0", "id": 1, "result": {"done": true}});
    let asking = tool_call(1, "t", json!({}));
    assert!(asking["params"]["_meta"]["progressToken"].is_number());
    let plain = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t"}});
    let all: [(Configure, &Value); 3] = [
        (|builder| builder, &plain),
        (|builder| builder.heartbeat(Duration::ZERO), &asking),
        (|builder| builder.response(ResponseMode::Json), &asking),
    ];
    for (configure, call) in all {
        let server = silent().await;
        let host = gateway(&server, configure).await;
        assert_eq!(heard(&server, &host, call).await, std::slice::from_ref(&answer), "{call}");
    }
}

/// The call has another node than the client's connection.
#[tokio::test]
async fn a_client_at_another_node_gets_heartbeats() {
    let server = silent().await;
    let here = Host::before(Backing::shared(), [server.url()], |builder| {
        builder.heartbeat(INTERVAL).upstream(|config| config.calls.concurrency = NonZeroUsize::new(1).into())
    })
    .await;
    let there = here.beside().await;
    let session = Session::open(&here).await;
    let mut stream = begin(&server, &session.via(&there)).await;
    here.sweep_after(INTERVAL).await;
    let message = stream.message().await;
    assert_eq!(message["params"], json!({"progressToken": "mine", "progress": 0}));
    server.prod();
    assert_eq!(stream.message().await["result"], json!({"done": true}));
}

/// A replica that accepts connections and answers nothing, not even a probe.
#[tokio::test]
async fn heartbeats_stop_when_the_server_shows_no_life() {
    let frozen = Fronted::start("a", |_| Reply::default().hang(), None).await;
    let well = Fronted::start("b", |_| Reply::status(200), None).await;
    let urls = [frozen.server.url(), well.server.url()];
    let host = Host::before(Backing::Memory, urls, |builder| {
        builder.heartbeat(INTERVAL).upstream(|config| {
            config.timeouts.control = Duration::from_millis(500);
            config.health_check.silence = Duration::from_millis(200);
            config.health_check.failover_after = Duration::from_secs(600);
        })
    })
    .await;
    let session = Session::open(&host).await;
    frozen.is_away.store(true, Ordering::SeqCst);
    let stream = begin(&frozen.server, &session).await;
    host.sweep_after(INTERVAL).await;
    let before = host.upstream().heartbeats();
    until(&host, &[(false, 1), (true, 0)]).await;
    for _ in 0..3 {
        host.sweep_after(INTERVAL).await;
    }
    assert_eq!(host.upstream().heartbeats(), before);
    drop(stream);
}

#[cfg(unix)]
#[tokio::test]
async fn the_client_of_a_silent_program_gets_heartbeats() {
    let host =
        Host::before(Backing::Memory, [], |builder| super::programs::program(builder.heartbeat(INTERVAL)))
            .await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "hang", json!({})).stream().await;
    assert!(stream.next().await.unwrap().is_priming());
    host.sweep_after(INTERVAL).await;
    let message = within("a heartbeat", stream.message()).await;
    assert_eq!(message["params"], json!({"progressToken": 1, "progress": 0}));
}
