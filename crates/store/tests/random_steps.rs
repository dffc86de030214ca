//! The random steps of the contract reach all outcomes that they are meant to reach.

use std::collections::BTreeSet;
use std::fmt::Debug;

use bytes::Bytes;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use steadfast_session::{Command, Facts, Read, Time};
use steadfast_store::testing::model::Model;
use steadfast_store::testing::model_comparison::narrow_rules;
use steadfast_store::testing::random_steps::{self, StoreCall, TestStep};
use steadfast_wire::Revision;

/// What must occur within the sequences. Each entry is the beginning of an outcome's `Debug` text.
const EXPECTED: &[&str] = &[
    "Opened(",
    "IdInUse",
    "OverLimit(Sessions)",
    "OverLimit(SessionsPerPrincipal)",
    "OverLimit(StoreBytes)",
    "OverLimit(PrincipalBytes)",
    "Touch(Touched)",
    "Touch(OverLimit(StoreBytes))",
    "Touch(OverLimit(PrincipalBytes))",
    "Touch(NoSession)",
    "Close(Closed)",
    "Begin(Begun",
    "Begin(Duplicate(Number",
    "Begin(Duplicate(Text",
    "Begin(OverLimit(Calls))",
    "Begin(OverLimit(Streams))",
    "Begin(OverLimit(SessionBytes))",
    "Begin(OverLimit(StoreBytes))",
    "Begin(OverLimit(PrincipalBytes))",
    "Begin(OverLimit(KeptRequestBytes))",
    "Begin(NoSession)",
    "Start(Started)",
    "Start(Gone)",
    "Renotify(Renotified { calls: 1",
    "Forward(Forwarded)",
    "Forward(Gone)",
    "Release(Released)",
    "Release(Busy)",
    "Release(Fenced)",
    "Append(Appended",
    "Append(Full(StreamBytes))",
    "Append(Full(StoreBytes))",
    "Append(Full(PrincipalBytes))",
    "Append(Fenced)",
    "Finish(Finished",
    "Finish(AlreadyFinished)",
    "Cancel(Cancelled",
    "Cancel(Nothing)",
    "Cancel(Ambiguous)",
    "FailNode(Failed",
    "FailNode(Failed { failed: 0, reassigned: 1",
    "FailNode(Failed { failed: 0, reassigned: 0, kept: 1",
    "forwarded calls",
    "OpenServerRequest(Opened",
    "OpenServerRequest(OverLimit(ServerRequests))",
    "OpenServerRequest(CallGone)",
    "Answer(Answered",
    "Answer(Stored",
    "Answer(AlreadyAnswered)",
    "Answer(OverLimit(KeptAnswerBytes))",
    "Collect(Collected)",
    "Answer(Unknown)",
    "Withdraw(Withdrawn)",
    "kept answers",
    "collected",
    "Attach(Attached",
    "Attach(UnknownEvent)",
    "Attach(Gone)",
    "Attach(OverLimit(StandaloneStreams))",
    "Detach(Detached)",
    "Detach(Stale)",
    "Deliver(Delivered)",
    "Deliver(Stale)",
    "PutState(Put",
    "PutState(Conflict",
    "PutState(OverLimit(State))",
    "GetState(SessionOpen(Some",
    "Lifecycle(Opened)",
    "Lifecycle(Detached)",
    "Lifecycle(Reattached)",
    "Lifecycle(Closed(GraceExpired))",
    "Lifecycle(Closed(IdleExpired))",
    "removed",
    "dropped events",
    "a batch",
];

#[test]
fn random_steps_reach_every_interesting_outcome() {
    let mut runner = TestRunner::deterministic();
    let strategy = random_steps::random_steps(80);
    let mut seen = BTreeSet::new();
    for _ in 0..1500 {
        let random_steps = strategy.new_tree(&mut runner).unwrap().current();
        run_steps(random_steps, &mut seen);
    }
    let missing: Vec<_> =
        EXPECTED.iter().filter(|what| !seen.iter().any(|seen| seen.starts_with(**what))).collect();
    assert!(missing.is_empty(), "never seen: {missing:?}");
}

fn run_steps(random_steps: Vec<TestStep>, seen: &mut BTreeSet<String>) {
    let mut model = Model::new(narrow_rules());
    let mut clock = Time(1_000_000);
    let mut attempts = 0;
    for step in random_steps {
        match step {
            TestStep::Burst(burst) => {
                for store_call in burst {
                    attempts += 1;
                    send(&mut model, store_call, clock, attempts, seen);
                }
            }
            TestStep::AdvanceClock(by) => clock = Time(clock.0.saturating_add_signed(by)),
            TestStep::Reopen | TestStep::SwitchHandle => {}
        }
        for signal in std::mem::take(&mut model.signals).into_values().flatten() {
            note(&signal, seen);
        }
        note_situations(&model, seen);
    }
}

fn send(model: &mut Model, store_call: StoreCall, now: Time, attempt: u64, seen: &mut BTreeSet<String>) {
    match store_call {
        StoreCall::Open { session, principal } => {
            let facts = Facts {
                id: random_steps::session_id(session),
                principal: random_steps::principal(principal),
                revision: Revision::V2025_03_26,
                initialize: Bytes::new(),
                opened_at: now,
            };
            note(&model.open(facts), seen);
        }
        StoreCall::Command(pick, random_command) => {
            let id = random_steps::pick_session(model, pick);
            let command = random_steps::command(random_command, model.sessions.get(&id), attempt);
            let collects = matches!(command, Command::Collect(_));
            let server_requests =
                |model: &Model| model.sessions.get(&id).map_or(0, |session| session.server_requests().len());
            let before = server_requests(model);
            note(&model.apply(id, command, now), seen);
            if collects && server_requests(model) < before {
                seen.insert("collected".into());
            }
        }
        StoreCall::Sweep => {
            let before = model.sessions.len();
            model.sweep(now);
            if model.sessions.len() < before {
                seen.insert("removed".into());
            }
        }
        StoreCall::Leave(node) => model.leave(node, now),
        StoreCall::Join(_) | StoreCall::Reap => {}
    }
}

/// Records situations that no single outcome shows.
fn note_situations(model: &Model, seen: &mut BTreeSet<String>) {
    for session in model.sessions.values() {
        if session.calls().values().any(steadfast_session::Call::is_forwarded) {
            seen.insert("forwarded calls".into());
        }
        if session.kept_answer_bytes() > 0 {
            seen.insert("kept answers".into());
        }
        for (no, stream) in session.streams() {
            if let Read::Slice(slice) = session.read(*no, 0, u64::MAX)
                && slice.missing > 0
            {
                seen.insert("dropped events".into());
            }
            if session.calls().values().filter(|call| call.stream == *no).count() > 1 && stream.next_seq > 1 {
                seen.insert("a batch".into());
            }
        }
    }
}

/// Records the beginning of a value's `Debug` text.
fn note(what: &impl Debug, seen: &mut BTreeSet<String>) {
    seen.insert(format!("{what:?}").chars().take(60).collect());
}
