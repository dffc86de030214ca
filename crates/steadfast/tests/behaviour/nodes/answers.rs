//! An answer that reaches another node than its asker's.

use steadfast::Limits;

use crate::asks::{accepted, answer_too_late, question_of};
use crate::support::session::said;
use crate::support::{Backing, json};

use super::{Nodes, asking, blindfold, heard};

crate::on_every_store!(
    it_reaches_the_asker,
    many_reach_their_askers,
    one_of_many_at_once_is_taken,
    the_second_is_refused_before_and_after_the_first_was_collected,
    what_waits_for_its_turn_is_asked_next,
    what_is_kept_has_a_bound,
    an_error_reaches_the_asker,
);

async fn it_reaches_the_asker(backing: Backing) {
    let nodes = Nodes::start(backing).await;
    let (session, there) = nodes.open_session().await;
    let (mut stream, ask) = asking(&session, 1).await;
    let reply = there.answer(&ask, accepted("this")).await;
    assert_eq!((reply.status, reply.body.len()), (202, 0), "{}", reply.text());
    assert_eq!(stream.messages().await.iter().map(said).collect::<Vec<_>>(), [heard("this")]);
    answer_too_late(&session, &ask).await;
    answer_too_late(&there, &ask).await;
}

async fn many_reach_their_askers(backing: Backing) {
    let nodes = Nodes::start(backing).await;
    let (session, there) = nodes.open_session().await;
    // Each node has askers, and each gets the answers of the other's.
    let mut calls = Vec::new();
    for id in 0..20 {
        let (here, answers) = if id % 2 == 0 { (&session, &there) } else { (&there, &session) };
        let (stream, ask) = asking(here, id).await;
        calls.push((stream, ask, answers, id.to_string()));
    }
    for (_, ask, answers, text) in calls.iter().rev() {
        assert_eq!(answers.answer(ask, accepted(text)).await.status, 202);
    }
    for (stream, _, _, text) in &mut calls {
        assert_eq!(said(&stream.message().await), heard(text));
    }
}

async fn one_of_many_at_once_is_taken(backing: Backing) {
    let nodes = Nodes::start(backing).await;
    let (session, there) = nodes.open_session().await;
    for round in 0..3 {
        let (mut stream, ask) = asking(&session, round).await;
        let answers: Vec<_> = (0..16)
            .map(|no| {
                let at = if no % 2 == 0 { session.clone() } else { there.clone() };
                let ask = ask.clone();
                tokio::spawn(async move { (no, at.answer(&ask, accepted(&no.to_string())).await) })
            })
            .collect();
        let mut taken = Vec::new();
        for answer in answers {
            let (no, reply) = answer.await.unwrap();
            if reply.status == 202 {
                taken.push(no);
            } else {
                crate::asks::assert_unasked(&reply);
            }
        }
        assert_eq!(taken.len(), 1, "{taken:?}");
        assert_eq!(said(&stream.message().await), heard(&taken[0].to_string()));
    }
}

async fn the_second_is_refused_before_and_after_the_first_was_collected(backing: Backing) {
    let nodes = Nodes::start(backing).await;
    let (session, there) = nodes.open_session().await;
    let gate = blindfold(&nodes.faults);
    let (mut stream, ask) = asking(&session, 1).await;
    assert_eq!(there.answer(&ask, accepted("first")).await.status, 202);
    answer_too_late(&there, &ask).await;
    answer_too_late(&session, &ask).await;
    assert!(stream.is_quiet().await, "its node has not looked yet");
    nodes.faults.clear();
    gate.open();
    assert_eq!(said(&stream.message().await), heard("first"));
    answer_too_late(&there, &ask).await;
}

async fn what_waits_for_its_turn_is_asked_next(backing: Backing) {
    let nodes = Nodes::with(backing, Limits { server_requests: 1, ..Limits::default() }).await;
    let (session, there) = nodes.open_session().await;
    let mut stream = session.tool(1, "ask_many", json!({"n": 3})).stream().await;
    for no in ["0", "1", "2"] {
        let (ask, message) = question_of(&stream.message().await);
        assert_eq!(message, no);
        assert_eq!(there.answer(&ask, accepted(no)).await.status, 202);
    }
    assert_eq!(said(&stream.message().await), r#"[{"text":"0"},{"text":"1"},{"text":"2"}]"#);
}

async fn what_is_kept_has_a_bound(backing: Backing) {
    let nodes = Nodes::with(backing, Limits { kept_answer_bytes: 300, ..Limits::default() }).await;
    let (session, there) = nodes.open_session().await;
    let gate = blindfold(&nodes.faults);
    let ((mut first, a), (mut second, b)) = (asking(&session, 1).await, asking(&session, 2).await);
    let long = "x".repeat(150);
    assert_eq!(there.answer(&a, accepted(&long)).await.status, 202);
    let refused = there.answer(&b, accepted(&long)).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    assert!(refused.text().contains("`kept_answer_bytes`"), "{}", refused.text());
    nodes.faults.clear();
    gate.open();
    assert_eq!(said(&first.message().await), heard(&long));
    // Its asker has the first; the store hears of that a moment later.
    let taken = async {
        while there.answer(&b, accepted(&long)).await.status != 202 {
            tokio::task::yield_now().await;
        }
    };
    crate::support::within("room for the second", taken).await;
    assert_eq!(said(&second.message().await), heard(&long));
}

async fn an_error_reaches_the_asker(backing: Backing) {
    let nodes = Nodes::start(backing).await;
    let (session, there) = nodes.open_session().await;
    let (mut stream, ask) = asking(&session, 1).await;
    let no = json!({"jsonrpc": "2.0", "id": ask, "error": {"code": -1, "message": "I would rather not"}});
    assert_eq!(there.post(&no).send().await.status, 202);
    let answer = stream.message().await;
    assert!(answer["error"]["message"].as_str().unwrap().contains("I would rather not"), "{answer}");
}
