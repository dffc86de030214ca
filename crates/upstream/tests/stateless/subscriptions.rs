//! `subscriptions/listen` lasts until either side ends it.

use std::time::Duration;

use steadfast_client::{Answer, CallEvent, Error};

use super::front::{Front, closed};
use crate::support::{Reply, Request, Server, Value, json, within};

const LISTEN: &str = "subscriptions/listen";
const META: &str = "io.modelcontextprotocol/subscriptionId";

fn params() -> String {
    json!({"notifications": {"toolsListChanged": true}}).to_string()
}

/// An acknowledgement, a change, and a change of another subscription.
fn begun(request: &Request) -> Reply {
    let named = |method: &str, id: &Value| {
        let params = json!({"notifications": {"toolsListChanged": true}, "_meta": {META: id}});
        json!({"jsonrpc": "2.0", "method": method, "params": params})
    };
    Reply::stream()
        .event(&named("notifications/subscriptions/acknowledged", &request.body["id"]))
        .event(&named("notifications/tools/list_changed", &json!(999)))
        .event(&named("notifications/tools/list_changed", &request.body["id"]))
}

async fn server(end: impl Fn(&Request, Reply) -> Reply + Send + Sync + 'static) -> Server {
    Server::stateless(move |request| (request.method() == LISTEN).then(|| end(request, begun(request)))).await
}

/// Reads the acknowledgement and the change.
async fn read(call: &mut steadfast_client::Call) {
    for method in ["notifications/subscriptions/acknowledged", "notifications/tools/list_changed"] {
        let CallEvent::Notification(note) = within(method, call.next()).await else { panic!("no {method}") };
        let params: Value = serde_json::from_slice(&note.params.unwrap()).unwrap();
        let id: i64 = call.id().to_string().parse().unwrap();
        assert_eq!((note.method.as_str(), &params["_meta"]), (method, &json!({META: id})));
    }
}

async fn end(call: &mut steadfast_client::Call) -> Result<Answer, Error> {
    match within("the end", call.next()).await {
        CallEvent::Done(answer) => answer,
        CallEvent::Notification(note) => panic!("not the end: {note:?}"),
    }
}

#[tokio::test]
async fn the_server_ends_it_in_good_order() {
    let server = server(|request, reply| {
        reply.answer(request, &json!({"resultType": "complete", "_meta": {META: request.body["id"]}}))
    })
    .await;
    let client = Front::of(server.url()).await.client(()).await;
    let mut call = client.call(LISTEN, Some(&params())).unwrap();
    read(&mut call).await;
    let id = call.id().clone();
    let expect = format!(r#"{{"_meta":{{"{META}":{id}}},"resultType":"complete"}}"#);
    assert_eq!(end(&mut call).await, Ok(Answer::Result(expect.into())));
}

#[tokio::test]
async fn the_server_breaks_it_off() {
    let server = server(|_, reply| reply).await;
    let client = Front::of(server.url()).await.client(()).await;
    let mut call = client.call(LISTEN, Some(&params())).unwrap();
    read(&mut call).await;
    let Ok(Answer::Error(error)) = end(&mut call).await else { panic!("no error") };
    let error: Value = serde_json::from_slice(&error).unwrap();
    assert_eq!(error["data"], json!({"reason": "upstream_unavailable", "retryable": true}));
}

#[tokio::test]
async fn the_client_ends_it() {
    let server = server(|_, reply| reply.hang()).await;
    let front = Front::of(server.url()).await;
    let client = front.client(()).await;
    let mut call = client.call(LISTEN, Some(&params())).unwrap();
    read(&mut call).await;
    drop(call);
    closed(&server).await;
}

#[tokio::test]
async fn the_gateway_ends_it_in_good_order() {
    let server = server(|_, reply| reply.hang()).await;
    let front = Front::of(server.url()).await;
    let client = front.client(()).await;
    let mut call = client.call(LISTEN, Some(&params())).unwrap();
    read(&mut call).await;
    front.engine.drain(Duration::from_secs(1)).await;
    let id = call.id().clone();
    let expect = format!(r#"{{"resultType":"complete","_meta":{{"{META}":{id}}}}}"#);
    assert_eq!(end(&mut call).await, Ok(Answer::Result(expect.into())));
    closed(&server).await;
}

#[tokio::test]
async fn a_refusal_is_an_answer() {
    let server = Server::stateless(|request| {
        let error = json!({"code": -32602, "message": "no filter"});
        (request.method() == LISTEN).then(|| Reply::error(request, 400, &error))
    })
    .await;
    let client = Front::of(server.url()).await.client(()).await;
    let mut call = client.call(LISTEN, Some(&params())).unwrap();
    let Ok(Answer::Error(error)) = end(&mut call).await else { panic!("no error") };
    assert!(String::from_utf8_lossy(&error).contains("no filter"));
}

#[tokio::test]
async fn a_subscription_that_misses_something_is_over() {
    let server = server(|_, reply| reply.hang()).await;
    // Room for the acknowledgement, and not for what follows at once.
    let front = Front::keeping(100, server.url()).await;
    let client = front.client(()).await;
    let mut call = client.call(LISTEN, Some(&params())).unwrap();
    let acknowledgement = within("the acknowledgement", call.next()).await;
    assert!(matches!(acknowledgement, CallEvent::Notification(_)), "{acknowledgement:?}");
    let Ok(Answer::Error(error)) = end(&mut call).await else { panic!("no error") };
    let error: Value = serde_json::from_slice(&error).unwrap();
    assert_eq!(error["data"], json!({"reason": "overflow", "retryable": true}));
}
