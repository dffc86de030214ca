//! Random stories. After each step the session is held against a history that knows only what was asked and what
//! came of it, against a copy that knows only the reported changes, and against a session restored half way.

mod history;
mod judge;
mod moves;
mod promises;
mod room;
mod shadow;

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::bench::{START, facts};
use crate::{Changes, Crowd, Limits, Rules, Session, Time, Timing};
use history::History;
use moves::{Move, any_move};
use shadow::Shadow;

fn small_rules() -> impl Strategy<Value = Rules> {
    let counts = (2..6usize, 1..4usize, 2..8usize, 1..4usize, 0..4usize);
    let bytes = (1..8u64, 4..24u64, 8..40u64, 8..40u64);
    (counts, bytes, 0..3u64).prop_map(|(counts, (stream, session, store, principal), touch)| {
        let (calls, asks, streams, standalone_streams, delivered_streams) = counts;
        let limits = Limits {
            calls,
            asks,
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

/// Often nobody, so that stories get on.
fn others() -> impl Strategy<Value = (u64, u64)> {
    prop_oneof![2 => Just((0, 0)), 1 => (0..40u64, 0..40u64)]
}

struct Play {
    rules: Rules,
    now: Time,
    session: Session,
    history: History,
    shadow: Shadow,
    twin: Option<Session>,
}

impl Play {
    fn new(rules: Rules) -> Self {
        let session = Session::open(facts());
        let history = History::new(rules.clone());
        Self { rules, now: START, shadow: Shadow::of(&session), session, history, twin: None }
    }

    /// `others` is what is held beside this session, by all and by those of the same principal.
    fn step(&mut self, next: &Move, others: (u64, u64)) {
        let Some(command) = next.command(&mut self.now, &self.session, &self.history) else { return };
        let crowd = Crowd { store_bytes: Some(others.0 * 70), principal_bytes: Some(others.1 * 70) };
        let crowd = crowd.and(self.session.held_bytes());
        self.history.crowd = crowd;
        let mut changes = Changes::default();
        let (now, rules) = (self.now, &self.rules);
        let outcome = self.session.apply_among(command.clone(), now, rules, crowd, &mut changes);
        self.shadow.follow(&changes, &self.session);
        self.shadow.check(&self.session);
        if let Some(twin) = &mut self.twin {
            let mut same = Changes::default();
            assert_eq!(twin.apply_among(command.clone(), now, rules, crowd, &mut same), outcome);
            assert_eq!(same, changes);
        }
        self.history.witness(&command, &outcome, self.now, &changes, &self.session);
        self.history.check(&self.session, self.now);
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
    fn every_promise_holds_after_every_step(
        rules in small_rules(),
        story in prop::collection::vec((any_move(), others()), 40..80),
        restored_at in 0..60usize,
    ) {
        let mut play = Play::new(rules);
        for (i, (next, others)) in story.iter().enumerate() {
            if i == restored_at {
                play.twin = Some(play.shadow.restore(&play.session));
            }
            play.step(next, *others);
        }
    }
}
