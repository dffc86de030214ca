//! Random moves on a store and on the model, compared step by step.

use std::fmt::Debug;
use std::ops::Not;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::ProptestConfig;
use proptest::test_runner::{RngAlgorithm, TestCaseError, TestRng, TestRunner};
use steadfast_session::command::{Begin, Pass};
use steadfast_session::{
    Command, Facts, Limit, Limits, NodeId, Read, Rules, SessionId, StreamNo, Time, Timing,
};
use steadfast_wire::Revision;

use super::model::Model;
use super::moves::{self, Move, Sent};
use super::recorder::Recorder;
use super::{Place, block_on};
use crate::reply::Reply;
use crate::store::Store;

/// Sequences to try, unless `PROPTEST_CASES` says otherwise, and moves in each.
const CASES: u32 = 96;
const LENGTH: usize = 80;

/// Budgets with which the logs are read.
const BUDGETS: [u64; 4] = [0, 100, 200, u64::MAX];

/// Bounds so narrow that random moves run into each of them.
pub fn narrow_rules() -> Rules {
    Rules {
        limits: Limits {
            sessions: 3,
            sessions_per_principal: 2,
            store_bytes: 2200,
            principal_bytes: 1900,
            calls: 4,
            asks: 2,
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

/// The store must do what the model does, whatever happens.
pub fn random_commands<P: Place>() {
    let mut config =
        ProptestConfig { failure_persistence: None, max_shrink_iters: 2000, ..Default::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = CASES;
    }
    // The same sequences in each run: a failure is then about the change at hand. `PROPTEST_RNG_SEED` is for
    // those who look for more.
    let runner = if std::env::var_os("PROPTEST_RNG_SEED").is_none() {
        TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
    } else {
        TestRunner::new(config)
    };
    run_all::<P>(runner);
}

fn run_all<P: Place>(mut runner: TestRunner) {
    let outcome = runner.run(&moves::moves(LENGTH), |moves| {
        let run = || block_on(Case::<P>::run(moves));
        // A panic is a failure like any other, so that it is shrunk as well.
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(run))
            .unwrap_or_else(|_| Err(TestCaseError::fail("panicked")))
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

/// One sequence of moves.
struct Case<P: Place> {
    place: P,
    model: Model,
    /// Handles of the place, as two processes would have them. The second is opened when it is needed.
    handles: [Option<P::Store>; 2],
    current: usize,
    recorder: Arc<Recorder>,
    clock: Time,
    attempts: u64,
}

impl<P: Place> Case<P> {
    async fn run(moves: Vec<Move>) -> Result<(), TestCaseError> {
        let model = Model::new(P::rules(narrow_rules()));
        let mut case = Self {
            place: P::fresh(),
            model,
            handles: [None, None],
            current: 0,
            recorder: Arc::default(),
            clock: Time(1_000_000),
            attempts: 0,
        };
        case.ensure_open();
        case.open(0, 0).await?;
        for step in moves {
            case.step(step).await?;
            case.compare_whole().await?;
        }
        case.compare_sessions(&BUDGETS).await?;
        case.handles.iter_mut().filter_map(Option::take).for_each(|store| case.place.close(store));
        case.place.audit(&case.model).map_err(TestCaseError::fail)
    }

    fn ensure_open(&mut self) {
        if self.handles[self.current].is_none() {
            let store = self.place.open(narrow_rules());
            let recorder: Arc<Recorder> = Arc::clone(&self.recorder);
            store.subscribe(recorder);
            self.handles[self.current] = Some(store);
        }
    }

    fn store(&self) -> &P::Store {
        self.handles[self.current].as_ref().expect("the current handle is open")
    }

    async fn step(&mut self, step: Move) -> Result<(), TestCaseError> {
        match step {
            Move::Burst(burst) => {
                let mut verdicts = Vec::new();
                for sent in burst {
                    let waits = !P::ONE_QUEUE && !matches!(sent, Sent::Command(..));
                    if waits {
                        settle(&mut verdicts).await?;
                    }
                    verdicts.extend(self.send(sent));
                    if waits {
                        settle(&mut verdicts).await?;
                    }
                }
                settle(&mut verdicts).await?;
                self.compare_sessions(&[u64::MAX]).await?;
            }
            Move::Wait(by) => self.clock = Time(self.clock.0.saturating_add_signed(by)),
            Move::Reopen if P::KEEPS => {
                self.handles[self.current].take().into_iter().for_each(|store| self.place.close(store));
                self.model.lose_handle(self.current);
                self.ensure_open();
            }
            Move::Switch if P::SHARES => {
                self.current = 1 - self.current;
                self.ensure_open();
            }
            Move::Reopen | Move::Switch => {}
        }
        Ok(())
    }

    /// Sends something to the store, does the same to the model, and gives the comparison to be awaited.
    fn send(&mut self, sent: Sent) -> Option<Verdict> {
        let now = self.clock;
        match sent {
            Sent::Open { session, principal } => Some(self.open(session, principal)),
            Sent::Command(pick, act) => {
                self.attempts += 1;
                let id = moves::pick_session(&self.model, pick);
                let command = moves::command(act, self.model.sessions.get(&id), self.attempts);
                let command = self.given_to_the_living(command);
                let reply = self.store().apply(id, command.clone(), now);
                let expected = self.model.apply(id, command.clone(), now);
                Some(verdict(format!("{command:?}"), reply, expected))
            }
            Sent::Sweep => {
                let reply = self.store().sweep(now, usize::MAX);
                let due = self.model.sweep(now);
                Some(Box::pin(async move {
                    let got = answer(reply.await)?;
                    check(got >= due, || format!("{due} sessions are due, the store saw {got}"))
                }))
            }
            Sent::Join(node) => self.joined_elsewhere(node).not().then(|| {
                let reply = self.store().join(node, now);
                self.model.nodes.insert(node, Some(self.current));
                verdict("join".into(), reply, ())
            }),
            Sent::Leave(node) => self.has_joined_here(node).then(|| {
                let reply = self.store().leave(node, now);
                self.model.leave(node, now);
                verdict("leave".into(), reply, ())
            }),
            Sent::Bury => {
                let reply = self.store().bury_dead_nodes(now);
                Some(verdict("bury_dead_nodes".into(), reply, self.model.bury(now)))
            }
        }
    }

    fn open(&mut self, session: u8, principal: u8) -> Verdict {
        let facts = Facts {
            id: moves::session_id(session),
            principal: moves::principal(principal),
            revision: Revision::LEGACY[usize::from(principal)],
            initialize: Bytes::from(format!("{{\"n\":{session}}}")),
            opened_at: self.clock,
        };
        let reply = self.store().open(facts.clone());
        verdict("open".into(), reply, self.model.open(facts))
    }

    /// Nobody gives calls to a node that is not there; what becomes of that is told apart.
    fn given_to_the_living(&self, command: Command) -> Command {
        match command {
            Command::Begin(begin) if !self.model.is_alive(begin.owner) => {
                Command::Begin(Begin { owner: begin.node, ..begin })
            }
            Command::Pass(pass) if !self.model.is_alive(pass.to) => {
                Command::Pass(Pass { to: pass.node, ..pass })
            }
            command => command,
        }
    }

    fn has_joined_here(&self, node: NodeId) -> bool {
        self.model.nodes.contains_key(&node) && !self.joined_elsewhere(node)
    }

    /// Whether a node has joined through the other handle. It also leaves through that one.
    fn joined_elsewhere(&self, node: NodeId) -> bool {
        matches!(self.model.nodes.get(&node), Some(Some(handle)) if *handle != self.current)
    }

    async fn compare_sessions(&self, budgets: &[u64]) -> Result<(), TestCaseError> {
        for id in self.model.sessions.keys() {
            self.compare_logs(*id, budgets).await?;
        }
        Ok(())
    }

    /// Compares what the store says of itself, and what it made heard since the last time.
    async fn compare_whole(&mut self) -> Result<(), TestCaseError> {
        let expected = std::mem::take(&mut self.model.heards);
        let heard = self.recorder.take();
        check(heard == expected, || format!("heard {heard:#?}\nexpected {expected:#?}"))?;
        same("usage", self.store().usage().await, self.model.usage())?;
        for n in 0..2 {
            let principal = moves::principal(n);
            let expected = self.model.no_room_for(&principal, 0);
            let told_late = expected == Some(Limit::SessionsPerPrincipal) && !P::FORESEES_PRINCIPALS;
            let expected = expected.filter(|_| !told_late);
            same("no_room_for", self.store().no_room_for(&principal).await, expected)?;
        }
        for n in 0..=4 {
            let id = moves::session_id(n);
            same("facts", self.store().facts(id).await, self.model.facts(id))?;
            for node in moves::nodes() {
                same("held", self.store().held(id, node).await, self.model.held(id, node))?;
            }
        }
        for node in moves::nodes() {
            same("is_alive", self.store().is_alive(node).await, self.model.is_alive(node))?;
        }
        Ok(())
    }

    /// Compares every log of a session, read from every position.
    async fn compare_logs(&self, id: SessionId, budgets: &[u64]) -> Result<(), TestCaseError> {
        let streams = self.model.sessions.get(&id).map_or(0, |session| session.meta().next_stream);
        // From a stream that may be gone long since to one that never was.
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

/// A comparison that waits for the store's answer.
type Verdict = Pin<Box<dyn Future<Output = Result<(), TestCaseError>>>>;

async fn settle(verdicts: &mut Vec<Verdict>) -> Result<(), TestCaseError> {
    for verdict in verdicts.drain(..) {
        verdict.await?;
    }
    Ok(())
}

fn verdict<T: PartialEq + Debug + Unpin + 'static>(what: String, reply: Reply<T>, expected: T) -> Verdict {
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
