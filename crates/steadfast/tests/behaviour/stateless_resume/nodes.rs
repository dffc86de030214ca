//! Responses of 2026-07-28 that are resumed at another node, or after their node is gone.

use crate::support::{Backing, Host, json, within};

use super::{detached, eager, grace, id, outcome_unknown, steps};

crate::on_shared_stores!(
    a_request_is_resumed_at_another_node,
    a_reader_at_another_node_keeps_the_request_running,
    the_request_of_a_dead_node_ends_for_the_client_that_resumes,
    a_node_that_drains_sends_readers_of_other_nodes_away,
);

async fn a_request_is_resumed_at_another_node(backing: Backing) {
    let one = Host::plain(backing).await;
    let two = one.beside().await;
    let mut stream = eager(&one).tool(1, "steps", steps(&["progress", "gate:a", "progress"])).stream().await;
    let priming = id(&stream.next().await.expect("a priming event"));
    let progress = stream.event().await;
    stream.cut();
    let mut stream = eager(&two).resume(&priming).stream().await;
    assert_eq!(stream.event().await.raw, progress.raw);
    one.gates.open("a");
    let messages = stream.messages().await;
    assert_eq!((messages.len(), &messages[1]["id"]), (2, &json!(1)), "{messages:?}");
}

async fn a_reader_at_another_node_keeps_the_request_running(backing: Backing) {
    let one = Host::plain(backing).await;
    let two = one.beside().await;
    let mut stream = eager(&one).tool(1, "until_cancelled", json!({})).stream().await;
    let priming = id(&stream.next().await.expect("a priming event"));
    stream.cut();
    let mut stream = eager(&two).resume(&priming).stream().await;
    stream.next().await.expect("a priming event");
    for _ in 0..5 {
        one.sweep_after(grace()).await;
    }
    assert_eq!(one.gates.count("cancelled"), 0);
    stream.cut();
    detached(&two, &priming).await;
    // The owner learns of the end of the other node's connection when it asks next.
    for _ in 0..2 {
        one.sweep_after(grace()).await;
    }
    one.gates.reached("cancelled", 1).await;
}

async fn the_request_of_a_dead_node_ends_for_the_client_that_resumes(backing: Backing) {
    let mut host = Host::plain(backing).await;
    let mut stream = eager(&host).tool("s", "steps", steps(&["progress", "gate:a"])).stream().await;
    let priming = id(&stream.next().await.expect("a priming event"));
    stream.event().await;
    host.restart().await;
    let ended = async {
        loop {
            let mut stream = eager(&host).resume(&priming).stream().await;
            let mut messages = stream.messages().await;
            if let Some(answer) = messages.pop() {
                return (messages.len(), answer);
            }
        }
    };
    let (before, answer) = within("the end of the request", ended).await;
    assert_eq!(before, 1, "the progress is still there");
    outcome_unknown(&answer, "s");
}

async fn a_node_that_drains_sends_readers_of_other_nodes_away(backing: Backing) {
    let one = Host::plain(backing).await;
    let mut two = one.beside().await;
    let mut stream = eager(&one).tool(1, "steps", steps(&["gate:a"])).stream().await;
    let priming = id(&stream.next().await.expect("a priming event"));
    stream.cut();
    let mut stream = eager(&two).resume(&priming).stream().await;
    stream.next().await.expect("a priming event");
    two.stop().await;
    let rest = stream.rest().await;
    assert_eq!((rest.len(), rest[0].retry), (1, Some(3000)), "{rest:?}");
    let mut stream = eager(&one).resume(&priming).stream().await;
    one.gates.open("a");
    assert_eq!(stream.messages().await.len(), 1);
}
