//! A store that leaves a node in doubt about an answer: it is taken once and heard once, or its
//! client is told the truth.

use steadfast::store::testing::{Fault, Gate, Operation};
use steadfast_session::Command;

use crate::asks::{accepted, answer_too_late, asked, question_of};
use crate::store_faults::{assert_try_again, strike};
use crate::support::session::said;
use crate::support::{Backing, json, within};

use super::{Nodes, asking, blindfold, heard, struck};

crate::on_every_store!(
    giving_it_to_the_store,
    finding_and_collecting_it,
    an_answer_that_was_collected_before_the_doubt_was_resolved,
    an_answer_elsewhere_while_one_here_is_in_doubt,
    an_answer_here_that_stays_in_doubt,
);

fn answers(command: &Command) -> bool {
    matches!(command, Command::Answer(_))
}

async fn giving_it_to_the_store(backing: Backing) {
    use Fault::{AfterCommit, BeforeCommit, Lost};
    let nodes = Nodes::start(backing).await;
    let (session, there) = nodes.open_session().await;
    for (plan, expect) in [
        (vec![BeforeCommit], 503),
        (vec![Lost], 202),
        (vec![AfterCommit], 202),
        (vec![Lost, BeforeCommit, AfterCommit], 202),
    ] {
        // Kept until the doubt is resolved.
        let gate = blindfold(&nodes.faults);
        let (mut stream, ask) = asking(&session, 1).await;
        strike(&nodes.other_faults, answers, &plan);
        assert_eq!(there.answer(&ask, accepted("once")).await.status, expect, "{plan:?}");
        let again = there.answer(&ask, accepted("once")).await.status;
        assert_eq!(again, if expect == 503 { 202 } else { 400 }, "{plan:?}");
        nodes.faults.clear();
        gate.open();
        assert_eq!(stream.messages().await.iter().map(said).collect::<Vec<_>>(), [heard("once")], "{plan:?}");
    }
    assert_eq!(nodes.other_faults.injected(), 6);
}

async fn finding_and_collecting_it(backing: Backing) {
    use Fault::{AfterCommit, BeforeCommit, Lost};
    let nodes = Nodes::start(backing).await;
    let (session, there) = nodes.open_session().await;
    // An ask of no call: nothing but its node takes its answer away.
    let mut listener = session.listen().stream().await;
    let mut strikes = 0;
    let plans = [
        (vec![BeforeCommit, Lost], vec![]),
        (vec![], vec![BeforeCommit]),
        (vec![], vec![AfterCommit]),
        (vec![AfterCommit], vec![Lost, AfterCommit]),
    ];
    for (done, (held, collect)) in plans.into_iter().enumerate() {
        strikes += (held.len() + collect.len()) as u64;
        session.notify("notifications/ask", json!({})).await;
        let ask = asked(&mut listener).await;
        for fault in held {
            nodes.faults.push_for(|operation| matches!(operation, Operation::Holdings(_)), fault);
        }
        strike(&nodes.faults, |c| matches!(c, Command::Collect(_)), &collect);
        assert_eq!(there.answer(&ask, accepted("once")).await.status, 202);
        nodes.one.gates.reached("answered", done + 1).await;
        struck(&nodes.faults, strikes).await;
    }
    // Nothing stays behind: as many asks fit as ever.
    let mut many = session.tool(2, "ask_many", json!({"n": 64})).stream().await;
    let mut asks = Vec::new();
    while asks.len() < 64 {
        asks.push(question_of(&many.message().await).0);
    }
    for ask in &asks {
        assert_eq!(session.answer(ask, accepted("")).await.status, 202);
    }
    assert!(many.message().await["result"].is_object());
    assert_eq!(nodes.one.gates.count("answered"), 4);
}

/// No node can say what became of the answer. The tool received it once.
async fn an_answer_that_was_collected_before_the_doubt_was_resolved(backing: Backing) {
    let nodes = Nodes::start(backing).await;
    let (session, there) = nodes.open_session().await;
    let (mut stream, ask) = asking(&session, 1).await;
    let gate = Gate::new();
    strike(&nodes.other_faults, answers, &[Fault::AfterCommit, Fault::HoldBefore(gate.clone())]);
    let answering = {
        let (there, ask) = (there.clone(), ask.clone());
        tokio::spawn(async move { there.answer(&ask, accepted("once")).await })
    };
    assert_eq!(stream.messages().await.iter().map(said).collect::<Vec<_>>(), [heard("once")]);
    struck(&nodes.other_faults, 2).await;
    gate.open();
    assert_try_again(&answering.await.unwrap());
    answer_too_late(&there, &ask).await;
}

/// Two clients, or one that tried both: one of the answers is taken, and the other one's sender is
/// told so.
async fn an_answer_elsewhere_while_one_here_is_in_doubt(backing: Backing) {
    let nodes = Nodes::start(backing).await;
    let (session, there) = nodes.open_session().await;
    let looks = blindfold(&nodes.faults);
    let (mut stream, ask) = asking(&session, 1).await;
    let gate = Gate::new();
    strike(&nodes.faults, answers, &[Fault::Lost, Fault::HoldBefore(gate.clone())]);
    let answering = {
        let (session, ask) = (session.clone(), ask.clone());
        tokio::spawn(async move { session.answer(&ask, accepted("here")).await })
    };
    let held = async {
        while there.answer(&ask, accepted("there")).await.status != 202 {
            tokio::task::yield_now().await;
        }
    };
    within("the answer elsewhere", held).await;
    gate.open();
    crate::asks::assert_unasked(&answering.await.unwrap());
    nodes.faults.clear();
    looks.open();
    assert_eq!(stream.messages().await.iter().map(said).collect::<Vec<_>>(), [heard("there")]);
}

/// The store has accepted the request and holds no answer to it. The tool that asked does not wait
/// for ever.
async fn an_answer_here_that_stays_in_doubt(backing: Backing) {
    let crate::store_faults::Faulty { host, faults } = crate::lost_track::impatient(backing).await;
    let session = crate::support::Session::open(&host).await;
    let (mut stream, ask) = asking(&session, 1).await;
    strike(&faults, answers, &[Fault::AfterCommit, Fault::AfterCommit]);
    assert_try_again(&session.answer(&ask, accepted("lost")).await);
    host.sweep_after(std::time::Duration::ZERO).await;
    let told = stream.messages().await;
    assert!(told[0]["error"]["message"].as_str().unwrap().contains("was withdrawn"), "{told:?}");
    answer_too_late(&session, &ask).await;
}
