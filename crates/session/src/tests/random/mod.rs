//! Random sequences of commands. After each command the session is compared with three others: a
//! model that knows only the commands and their outcomes, a replica that is built from the reported
//! changes, and a session that was restored from the replica in the middle of the sequence.

mod actions;
mod eviction;
mod invariants;
mod model;
mod outcomes;
mod replica;
mod state_outcomes;

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::fixture::{START, facts};
use crate::{Changes, Limits, Rules, Session, SharedUsage, Time, Timing};
use actions::{Action, any_action};
use model::Model;
use replica::Replica;

fn small_rules() -> impl Strategy<Value = Rules> {
    let counts = (2..6usize, 1..4usize, 2..8usize, 1..4usize, 0..4usize);
    let bytes = (1..8u64, 4..24u64, 8..40u64, 8..40u64);
    (counts, bytes, 0..3u64).prop_map(|(counts, (stream, session, store, principal), touch)| {
        let (calls, server_requests, streams, standalone_streams, delivered_streams) = counts;
        let limits = Limits {
            calls,
            server_requests,
            streams,
            standalone_streams,
            delivered_streams,
            stream_bytes: stream * 70,
            session_bytes: session * 70,
            store_bytes: store * 70,
            principal_bytes: principal * 70,
            kept_answer_bytes: 12,
            kept_request_bytes: 24,
            state_entries: 2,
            state_bytes: 12,
            ..Limits::default()
        };
        let timing = Timing {
            idle: Duration::from_millis(60),
            grace: Duration::from_millis(30),
            retention: Duration::from_millis(20),
            linger: Duration::from_millis(10),
            touch: Duration::from_millis(touch * 4),
        };
        Rules { limits, timing }
    })
}

/// The usage of other sessions, in units of 70 bytes: of all principals, and of the same one. Often
/// zero, so that most commands are accepted.
fn other_usage() -> impl Strategy<Value = (u64, u64)> {
    prop_oneof![2 => Just((0, 0)), 1 => (0..40u64, 0..40u64)]
}

/// One run of a random sequence.
struct Run {
    rules: Rules,
    now: Time,
    session: Session,
    model: Model,
    replica: Replica,
    restored: Option<Session>,
}

impl Run {
    fn new(rules: Rules) -> Self {
        let session = Session::open(facts());
        let model = Model::new(rules.clone());
        Self { rules, now: START, replica: Replica::of(&session), session, model, restored: None }
    }

    fn step(&mut self, action: &Action, others: (u64, u64)) {
        let Some(command) = action.command(&mut self.now, &self.session, &self.model) else { return };
        let shared_usage =
            SharedUsage { store_bytes: Some(others.0 * 70), principal_bytes: Some(others.1 * 70) };
        let shared_usage = shared_usage.plus(self.session.held_bytes());
        self.model.shared_usage = shared_usage;
        let mut changes = Changes::default();
        let (now, rules) = (self.now, &self.rules);
        let outcome = self.session.apply_with_usage(command.clone(), now, rules, shared_usage, &mut changes);
        self.replica.apply_changes(&changes, &self.session);
        self.replica.check(&self.session);
        if let Some(restored) = &mut self.restored {
            let mut restored_changes = Changes::default();
            assert_eq!(
                restored.apply_with_usage(command.clone(), now, rules, shared_usage, &mut restored_changes),
                outcome
            );
            assert_eq!(restored_changes, changes);
        }
        self.model.observe(&command, &outcome, self.now, &changes, &self.session);
        self.model.check(&self.session, self.now);
    }
}

fn config() -> ProptestConfig {
    let given = ProptestConfig::default();
    let rng_seed = match given.rng_seed {
        RngSeed::Random => RngSeed::Fixed(20_251_125),
        fixed => fixed,
    };
    ProptestConfig { cases: given.cases.max(2000), failure_persistence: None, rng_seed, ..given }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_invariant_holds_after_every_command(
        rules in small_rules(),
        actions in prop::collection::vec((any_action(), other_usage()), 40..80),
        restored_at in 0..60usize,
    ) {
        let mut run = Run::new(rules);
        for (i, (action, others)) in actions.iter().enumerate() {
            if i == restored_at {
                run.restored = Some(run.replica.restore(&run.session));
            }
            run.step(action, *others);
        }
    }
}
