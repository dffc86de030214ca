//! A handler ends the connection of its own call: the client comes back for the rest, if it can.

use steadfast::ResponseMode;

use crate::support::session::said;
use crate::support::{Backing, Host, Session, Value, json};

crate::on_every_store!(
    a_reader_that_is_sent_away_comes_back_for_the_rest,
    a_reader_that_is_sent_away_at_once_comes_back_for_everything,
    a_client_without_an_event_to_come_back_from_stays,
    a_client_that_waits_for_json_stays,
);

fn steps(steps: &[&str]) -> Value {
    json!({"steps": steps, "text": "worth the wait"})
}

/// Opens the gate when the first response has ended, and gives what each of the two said.
async fn sent_away(backing: Backing, plan: &[&str]) -> (Vec<Value>, Vec<Value>) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let first = session.tool(1, "steps", steps(plan)).send().await;
    assert!(first.text().ends_with("retry: 1000\n\n"), "{}", first.text());
    let last = first.frames().into_iter().filter_map(|frame| frame.id).next_back().expect("an event id");
    let mut second = session.resume(&last).stream().await;
    host.gates.open("go");
    (first.messages(), second.messages().await)
}

async fn a_reader_that_is_sent_away_comes_back_for_the_rest(backing: Backing) {
    let (first, second) = sent_away(backing, &["progress", "close", "gate:go", "progress"]).await;
    assert_eq!((first.len(), second.len()), (1, 2), "{first:?} {second:?}");
    assert_eq!(said(&second[1]), "worth the wait");
}

async fn a_reader_that_is_sent_away_at_once_comes_back_for_everything(backing: Backing) {
    let (first, second) = sent_away(backing, &["close", "gate:go"]).await;
    assert_eq!((first.len(), second.len()), (0, 1), "{first:?} {second:?}");
    assert_eq!(said(&second[0]), "worth the wait");
}

async fn a_client_without_an_event_to_come_back_from_stays(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::at(&host, "2025-06-18").await;
    let mut stream = session.tool(1, "steps", steps(&["close", "gate:go"])).stream().await;
    host.gates.open("go");
    assert_eq!(stream.messages().await.iter().map(said).collect::<Vec<_>>(), ["worth the wait"]);
}

async fn a_client_that_waits_for_json_stays(backing: Backing) {
    let host = Host::start(backing, |builder| builder.response(ResponseMode::Json)).await;
    let session = Session::open(&host).await;
    let call = session.tool(1, "steps", steps(&["close", "gate:go"]));
    let open = async {
        host.gates.reached("go", 1).await;
        // The response is looked at in the very step in which the handler came to wait.
        assert_eq!(session.notify("notifications/other", json!({})).await.status, 202);
        host.gates.open("go");
    };
    let (reply, ()) = tokio::join!(call.send(), open);
    assert_eq!((reply.status, said(&reply.json())), (200, "worth the wait".to_owned()));
}
