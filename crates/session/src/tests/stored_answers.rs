//! If another node than the owner receives the answer to a server request, the session stores it
//! until the owner collects it.

use super::fixture::{Action, Fixture, NODE, OTHER};
use crate::command::{Answer, Answered, Collect, Collected, ServerRequestOpened, Target, Withdrawn};
use crate::{CallNo, Holdings, Limit, NodeId, ServerRequestNo, StreamNo};

const STORED: Answered = Answered::Stored { owner: NODE };

fn stored_for(fixture: &Fixture, node: NodeId) -> Vec<(ServerRequestNo, String)> {
    let Holdings::Held { answers, .. } = fixture.session.held_by(node) else { return Vec::new() };
    answers
        .into_iter()
        .map(|(server_request, text)| (server_request, String::from_utf8(text.to_vec()).unwrap()))
        .collect()
}

fn collect(fixture: &mut Fixture, node: NodeId, server_requests: &[ServerRequestNo]) -> Collected {
    fixture.run(Collect { node, server_requests: server_requests.to_vec() })
}

#[test]
fn an_answer_is_stored_until_its_owner_collects_it() {
    let mut fixture = Fixture::new();
    let post = fixture.post("1");
    let server_request = fixture.opened_server_request(Target::Call(post.call));
    assert_eq!(fixture.answer_at(OTHER, server_request, "answer"), STORED);
    assert_eq!(fixture.changes.answers_stored, [(server_request, NODE)]);
    assert_eq!(stored_for(&fixture, OTHER), []);
    for _ in 0..2 {
        assert_eq!(
            stored_for(&fixture, NODE),
            [(server_request, "answer".to_owned())],
            "reading does not remove the answer"
        );
    }
    assert_eq!(fixture.session.kept_answer_bytes(), 6);
    assert_eq!(collect(&mut fixture, NODE, &[server_request]), Collected::Collected);
    assert_eq!(fixture.changes.server_requests, [server_request]);
    assert_eq!(fixture.changes.withdrawn, [], "the owner has the answer");
    assert_eq!((stored_for(&fixture, NODE), fixture.session.server_requests().len()), (vec![], 0));
    assert_eq!(fixture.session.kept_answer_bytes(), 0);
    fixture.unchanged(|fixture| collect(fixture, NODE, &[server_request, ServerRequestNo(99)]));
    assert_eq!(fixture.answer_at(OTHER, server_request, "second"), Answered::Unknown);
    fixture.finish(post.call, "x");
    fixture.check_log(post.stream, "1:ask-0 2:x end");
}

#[test]
fn only_the_first_answer_is_stored() {
    let mut fixture = Fixture::new();
    let server_request = fixture.opened_server_request(Target::Standalone);
    assert_eq!(fixture.answer_at(OTHER, server_request, "first"), STORED);
    for node in [OTHER, NODE, NodeId(9)] {
        assert_eq!(
            fixture.unchanged(|fixture| fixture.answer_at(node, server_request, "second")),
            Answered::AlreadyAnswered
        );
    }
    assert_eq!(stored_for(&fixture, NODE), [(server_request, "first".to_owned())]);
}

#[test]
fn a_retry_gets_the_first_outcome() {
    let mut fixture = Fixture::new();
    let server_request = fixture.opened_server_request(Target::Standalone);
    let answer = Answer { server_request, node: OTHER, attempt: 77, message: "answer".into() };
    assert_eq!(fixture.run(answer.clone()), STORED);
    assert_eq!(fixture.unchanged(|fixture| fixture.run(answer.clone())), STORED);
    for other in [
        Answer { attempt: 78, ..answer.clone() },
        Answer { node: NODE, ..answer.clone() },
        Answer { node: NodeId(9), ..answer },
    ] {
        assert_eq!(
            fixture.unchanged(|fixture| fixture.run(other.clone())),
            Answered::AlreadyAnswered,
            "{other:?}"
        );
    }
}

#[test]
fn a_node_collects_only_its_own_stored_answers() {
    let mut fixture = Fixture::new();
    let (answered, open) = (
        fixture.opened_server_request(Target::Standalone),
        fixture.opened_server_request(Target::Standalone),
    );
    fixture.answer_at(OTHER, answered, "answer");
    fixture.unchanged(|fixture| collect(fixture, OTHER, &[answered, open]));
    fixture.unchanged(|fixture| collect(fixture, NODE, &[open]));
    assert_eq!(fixture.answer(open), Answered::Answered { call: None });
}

#[test]
fn a_stored_answer_is_removed_with_its_server_request_and_the_client_is_not_notified() {
    let ends: [(&str, Action, &str); 5] = [
        ("finish", |fixture| _ = fixture.finish(CallNo(0), "x"), "1:ask-0 2:x end"),
        ("cancel", |fixture| _ = fixture.cancel("1"), "1:ask-0 end"),
        ("close", |fixture| _ = fixture.close(), "1:ask-0 2:session_closed(1) end"),
        ("node failed", |fixture| _ = fixture.fail_node(NODE), "1:ask-0 2:outcome_unknown(1) end"),
        (
            "withdraw",
            |fixture| assert_eq!(fixture.withdraw(ServerRequestNo(0)), Withdrawn::Withdrawn),
            "1:ask-0",
        ),
    ];
    for (name, end, expect) in ends {
        let mut fixture = Fixture::new();
        let post = fixture.post("1");
        let server_request = fixture.opened_server_request(Target::Call(post.call));
        fixture.answer_at(OTHER, server_request, "answer");
        end(&mut fixture);
        assert_eq!(fixture.log(post.stream), expect, "{name}");
        assert_eq!(fixture.changes.withdrawn, [(server_request, NODE)], "{name}");
        assert_eq!(
            (fixture.session.server_requests().len(), fixture.session.kept_answer_bytes()),
            (0, 0),
            "{name}"
        );
        assert_eq!(stored_for(&fixture, NODE), [], "{name}");
    }
}

#[test]
fn a_stored_answer_survives_the_node_that_received_it() {
    let mut fixture = Fixture::new();
    let server_request = fixture.opened_server_request(Target::Standalone);
    fixture.answer_at(OTHER, server_request, "answer");
    fixture.fail_node(OTHER);
    assert_eq!(stored_for(&fixture, NODE), [(server_request, "answer".to_owned())]);
    fixture.check_log(StreamNo(0), "1:ask-0");
}

#[test]
fn stored_answers_are_limited() {
    let mut fixture = Fixture::with(|rules| rules.limits.kept_answer_bytes = 8);
    let server_requests: Vec<ServerRequestNo> =
        (0..3).map(|_| fixture.opened_server_request(Target::Standalone)).collect();
    assert_eq!(fixture.answer_at(OTHER, server_requests[0], "four"), STORED);
    let refused = fixture.unchanged(|fixture| fixture.answer_at(OTHER, server_requests[1], "five!"));
    assert_eq!(refused, Answered::OverLimit(Limit::KeptAnswerBytes));
    assert_eq!(fixture.answer_at(OTHER, server_requests[1], "more"), STORED);
    assert_eq!(
        fixture.answer_at(OTHER, server_requests[2], "x"),
        Answered::OverLimit(Limit::KeptAnswerBytes)
    );
    assert_eq!(
        fixture.answer_at(NODE, server_requests[2], "longer than the limit"),
        Answered::Answered { call: None }
    );
    collect(&mut fixture, NODE, &server_requests[..1]);
    assert_eq!(fixture.session.kept_answer_bytes(), 4);
}

#[test]
fn a_server_request_counts_until_its_answer_is_collected() {
    let mut fixture = Fixture::with(|rules| rules.limits.server_requests = 1);
    let server_request = fixture.opened_server_request(Target::Standalone);
    fixture.answer_at(OTHER, server_request, "answer");
    assert_eq!(
        fixture.open_server_request(Target::Standalone),
        ServerRequestOpened::OverLimit(Limit::ServerRequests)
    );
    collect(&mut fixture, NODE, &[server_request]);
    fixture.opened_server_request(Target::Standalone);
}
