//! The random moves of the contract reach what they are meant to reach.

use std::collections::BTreeSet;
use std::fmt::Debug;

use bytes::Bytes;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use steadfast_session::{Command, Facts, Read, Time};
use steadfast_store::testing::model::Model;
use steadfast_store::testing::moves::{self, Move, Sent};
use steadfast_store::testing::random::narrow_rules;
use steadfast_wire::Revision;

/// What must come up within a few hundred sequences. Each is a beginning of what an outcome is written like.
const EXPECTED: &[&str] = &[
    "Opened(",
    "Taken",
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
    "Remind(Reminded { calls: 1",
    "Pass(Passed)",
    "Pass(Gone)",
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
    "FailNode(Failed { calls: 0, handed: 1",
    "FailNode(Failed { calls: 0, handed: 0, left: 1",
    "errands",
    "OpenAsk(Opened",
    "OpenAsk(OverLimit(Asks))",
    "OpenAsk(CallGone)",
    "Answer(Answered",
    "Answer(Kept",
    "Answer(Before)",
    "Answer(OverLimit(KeptAnswerBytes))",
    "Collect(Collected)",
    "Answer(Unknown)",
    "Withdraw(Withdrawn)",
    "held answers",
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
    "GetState(Got(Some",
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
fn the_moves_reach_every_interesting_outcome() {
    let mut runner = TestRunner::deterministic();
    let strategy = moves::moves(80);
    let mut seen = BTreeSet::new();
    for _ in 0..1500 {
        let moves = strategy.new_tree(&mut runner).unwrap().current();
        play(moves, &mut seen);
    }
    let missing: Vec<_> =
        EXPECTED.iter().filter(|what| !seen.iter().any(|seen| seen.starts_with(**what))).collect();
    assert!(missing.is_empty(), "never seen: {missing:?}");
}

fn play(moves: Vec<Move>, seen: &mut BTreeSet<String>) {
    let mut model = Model::new(narrow_rules());
    let mut clock = Time(1_000_000);
    let mut attempts = 0;
    for step in moves {
        match step {
            Move::Burst(burst) => {
                for sent in burst {
                    attempts += 1;
                    send(&mut model, sent, clock, attempts, seen);
                }
            }
            Move::Wait(by) => clock = Time(clock.0.saturating_add_signed(by)),
            Move::Reopen | Move::Switch => {}
        }
        for heard in std::mem::take(&mut model.heards).into_values().flatten() {
            note(&heard, seen);
        }
        look(&model, seen);
    }
}

fn send(model: &mut Model, sent: Sent, now: Time, attempt: u64, seen: &mut BTreeSet<String>) {
    match sent {
        Sent::Open { session, principal } => {
            let facts = Facts {
                id: moves::session_id(session),
                principal: moves::principal(principal),
                revision: Revision::V2025_03_26,
                initialize: Bytes::new(),
                opened_at: now,
            };
            note(&model.open(facts), seen);
        }
        Sent::Command(pick, act) => {
            let id = moves::pick_session(model, pick);
            let command = moves::command(act, model.sessions.get(&id), attempt);
            let collects = matches!(command, Command::Collect(_));
            let asks = |model: &Model| model.sessions.get(&id).map_or(0, |session| session.asks().len());
            let before = asks(model);
            note(&model.apply(id, command, now), seen);
            if collects && asks(model) < before {
                seen.insert("collected".into());
            }
        }
        Sent::Sweep => {
            let before = model.sessions.len();
            model.sweep(now);
            if model.sessions.len() < before {
                seen.insert("removed".into());
            }
        }
        Sent::Leave(node) => model.leave(node, now),
        Sent::Join(_) | Sent::Bury => {}
    }
}

/// Notes situations that no single outcome shows.
fn look(model: &Model, seen: &mut BTreeSet<String>) {
    for session in model.sessions.values() {
        if session.calls().values().any(steadfast_session::Call::is_errand) {
            seen.insert("errands".into());
        }
        if session.kept_answer_bytes() > 0 {
            seen.insert("held answers".into());
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

/// Keeps the beginning of how something is written.
fn note(what: &impl Debug, seen: &mut BTreeSet<String>) {
    seen.insert(format!("{what:?}").chars().take(60).collect());
}
