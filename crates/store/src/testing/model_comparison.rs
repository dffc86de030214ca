//! Applies random steps to a store and to the model, and compares the two after each step.

use std::fmt::Debug;
use std::ops::Not;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::ProptestConfig;
use proptest::test_runner::{RngAlgorithm, TestCaseError, TestRng, TestRunner};
use steadfast_session::command::{Begin, Forward};
use steadfast_session::{
    Command, Facts, Limit, Limits, NodeId, Read, Rules, SessionId, StreamNo, Time, Timing,
};
use steadfast_wire::Revision;

use super::model::Model;
use super::random_steps::{self, StoreCall, TestStep};
use super::signal_recorder::SignalRecorder;
use super::{StoreFixture, block_on};
use crate::reply::Reply;
use crate::store::Store;

/// The number of sequences, unless `PROPTEST_CASES` is set, and the number of steps in each.
const CASES: u32 = 96;
const LENGTH: usize = 80;

/// The budgets with which streams are read.
const BUDGETS: [u64; 4] = [0, 100, 200, u64::MAX];

/// Returns limits so low that random steps reach each of them.
pub fn narrow_rules() -> Rules {
    Rules {
        limits: Limits {
            sessions: 3,
            sessions_per_principal: 2,
            store_bytes: 2200,
            principal_bytes: 1900,
            calls: 4,
            server_requests: 2,
            streams: 5,
            standalone_streams: 2,
            delivered_streams: 2,
            stream_bytes: 400,
            session_bytes: 1500,
            kept_answer_bytes: 60,
            kept_request_bytes: 40,
            state_entries: 2,
            state_bytes: 60,
        },
        timing: Timing {
            idle: Duration::from_millis(1000),
            grace: Duration::from_millis(300),
            retention: Duration::from_millis(150),
            linger: Duration::from_millis(20),
            touch: Duration::from_millis(10),
        },
    }
}

/// Checks that the store does what the model does.
pub fn random_steps_match_the_model<P: StoreFixture>() {
    let mut config =
        ProptestConfig { failure_persistence: None, max_shrink_iters: 2000, ..Default::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = CASES;
    }
    // Every run uses the same sequences, so that a failure is caused by the change under test. Set
    // `PROPTEST_RNG_SEED` to try others.
    let runner = if std::env::var_os("PROPTEST_RNG_SEED").is_none() {
        TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
    } else {
        TestRunner::new(config)
    };
    run_all::<P>(runner);
}

fn run_all<P: StoreFixture>(mut runner: TestRunner) {
    let outcome = runner.run(&random_steps::random_steps(LENGTH), |random_steps| {
        let run = || block_on(Case::<P>::run(random_steps));
        // Convert a panic to a failure, so that proptest shrinks it, too.
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(run))
            .unwrap_or_else(|_| Err(TestCaseError::fail("panicked")))
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

/// One sequence of steps.
struct Case<P: StoreFixture> {
    fixture: P,
    model: Model,
    /// Two handles to the same sessions, as two processes would have them. The second is opened
    /// when it is needed.
    handles: [Option<P::Store>; 2],
    current: usize,
    signal_recorder: Arc<SignalRecorder>,
    clock: Time,
    attempts: u64,
}

impl<P: StoreFixture> Case<P> {
    async fn run(random_steps: Vec<TestStep>) -> Result<(), TestCaseError> {
        let model = Model::new(P::rules(narrow_rules()));
        let mut case = Self {
            fixture: P::fresh(),
            model,
            handles: [None, None],
            current: 0,
            signal_recorder: Arc::default(),
            clock: Time(1_000_000),
            attempts: 0,
        };
        case.ensure_open();
        case.open(0, 0).await?;
        for step in random_steps {
            case.step(step).await?;
            case.compare_whole().await?;
        }
        case.compare_sessions(&BUDGETS).await?;
        case.handles.iter_mut().filter_map(Option::take).for_each(|store| case.fixture.close(store));
        case.fixture.audit(&case.model).map_err(TestCaseError::fail)
    }

    fn ensure_open(&mut self) {
        if self.handles[self.current].is_none() {
            let store = self.fixture.open(narrow_rules());
            let signal_recorder: Arc<SignalRecorder> = Arc::clone(&self.signal_recorder);
            store.subscribe(signal_recorder);
            self.handles[self.current] = Some(store);
        }
    }

    fn store(&self) -> &P::Store {
        self.handles[self.current].as_ref().expect("the current handle is open")
    }

    async fn step(&mut self, step: TestStep) -> Result<(), TestCaseError> {
        match step {
            TestStep::Burst(burst) => {
                let mut comparisons = Vec::new();
                for store_call in burst {
                    let waits = !P::HAS_ONE_QUEUE && !matches!(store_call, StoreCall::Command(..));
                    if waits {
                        settle(&mut comparisons).await?;
                    }
                    comparisons.extend(self.send(store_call));
                    if waits {
                        settle(&mut comparisons).await?;
                    }
                }
                settle(&mut comparisons).await?;
                self.compare_sessions(&[u64::MAX]).await?;
            }
            TestStep::AdvanceClock(by) => self.clock = Time(self.clock.0.saturating_add_signed(by)),
            TestStep::Reopen if P::PERSISTS => {
                self.handles[self.current].take().into_iter().for_each(|store| self.fixture.close(store));
                self.model.lose_handle(self.current);
                self.ensure_open();
            }
            TestStep::SwitchHandle if P::IS_SHARED => {
                self.current = 1 - self.current;
                self.ensure_open();
            }
            TestStep::Reopen | TestStep::SwitchHandle => {}
        }
        Ok(())
    }

    /// Sends an operation to the store and applies it to the model. Returns the comparison, which
    /// waits for the reply.
    fn send(&mut self, store_call: StoreCall) -> Option<Comparison> {
        let now = self.clock;
        match store_call {
            StoreCall::Open { session, principal } => Some(self.open(session, principal)),
            StoreCall::Command(pick, random_command) => {
                self.attempts += 1;
                let id = random_steps::pick_session(&self.model, pick);
                let command =
                    random_steps::command(random_command, self.model.sessions.get(&id), self.attempts);
                let command = self.forwarded_to_a_live_node(command);
                let reply = self.store().apply(id, command.clone(), now);
                let expected = self.model.apply(id, command.clone(), now);
                Some(comparison(format!("{command:?}"), reply, expected))
            }
            StoreCall::Sweep => {
                let reply = self.store().sweep(now, usize::MAX);
                let due = self.model.sweep(now);
                Some(Box::pin(async move {
                    let got = answer(reply.await)?;
                    check(got >= due, || format!("{due} sessions are due, the store saw {got}"))
                }))
            }
            StoreCall::Join(node) => self.joined_elsewhere(node).not().then(|| {
                let reply = self.store().join(node, now);
                self.model.nodes.insert(node, Some(self.current));
                comparison("join".into(), reply, ())
            }),
            StoreCall::Leave(node) => self.has_joined_here(node).then(|| {
                let reply = self.store().leave(node, now);
                self.model.leave(node, now);
                comparison("leave".into(), reply, ())
            }),
            StoreCall::Reap => {
                let reply = self.store().reap_dead_nodes(now);
                Some(comparison("reap_dead_nodes".into(), reply, self.model.reap(now)))
            }
        }
    }

    fn open(&mut self, session: u8, principal: u8) -> Comparison {
        let facts = Facts {
            id: random_steps::session_id(session),
            principal: random_steps::principal(principal),
            // Those of the last principal are internal sessions, which have rules of their own.
            revision: [Revision::V2025_03_26, Revision::LATEST_LEGACY, Revision::V2026_07_28]
                [usize::from(principal)],
            initialize: Bytes::from(format!("{{\"n\":{session}}}")),
            opened_at: self.clock,
        };
        let reply = self.store().open(facts.clone());
        comparison("open".into(), reply, self.model.open(facts))
    }

    /// Returns the command with a target node that is alive. A separate test covers dead target
    /// nodes.
    fn forwarded_to_a_live_node(&self, command: Command) -> Command {
        match command {
            Command::Begin(begin) if !self.model.is_alive(begin.owner) => {
                Command::Begin(Begin { owner: begin.node, ..begin })
            }
            Command::Forward(forward) if !self.model.is_alive(forward.to) => {
                Command::Forward(Forward { to: forward.node, ..forward })
            }
            command => command,
        }
    }

    fn has_joined_here(&self, node: NodeId) -> bool {
        self.model.nodes.contains_key(&node) && !self.joined_elsewhere(node)
    }

    /// Returns true if a node has joined through the other handle. It must also leave through that
    /// one.
    fn joined_elsewhere(&self, node: NodeId) -> bool {
        matches!(self.model.nodes.get(&node), Some(Some(handle)) if *handle != self.current)
    }

    async fn compare_sessions(&self, budgets: &[u64]) -> Result<(), TestCaseError> {
        for id in self.model.sessions.keys() {
            self.compare_logs(*id, budgets).await?;
        }
        Ok(())
    }

    /// Compares usage, limits, facts, holdings and nodes, and the signals since the last
    /// comparison.
    async fn compare_whole(&mut self) -> Result<(), TestCaseError> {
        let expected = std::mem::take(&mut self.model.signals);
        let signals = self.signal_recorder.take();
        check(signals == expected, || format!("signals {signals:#?}\nexpected {expected:#?}"))?;
        same("usage", self.store().usage().await, self.model.usage())?;
        for n in 0..2 {
            let principal = random_steps::principal(n);
            let expected = self.model.reached_limit(&principal, 0);
            let is_unpredicted =
                expected == Some(Limit::SessionsPerPrincipal) && !P::PREDICTS_PRINCIPAL_LIMIT;
            let expected = expected.filter(|_| !is_unpredicted);
            same("no_room_for", self.store().reached_limit(&principal).await, expected)?;
        }
        self.compare_eviction_samples().await?;
        for n in 0..=4 {
            let id = random_steps::session_id(n);
            same("facts", self.store().facts(id).await, self.model.facts(id))?;
            for node in random_steps::nodes() {
                same("held", self.store().holdings(id, node).await, self.model.held(id, node))?;
            }
        }
        for node in random_steps::nodes() {
            same("is_alive", self.store().is_alive(node).await, self.model.is_alive(node))?;
        }
        Ok(())
    }

    /// Compares the samples of all sessions and of those of one principal. There are so few
    /// sessions that a sample has all of them.
    async fn compare_eviction_samples(&self) -> Result<(), TestCaseError> {
        let from = random_steps::session_id(2);
        let one = random_steps::principal(1);
        for of in [None, Some(&one)] {
            let requester = random_steps::principal(0);
            let mut sample = answer(self.store().eviction_sample(&requester, of, from).await)?;
            sample.sessions.sort_by_key(|session| session.id);
            let largest = sample
                .largest
                .take()
                .map(|(principal, held)| (held, self.model.eviction_sample(&principal, None).own));
            same("eviction sample", Ok(sample), self.model.eviction_sample(&requester, of))?;
            let most = (0..2).map(|n| self.model.eviction_sample(&random_steps::principal(n), None).own);
            let most = most.max().filter(|most| *most > 0);
            same("largest principal", Ok(largest), most.map(|most| (most, most)))?;
        }
        Ok(())
    }

    /// Compares every stream of a session, read from every position.
    async fn compare_logs(&self, id: SessionId, budgets: &[u64]) -> Result<(), TestCaseError> {
        let streams = self.model.sessions.get(&id).map_or(0, |session| session.meta().next_stream);
        // Includes streams that were removed and one that never existed.
        let mut reads: Vec<((StreamNo, u64, u64), Reply<Read>)> = Vec::new();
        for stream in (0..=streams).map(StreamNo) {
            let log = self.model.sessions.get(&id).and_then(|session| session.streams().get(&stream));
            for after in 0..=log.map_or(0, |log| log.last_seq() + 1) {
                for &budget in budgets {
                    let reply = self.store().read(id, stream, after, budget);
                    reads.push(((stream, after, budget), reply));
                }
            }
        }
        for ((stream, after, budget), reply) in reads {
            let expected = self.model.read(id, stream, after, budget);
            same(&format!("read {stream} after {after} within {budget}"), reply.await, expected)?;
        }
        Ok(())
    }
}

/// A comparison that waits for the reply of the store.
type Comparison = Pin<Box<dyn Future<Output = Result<(), TestCaseError>>>>;

async fn settle(comparisons: &mut Vec<Comparison>) -> Result<(), TestCaseError> {
    for comparison in comparisons.drain(..) {
        comparison.await?;
    }
    Ok(())
}

fn comparison<T: PartialEq + Debug + Unpin + 'static>(
    what: String,
    reply: Reply<T>,
    expected: T,
) -> Comparison {
    Box::pin(async move { same(&what, reply.await, expected) })
}

fn answer<T>(got: Result<T, crate::StoreError>) -> Result<T, TestCaseError> {
    got.map_err(|error| TestCaseError::fail(format!("the store failed: {error}")))
}

fn same<T: PartialEq + Debug>(
    what: &str,
    got: Result<T, crate::StoreError>,
    expected: T,
) -> Result<(), TestCaseError> {
    let got = answer(got)?;
    check(got == expected, || format!("{what}\n     got {got:?}\nexpected {expected:?}"))
}

fn check(holds: bool, complaint: impl FnOnce() -> String) -> Result<(), TestCaseError> {
    if holds { Ok(()) } else { Err(TestCaseError::fail(complaint())) }
}
