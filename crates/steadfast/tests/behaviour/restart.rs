//! S4: the end of the process. What was acknowledged is still there; what was running gets an
//! explicit error.

use crate::support::session::said;
use crate::support::sse::resumed;
use crate::support::{Backing, Host, Session, json, within};

#[tokio::test]
async fn finished_answers_are_still_there() {
    let mut host = Host::plain(Backing::Sqlite).await;
    let session = Session::open(&host).await;
    let mut streams = Vec::new();
    for id in 0..5 {
        let reply = session.tool(id, "progress", json!({"n": 2})).send().await;
        streams.push(reply.frames());
    }
    for _ in 0..2 {
        host.restart().await;
        let session = session.via(&host);
        for frames in &streams {
            for (i, frame) in frames.iter().enumerate() {
                let id = frame.id.as_deref().unwrap();
                let rest = session.resume(id).send().await.frames();
                assert_eq!(resumed(&rest, id), frames[i + 1..]);
            }
        }
    }
}

#[tokio::test]
async fn an_answer_that_no_client_has_read_is_still_there() {
    let mut host = Host::plain(Backing::Sqlite).await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "gate", json!({"name": "a", "text": "kept"})).stream().await;
    let priming = stream.next().await.and_then(|frame| frame.id).unwrap();
    stream.cut();
    host.gates.open("a");
    // Its id is free: the answer is in the log.
    let finished = async { while session.tool(1, "echo", json!({})).send().await.status == 400 {} };
    within("the end of the call", finished).await;
    host.restart().await;
    let messages = session.via(&host).resume(&priming).stream().await.messages().await;
    assert_eq!(messages.iter().map(said).collect::<Vec<_>>(), ["kept"]);
}

#[tokio::test]
async fn a_call_that_was_running_gets_one_explicit_error() {
    let mut host = Host::plain(Backing::Sqlite).await;
    let session = Session::open(&host).await;
    let steps = json!({"steps": ["progress", "gate:never"]});
    let mut stream = session.tool("x", "steps", steps).stream().await;
    let priming = stream.next().await.and_then(|frame| frame.id).unwrap();
    let progress = stream.event().await;
    host.restart().await;
    assert!(stream.try_next().await.is_err(), "the connection breaks with the process");
    let session = session.via(&host);
    for _ in 0..2 {
        let events = resumed(&session.resume(&priming).send().await.frames(), &priming);
        assert_eq!(events.len(), 2);
        assert_eq!(events[0], progress);
        let answer = events[1].message().unwrap();
        assert_eq!(answer["id"], "x");
        assert_eq!(answer["error"]["code"], -32603);
        assert_eq!(answer["error"]["data"], json!({"reason": "outcome_unknown", "retryable": false}));
    }
    assert_eq!(session.say("x", "echo", json!({"text": "again"})).await, "again");
}

#[tokio::test]
async fn what_waited_for_a_listener_is_still_there() {
    let mut host = Host::plain(Backing::Sqlite).await;
    let session = Session::open(&host).await;
    session.call(1, "notify_later", json!({"uri": "test:waiting"})).await;
    host.restart().await;
    let mut stream = session.via(&host).listen().stream().await;
    assert_eq!(stream.message().await["params"]["uri"], "test:waiting");
}
