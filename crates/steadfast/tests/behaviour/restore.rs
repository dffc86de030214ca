//! A session on a process that did not open it: on first use or on purpose, and the client notices
//! nothing.

use std::time::Duration;

use steadfast::SessionEventKind::{Closed, Opened, Restored};
use steadfast::{CloseReason, Principal, Refusal, SessionId};

use crate::support::session::said;
use crate::support::sse::resumed;
use crate::support::{Backing, Host, Session, json, within};

async fn two() -> (Host, Host, Session) {
    let here = Host::plain(Backing::Sqlite).await;
    let there = here.beside().await;
    let session = Session::open(&here).await;
    (here, there, session)
}

#[tokio::test]
async fn any_process_serves_any_session() {
    let (here, there, session) = two().await;
    for round in 0..5 {
        for host in [&here, &there] {
            let text = format!("round {round}");
            assert_eq!(session.via(host).say(1, "echo", json!({"text": text})).await, text);
        }
    }
    assert_eq!(here.heard.of(&session), [Opened]);
    assert_eq!(there.heard.of(&session), [Restored]);
}

#[tokio::test]
async fn a_factory_that_panics_fails_its_call_and_no_other() {
    let (here, there, session) = two().await;
    here.gates.mark("broken factory");
    let elsewhere = session.via(&there);
    for id in 1..=2 {
        let answer = elsewhere.call(id, "echo", json!({"text": "x"})).await;
        assert_eq!(answer["error"]["data"]["reason"], "handler_panicked");
    }
    assert_eq!(elsewhere.notify("notifications/anything", json!({})).await.status, 202);
    assert_eq!(session.say(3, "echo", json!({"text": "made before"})).await, "made before");
    within("draining", there.server().drain(Duration::from_secs(60))).await;
}

#[tokio::test]
async fn a_session_can_be_restored_on_purpose() {
    let (_here, there, session) = two().await;
    let handle = there.server().restore(session.session_id()).await.unwrap();
    assert_eq!(handle.id(), session.session_id());
    there.heard.once(&session, Restored).await;
    assert_eq!(session.via(&there).say(1, "echo", json!({"text": "served"})).await, "served");
    there.server().restore(session.session_id()).await.unwrap();
    assert_eq!(there.heard.of(&session), [Restored], "once is enough");
    let unknown = SessionId::from_random([7; SessionId::BYTES]);
    assert_eq!(there.server().restore(unknown).await.unwrap_err(), Refusal::NoSession);
}

/// A session leaves nothing at a process that has served it, though it ends at another.
#[tokio::test]
async fn a_session_that_ends_elsewhere_is_forgotten() {
    const LONG: Duration = Duration::from_secs(10 * 60);
    let (here, there, session) = two().await;
    let other = Session::open(&here).await;
    let gone = || here.gates.count("a handler is gone");
    for session in [&session, &other] {
        assert_eq!(session.via(&there).say(1, "echo", json!({"text": "served"})).await, "served");
    }
    there.sweep_after(Duration::ZERO).await;
    assert_eq!(session.delete().send().await.status, 204);
    let here_first = async {
        while gone() < 1 {
            tokio::task::yield_now().await
        }
    };
    within("the end of the handler here", here_first).await;
    there.sweep_after(LONG).await;
    assert_eq!(gone(), 2);
    there.sweep_after(LONG).await;
    assert_eq!(gone(), 2, "and no other");
    assert_eq!(other.via(&there).say(2, "echo", json!({"text": "still"})).await, "still");
}

#[tokio::test]
async fn session_state_moves_and_fields_do_not() {
    let (mut here, there, session) = two().await;
    let on = |host: &Host| session.via(host);
    for (host, count, field) in [(&here, "1", "1"), (&there, "2", "1"), (&here, "3", "2"), (&there, "4", "2")]
    {
        assert_eq!(on(host).say(1, "count", json!({})).await, count);
        assert_eq!(on(host).say(2, "field_count", json!({})).await, field);
    }
    here.restart().await;
    assert_eq!(session.via(&here).say(1, "count", json!({})).await, "5");
    assert_eq!(session.via(&here).say(1, "field_count", json!({})).await, "1");
}

#[tokio::test]
async fn counters_of_two_processes_lose_no_update() {
    let (here, there, session) = two().await;
    let calls: Vec<_> = (0..60)
        .map(|id| {
            let session = session.via(if id % 2 == 0 { &here } else { &there });
            tokio::spawn(async move { session.say(id, "count", json!({})).await.parse::<u64>().unwrap() })
        })
        .collect();
    let mut counts = Vec::new();
    for call in calls {
        counts.push(call.await.unwrap());
    }
    counts.sort_unstable();
    assert_eq!(counts, (1..=60).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_same_id_on_two_processes_is_a_duplicate() {
    let (here, there, session) = two().await;
    let mut first = session.via(&here).tool(1, "gate", json!({"name": "a", "text": "first"})).stream().await;
    here.gates.reached("a", 1).await;
    assert_eq!(session.via(&there).tool(1, "echo", json!({})).send().await.refusal(), (400, -32600));
    here.gates.open("a");
    assert_eq!(said(&first.message().await), "first");
    assert_eq!(session.via(&there).say(1, "echo", json!({"text": "free"})).await, "free");
}

#[tokio::test]
async fn an_answer_given_here_is_read_there() {
    let (here, there, session) = two().await;
    let frames = session.via(&here).tool(1, "progress", json!({"n": 3})).send().await.frames();
    for (i, frame) in frames.iter().enumerate() {
        let id = frame.id.as_deref().unwrap();
        let rest = session.via(&there).resume(id).send().await.frames();
        assert_eq!(resumed(&rest, id), frames[i + 1..]);
    }
}

#[tokio::test]
async fn a_call_that_runs_here_is_read_there() {
    let (here, there, session) = two().await;
    let mut stream =
        session.via(&here).tool(1, "gate", json!({"name": "a", "text": "over there"})).stream().await;
    let priming = stream.next().await.and_then(|frame| frame.id).unwrap();
    stream.cut();
    let mut resumed = session.via(&there).resume(&priming).stream().await;
    here.gates.open("a");
    assert_eq!(said(&resumed.message().await), "over there");
}

/// A listener here hears what is said there, and in the order in which it was said.
#[tokio::test]
async fn a_message_from_there_is_heard_here() {
    let (here, there, session) = two().await;
    let mut listener = session.via(&here).listen().stream().await;
    for round in 0..3 {
        for host in [&there, &here, &there, &there, &here] {
            let uri = format!("test:{round}");
            session.via(host).call(1, "notify_later", json!({"uri": uri})).await;
        }
        for _ in 0..5 {
            let message = listener.message().await;
            assert_eq!(message["params"]["uri"], format!("test:{round}"), "{message}");
        }
    }
}

#[tokio::test]
async fn a_process_that_dies_costs_its_own_calls_only() {
    let (mut here, there, session) = two().await;
    let mut lost = session.via(&here).tool(1, "gate", json!({"name": "a", "text": ""})).stream().await;
    let mut kept = session.via(&there).tool(2, "gate", json!({"name": "b", "text": "kept"})).stream().await;
    let priming = lost.next().await.and_then(|frame| frame.id).unwrap();
    here.gates.reached("a", 1).await;
    here.gates.reached("b", 1).await;
    here.crash().await;
    there.sweep_after(Duration::ZERO).await;
    let messages = session.via(&there).resume(&priming).stream().await.messages().await;
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0]["error"]["data"]["reason"], "outcome_unknown");
    there.gates.open("b");
    assert_eq!(said(&kept.message().await), "kept");
}

#[tokio::test]
async fn a_session_deleted_here_is_gone_there() {
    let (here, there, session) = two().await;
    assert_eq!(session.via(&there).say(1, "echo", json!({"text": "served"})).await, "served");
    assert_eq!(session.via(&here).delete().send().await.status, 204);
    here.heard.once(&session, Closed(CloseReason::Deleted)).await;
    for request in [
        session.via(&there).tool(1, "echo", json!({})),
        session.via(&there).listen(),
        session.via(&there).delete(),
    ] {
        assert_eq!(request.send().await.status, 404);
    }
    assert_eq!(there.heard.of(&session), [Restored], "who closed it reports it");
}

#[tokio::test]
async fn a_session_of_another_principal_is_no_session() {
    let configure = |builder: steadfast::Builder<_>| {
        builder.principal(|parts| {
            let name = parts.headers.get("x-user").and_then(|value| value.to_str().ok());
            Ok(Principal::new(name.unwrap_or("")))
        })
    };
    let mut host = Host::start(Backing::Sqlite, configure).await;
    let session = Session::open(&host).await;
    for restarted in [false, true] {
        if restarted {
            host.restart().await;
        }
        let session = session.via(&host);
        for request in [session.tool(1, "echo", json!({})), session.listen(), session.delete()] {
            assert_eq!(request.header("X-User", "mallory").send().await.refusal(), (404, -32600));
        }
        let whoami = within("an answer", session.say(1, "whoami", json!({}))).await;
        assert_eq!(whoami, format!("{} of \"\"", session.session_id().short()));
    }
}
