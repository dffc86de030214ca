//! `kill -9` of the real binary: finished answers are kept, and running calls get an explicit
//! error.

mod support;

use serde_json::Value;
use support::{Server, advice, council, countdown, events, id_of, messages, note};

#[test]
fn a_finished_answer_survives_and_a_running_call_gets_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("sessions.db");

    let server = Server::start(&file);
    let session = server.open_session();
    let finished = server.post(Some(&session), &countdown(1, 3, 0)).read_to_end();
    assert_eq!(messages(&finished).last().unwrap()["id"], 1);
    let notes = server.post(Some(&session), &note("written before")).read_to_end();
    assert!(notes.contains("You have 1 note(s)."), "{notes}");
    // This call has started and cannot finish in time.
    let mut running = server.post(Some(&session), &countdown(2, 1000, 60_000));
    let seen = running.read_until("\"progress\":0.0");
    server.kill();

    let server = Server::start(&file);
    let whole = events(&finished);
    for (i, event) in whole.iter().enumerate() {
        let rest = server.resume(&session, id_of(event)).read_to_end();
        let mut rest = events(&rest);
        if i + 1 < whole.len() {
            assert_eq!(id_of(rest.remove(0)), id_of(event), "a resumed stream first repeats the id");
        }
        assert_eq!(rest, whole[i + 1..], "after {}", id_of(event));
    }
    let priming = id_of(events(&seen)[0]).to_owned();
    for _ in 0..2 {
        let answers: Vec<Value> = messages(&server.resume(&session, &priming).read_to_end())
            .into_iter()
            .filter(|message| message["id"] == 2)
            .collect();
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0]["error"]["code"], -32603);
        assert_eq!(answers[0]["error"]["data"]["reason"], "outcome_unknown");
    }
    let notes = server.post(Some(&session), &note("written after")).read_to_end();
    assert!(notes.contains("You have 2 note(s)."), "{notes}");
    let again = server.post(Some(&session), &countdown(2, 1, 0)).read_to_end();
    assert_eq!(messages(&again).last().unwrap()["id"], 2, "the id is free again");
    server.kill();
}

#[test]
fn server_requests_of_a_killed_process_are_cancelled_and_late_answers_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("sessions.db");
    let server = Server::start(&file);
    let session = server.open_session();
    let mut running = server.post(Some(&session), &council(1, 3));
    let seen = running.read_until("\"ask-2\"");
    let answered = server.post(Some(&session), &advice("ask-1", "in time")).read_to_end();
    assert!(answered.starts_with("HTTP/1.1 202"), "{answered}");
    server.kill();

    let server = Server::start(&file);
    for ask in ["ask-0", "ask-1", "ask-2"] {
        let late = server.post(Some(&session), &advice(ask, "late")).read_to_end();
        assert!(late.starts_with("HTTP/1.1 400"), "{late}");
        assert!(late.contains("No request of the server with that id waits for an answer."), "{late}");
    }
    let priming = id_of(events(&seen)[0]).to_owned();
    let received = messages(&server.resume(&session, &priming).read_to_end());
    let cancelled: Vec<&Value> = received
        .iter()
        .filter(|message| message["method"] == "notifications/cancelled")
        .map(|message| &message["params"]["requestId"])
        .collect();
    assert_eq!(cancelled, ["ask-0", "ask-2"]);
    let answers: Vec<&Value> = received.iter().filter(|message| message["id"] == 1).collect();
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0]["error"]["data"]["reason"], "outcome_unknown");

    // The next server requests have ids that were never used.
    let mut again = server.post(Some(&session), &council(2, 1));
    again.read_until("\"ask-3\"");
    server.post(Some(&session), &advice("ask-3", "yes")).read_to_end();
    let received = messages(&again.read_to_end());
    assert!(received.last().unwrap().to_string().contains("yes"), "{received:?}");
    server.kill();
}
