//! Requests of the server to the client: answered once, by whatever connection.

use steadfast::SessionEventKind::Detached;

use crate::support::session::said;
use crate::support::{Backing, Host, Session, Value, json};

use super::{accepted, asked, question, question_of};

crate::on_every_store!(
    the_answer_reaches_the_handler,
    an_error_reaches_the_handler,
    an_ask_is_answered_once,
    nothing_was_asked,
    asks_at_once_do_not_mix,
    an_ask_waits_for_a_client_that_comes_back,
    an_ask_ends_with_its_call,
    a_batch_of_answers_is_taken_as_far_as_it_goes,
);

async fn the_answer_reaches_the_handler(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "ask", question()).stream().await;
    let ask = asked(&mut stream).await;
    let reply = session.answer(&ask, accepted("this")).await;
    assert_eq!((reply.status, reply.body.len()), (202, 0));
    let messages = stream.messages().await;
    assert_eq!(messages.len(), 1);
    assert_eq!(serde_json::from_str::<Value>(&said(&messages[0])).unwrap(), accepted("this"));
}

async fn an_error_reaches_the_handler(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "ask", question()).stream().await;
    let ask = asked(&mut stream).await;
    let no = json!({"jsonrpc": "2.0", "id": ask, "error": {"code": -1, "message": "I would rather not"}});
    assert_eq!(session.post(&no).send().await.status, 202);
    let answer = stream.message().await;
    assert!(answer["error"]["message"].as_str().unwrap().contains("I would rather not"), "{answer}");
}

async fn an_ask_is_answered_once(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "ask", question()).stream().await;
    let ask = asked(&mut stream).await;
    let answers: Vec<_> = (0..16)
        .map(|no| {
            let (session, ask) = (session.clone(), ask.clone());
            tokio::spawn(async move { (no, session.answer(&ask, accepted(&no.to_string())).await.status) })
        })
        .collect();
    let mut taken = Vec::new();
    for answer in answers {
        match answer.await.unwrap() {
            (no, 202) => taken.push(no),
            (_, status) => assert_eq!(status, 400),
        }
    }
    assert_eq!(taken.len(), 1);
    let said = said(&stream.message().await);
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap(), accepted(&taken[0].to_string()));
}

async fn nothing_was_asked(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let other = Session::open(&host).await;
    let mut stream = other.tool(1, "ask", question()).stream().await;
    let theirs = asked(&mut stream).await;
    for id in [theirs.clone(), json!("ask-99"), json!("ask-00"), json!("x"), json!(0), json!(1)] {
        assert_eq!(session.answer(&id, accepted("")).await.refusal(), (400, -32600), "{id}");
    }
    assert_eq!(other.answer(&theirs, accepted("mine")).await.status, 202);
    assert!(said(&stream.message().await).contains("mine"));
}

async fn asks_at_once_do_not_mix(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut streams = Vec::new();
    for id in 0..20 {
        let mut stream = session.tool(id, "ask", question()).stream().await;
        let ask = asked(&mut stream).await;
        streams.push((stream, ask));
    }
    for (no, (_, ask)) in streams.iter().enumerate().rev() {
        assert_eq!(session.answer(ask, accepted(&no.to_string())).await.status, 202);
    }
    for (no, (stream, _)) in streams.iter_mut().enumerate() {
        let said = said(&stream.message().await);
        assert_eq!(serde_json::from_str::<Value>(&said).unwrap(), accepted(&no.to_string()));
    }
}

async fn an_ask_waits_for_a_client_that_comes_back(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "ask", question()).stream().await;
    let priming = stream.next().await.and_then(|frame| frame.id).unwrap();
    stream.cut();
    host.heard.once(&session, Detached).await;
    let mut resumed = session.resume(&priming).stream().await;
    let ask = asked(&mut resumed).await;
    assert_eq!(session.answer(&ask, accepted("late")).await.status, 202);
    assert!(said(&resumed.message().await).contains("late"));
}

async fn an_ask_ends_with_its_call(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "ask", question()).stream().await;
    let ask = asked(&mut stream).await;
    assert_eq!(session.cancel(1).await.status, 202);
    let left = stream.messages().await;
    assert_eq!(
        left,
        [json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": ask}})]
    );
    assert_eq!(session.answer(&ask, accepted("too late")).await.refusal(), (400, -32600));
}

async fn a_batch_of_answers_is_taken_as_far_as_it_goes(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::at(&host, "2025-03-26").await;
    let mut stream = session.tool(1, "ask_many", json!({"n": 3})).stream().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(question_of(&stream.message().await).0);
    }
    let answer = |id: &Value| json!({"jsonrpc": "2.0", "id": id, "result": accepted("taken")});
    let all = [answer(&json!("ask-9")), answer(&ids[0]), answer(&ids[0]), answer(&json!(7)), answer(&ids[1])];
    let reply = session.post(&json!(all)).send().await;
    assert_eq!(reply.refusal(), (400, -32600));
    assert_eq!(
        reply.json()["error"]["message"],
        "No request of the server waits for an answer with these ids: \"ask-9\", \"ask-0\", 7. The others were taken."
    );
    assert_eq!(session.post(&json!([answer(&ids[2])])).send().await.status, 202);
    assert_eq!(said(&stream.message().await).matches("taken").count(), 3);
}
