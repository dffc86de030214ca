//! 2026-07-28: subscriptions. Each hears what it asked for, and nothing before its acknowledgement.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use steadfast_engine::Change;

use super::stateless_endings::nothing_is_left;
use crate::support::{Backing, Host, Modern, Session, Stream, Value, json, within};

async fn host() -> Host {
    Host::plain(Backing::Memory).await
}

/// The message that a subscription gets.
fn news(method: &str, id: impl Into<Value>, mut params: Value) -> Value {
    params["_meta"] = json!({"io.modelcontextprotocol/subscriptionId": id.into()});
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

async fn announce(client: &Modern, what: &str) {
    assert_eq!(client.say("a", "announce", json!({"what": what})).await, "announced");
}

fn announce_from_outside(host: &Host, change: &Change) {
    host.server().service().engine().publish(change);
}

#[tokio::test]
async fn what_is_honoured_is_acknowledged() {
    let host = host().await;
    let client = Modern::to(&host);
    let all = json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true,
        "resourceSubscriptions": ["test:a"]});
    for (asked, honoured) in [
        // There are no prompts here.
        (
            all,
            json!({"toolsListChanged": true, "resourcesListChanged": true, "resourceSubscriptions": ["test:a"]}),
        ),
        (json!({"promptsListChanged": true}), json!({})),
        (json!({}), json!({})),
    ] {
        let (stream, accepted) = client.subscribe(1, asked.clone()).await;
        let without_false: Value = accepted
            .as_object()
            .expect("an object")
            .iter()
            .filter(|(_, value)| **value != json!(false))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect::<serde_json::Map<_, _>>()
            .into();
        assert_eq!(without_false, honoured, "{asked}");
        assert!(stream.headers.contains(&("x-accel-buffering".into(), "no".into())));
    }
}

#[tokio::test]
async fn each_subscription_hears_what_it_asked_for_under_its_own_id() {
    let host = host().await;
    let client = Modern::to(&host);
    let (mut tools, _) = client.subscribe(7, json!({"toolsListChanged": true})).await;
    let (mut lists, _) = client
        .subscribe(
            "7",
            json!({"toolsListChanged": true, "resourcesListChanged": true, "promptsListChanged": true}),
        )
        .await;
    let (mut resource, _) =
        client.subscribe("r", json!({"resourceSubscriptions": ["test:a", "test:b"]})).await;
    for what in ["prompts", "resources", "test:a", "test:ab", "test:c", "test:a/inside", "tools"] {
        announce(&client, what).await;
    }
    announce(&client, "test:b").await;
    let changed = "notifications/tools/list_changed";
    assert_eq!(tools.message().await, news(changed, 7, json!({})));
    assert_eq!(lists.message().await, news("notifications/resources/list_changed", "7", json!({})));
    assert_eq!(lists.message().await, news(changed, "7", json!({})));
    for uri in ["test:a", "test:a/inside", "test:b"] {
        let expect = news("notifications/resources/updated", "r", json!({"uri": uri}));
        assert_eq!(resource.message().await, expect);
    }
    // Nothing else is on its way: the next change is the next message.
    announce(&client, "tools").await;
    assert_eq!(tools.message().await, news(changed, 7, json!({})));
    assert_eq!(lists.message().await, news(changed, "7", json!({})));
}

#[tokio::test]
async fn the_acknowledgement_comes_first_whatever_changes_meanwhile() {
    let host = host().await;
    let stop = Arc::new(AtomicBool::new(false));
    let announcers: Vec<_> = (0..4)
        .map(|no| {
            let (engine, stop) = (host.server().service().engine().clone(), Arc::clone(&stop));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    engine.publish(&Change::ToolsList);
                    engine.publish(&Change::Resource { uri: format!("test:a/{no}") });
                    std::thread::yield_now();
                }
            })
        })
        .collect();
    let client = Modern::to(&host);
    for id in 0..60 {
        let filter = json!({"toolsListChanged": true, "resourceSubscriptions": ["test:a"]});
        // Checks the first message.
        let (mut stream, _) = client.subscribe(id, filter).await;
        for _ in 0..3 {
            let message = stream.message().await;
            assert_eq!(message["params"]["_meta"], json!({"io.modelcontextprotocol/subscriptionId": id}));
        }
        stream.cut();
    }
    stop.store(true, Ordering::Relaxed);
    for announcer in announcers {
        announcer.join().expect("an announcer");
    }
    nothing_is_left(&host).await;
}

#[tokio::test]
async fn what_changes_after_the_acknowledgement_is_heard() {
    let host = host().await;
    let client = Modern::to(&host);
    for id in 0..50 {
        let (mut stream, _) = client.subscribe(id, json!({"toolsListChanged": true})).await;
        announce_from_outside(&host, &Change::ToolsList);
        assert_eq!(stream.message().await["method"], "notifications/tools/list_changed");
    }
}

async fn ends_gracefully(mut stream: Stream, id: impl Into<Value>) {
    let id = id.into();
    let messages = stream.messages().await;
    assert_eq!(messages.len(), 1, "{messages:?}");
    let result = &messages[0]["result"];
    assert_eq!((&messages[0]["id"], &result["resultType"]), (&id, &json!("complete")));
    assert_eq!(result["_meta"]["io.modelcontextprotocol/subscriptionId"], id);
    assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "rmcp", "{result}");
}

#[tokio::test]
async fn a_server_that_goes_down_ends_subscriptions_with_their_result() {
    let host = host().await;
    let client = Modern::to(&host);
    let (first, _) = client.subscribe(1, json!({"toolsListChanged": true})).await;
    let (second, _) = client.subscribe("1", json!({})).await;
    within("the drain", host.server().drain(Duration::from_secs(30))).await;
    ends_gracefully(first, 1).await;
    ends_gracefully(second, "1").await;
    nothing_is_left(&host).await;
}

#[tokio::test]
async fn a_client_that_goes_takes_its_subscription_along() {
    let host = host().await;
    let client = Modern::to(&host);
    let mut streams = Vec::new();
    for id in 0..20 {
        streams.push(client.subscribe(id, json!({"toolsListChanged": true})).await.0);
    }
    let engine = host.server().service().engine().clone();
    assert_eq!((engine.exchanges(), engine.subscriptions()), (20, 20));
    let mut kept = streams.pop().expect("one to keep");
    drop(streams);
    let gone = async {
        while (engine.exchanges(), engine.subscriptions()) != (1, 1) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    within("the end of nineteen", gone).await;
    announce(&client, "tools").await;
    assert_eq!(kept.message().await["method"], "notifications/tools/list_changed");
    kept.cut();
    nothing_is_left(&host).await;
}

#[tokio::test]
async fn a_subscription_that_no_client_reads_ends_with_an_error() {
    let host = Host::start(Backing::Memory, |builder| builder.exchange_bytes(20_000)).await;
    let client = Modern::to(&host);
    let filter = json!({"resourceSubscriptions": ["test:"], "toolsListChanged": true});
    let (mut deaf, _) = client.subscribe("deaf", filter).await;
    let (mut reader, _) = client.subscribe("reader", json!({"toolsListChanged": true})).await;
    let engine = host.server().service().engine().clone();
    let flood = async {
        let mut no = 0;
        while engine.exchanges() > 1 {
            let uri = format!("test:/{no}/{}", "x".repeat(4000));
            announce_from_outside(&host, &Change::Resource { uri });
            no += 1;
            tokio::task::yield_now().await;
        }
    };
    within("the end of a deaf subscription", flood).await;
    assert_eq!(engine.subscriptions(), 1, "it does not count any more, read or not");
    announce(&client, "tools").await;
    assert_eq!(reader.message().await["method"], "notifications/tools/list_changed");
    let messages = deaf.messages().await;
    let (last, before) = messages.split_last().expect("messages");
    assert_eq!((&last["id"], &last["error"]["code"]), (&json!("deaf"), &json!(-32603)));
    assert_eq!(last["error"]["data"], json!({"reason": "overflow", "retryable": true}));
    assert!(before.iter().all(|message| message["method"] == "notifications/resources/updated"));
    reader.cut();
    nothing_is_left(&host).await;
}

/// rmcp's way: the handler says what it accepts, and sends through the sink of its subscription.
#[tokio::test]
async fn a_handler_may_look_after_subscriptions_itself() {
    let host = host().await;
    host.gates.mark("own subscriptions");
    let client = Modern::to(&host);
    let eager = client.clone().meta("progressToken", "p");
    let filter =
        json!({"toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": ["test:a"]});
    let (mut stream, accepted) = eager.subscribe(7, filter.clone()).await;
    assert_eq!(accepted, json!({"toolsListChanged": true, "resourceSubscriptions": ["test:a"]}));
    assert_eq!(stream.message().await, news("notifications/tools/list_changed", 7, json!({})));
    host.gates.reached("own listen", 1).await;
    // What others announce reaches it as well, and the first thing it hears of is this: the handler
    // has tried to send what the client did not ask for.
    announce(&client, "test:a/b").await;
    assert_eq!(
        stream.message().await,
        news("notifications/resources/updated", 7, json!({"uri": "test:a/b"}))
    );
    let (gone, _) = client.subscribe(8, filter).await;
    host.gates.reached("own listen", 2).await;
    gone.cut();
    host.gates.reached("own listen ended", 1).await;
    within("the drain", host.server().drain(Duration::from_secs(30))).await;
    ends_gracefully(stream, 7).await;
    nothing_is_left(&host).await;
}

#[tokio::test]
async fn a_subscription_to_very_many_resources_is_refused() {
    let host = host().await;
    let client = Modern::to(&host);
    let uris = |count: usize| -> Vec<String> { (0..count).map(|no| format!("test:{no}")).collect() };
    let (stream, accepted) = client.subscribe(1, json!({"resourceSubscriptions": uris(1000)})).await;
    assert_eq!(accepted["resourceSubscriptions"].as_array().map(Vec::len), Some(1000));
    let refused = client.listen(2, json!({"resourceSubscriptions": uris(1001)})).send().await;
    assert_eq!((refused.refusal(), refused.json()["id"].clone()), ((200, -32602), json!(2)));
    stream.cut();
    nothing_is_left(&host).await;
}

#[tokio::test]
async fn changes_are_heard_wherever_they_come_from() {
    let host = host().await;
    let wanted =
        json!({"toolsListChanged": true, "resourcesListChanged": true, "resourceSubscriptions": ["test:a"]});
    let (mut stream, _) = Modern::to(&host).subscribe(1, wanted).await;
    // A handler that speaks to its session.
    let session = Session::open(&host).await;
    session.call(1, "announce", json!({"what": "tools"})).await;
    assert_eq!(stream.message().await, news("notifications/tools/list_changed", 1, json!({})));
    session.call(2, "notify_later", json!({"uri": "test:a"})).await;
    let uri = json!({"uri": "test:a"});
    assert_eq!(stream.message().await, news("notifications/resources/updated", 1, uri));
    // The server announces changes outside any request.
    host.server().prompts_changed();
    host.server().resources_changed();
    assert_eq!(stream.message().await, news("notifications/resources/list_changed", 1, json!({})));
    host.server().resource_updated("test:b");
    host.server().resource_updated("test:a/b");
    let uri = json!({"uri": "test:a/b"});
    assert_eq!(stream.message().await, news("notifications/resources/updated", 1, uri));
    host.server().tools_changed();
    assert_eq!(stream.message().await, news("notifications/tools/list_changed", 1, json!({})));
}
