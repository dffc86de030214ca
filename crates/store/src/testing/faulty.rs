//! A store that fails on command.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use steadfast_session::{
    Command, Facts, Holdings, Limit, NodeId, Outcome, Principal, Read, Rules, SessionId, StreamNo, Time,
};
use tokio::sync::Semaphore;

use crate::error::StoreError;
use crate::reply::Reply;
use crate::signal::Subscriber;
use crate::store::{Opened, Store, Usage};

/// What goes wrong with one call of the store.
#[derive(Clone, Debug)]
pub enum Fault {
    /// [`StoreError::Unavailable`], and nothing has happened.
    BeforeCommit,
    /// [`StoreError::Unknown`], and nothing has happened.
    Lost,
    /// [`StoreError::Unknown`], and it has happened.
    AfterCommit,
    /// It happens only when the gate is opened.
    HoldBefore(Gate),
    /// It happens at once; the answer comes when the gate is opened.
    HoldAfter(Gate),
    /// [`StoreError::Unavailable`] when the gate is opened, and nothing has happened.
    HoldAndFail(Gate),
}

/// Holds calls back until a test opens it.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Held>);

#[derive(Debug)]
struct Held {
    closed: Semaphore,
    /// One permit for each call that has come so far.
    arrived: Semaphore,
}

impl Gate {
    #[expect(clippy::new_without_default, reason = "a gate that is closed is worth a word")]
    pub fn new() -> Self {
        Self(Arc::new(Held { closed: Semaphore::new(0), arrived: Semaphore::new(0) }))
    }

    /// Lets everything through, now and later.
    pub fn open(&self) {
        self.0.closed.close();
    }

    /// Waits for a call to be held. With [`Fault::HoldAfter`] it has happened by then.
    pub async fn reached(&self) {
        // It is never closed.
        let _ = self.0.arrived.acquire().await;
    }

    async fn pass(&self) {
        self.0.arrived.add_permits(1);
        // There is never a permit: this ends when the gate is opened.
        let _ = self.0.closed.acquire().await;
    }
}

/// A call of the store, for scripts that choose.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    Open(&'a Facts),
    Room,
    Apply(SessionId, &'a Command),
    Read(SessionId, StreamNo),
    Facts(SessionId),
    Held(SessionId),
    Sweep,
    Elsewhere,
    Nodes,
    Answers,
    Usage,
}

type Choice = Box<dyn FnMut(Operation<'_>) -> bool + Send>;
type Script = Box<dyn FnMut(Operation<'_>) -> Option<Fault> + Send>;

/// The faults that are to come. Clones share them.
#[derive(Clone, Default)]
pub struct Faults(Arc<Mutex<Plan>>);

#[derive(Default)]
struct Plan {
    once: VecDeque<(Choice, Fault)>,
    script: Option<Script>,
    struck: u64,
}

impl Faults {
    pub fn new() -> Self {
        Self::default()
    }

    /// Strikes the next command.
    pub fn push(&self, fault: Fault) {
        self.push_for(|operation| matches!(operation, Operation::Apply(..)), fault);
    }

    /// Strikes the next call that is chosen.
    pub fn push_for(&self, chosen: impl FnMut(Operation<'_>) -> bool + Send + 'static, fault: Fault) {
        self.with(|plan| plan.once.push_back((Box::new(chosen), fault)));
    }

    /// Asks a script about each call that is not struck otherwise.
    pub fn script(&self, script: impl FnMut(Operation<'_>) -> Option<Fault> + Send + 'static) {
        self.with(|plan| plan.script = Some(Box::new(script)));
    }

    /// Strikes about `per_mille` of a thousand commands, before or after the commit, the same in each run with
    /// the same seed.
    pub fn seeded(&self, seed: u64, per_mille: u64) {
        let mut state = seed;
        self.script(move |operation| {
            if !matches!(operation, Operation::Apply(..)) {
                return None;
            }
            let random = split_mix(&mut state);
            let fault = if random >> 32 & 1 == 0 { Fault::BeforeCommit } else { Fault::AfterCommit };
            (random % 1000 < per_mille).then_some(fault)
        });
    }

    /// No more faults.
    pub fn clear(&self) {
        self.with(|plan| {
            plan.once.clear();
            plan.script = None;
        });
    }

    /// How many calls were struck.
    pub fn struck(&self) -> u64 {
        self.with(|plan| plan.struck)
    }

    fn next(&self, operation: Operation<'_>) -> Option<Fault> {
        self.with(|plan| {
            let chosen = plan.once.iter_mut().position(|(chosen, _)| chosen(operation));
            let fault = match chosen.and_then(|at| plan.once.remove(at)) {
                Some((_, fault)) => Some(fault),
                None => plan.script.as_mut().and_then(|script| script(operation)),
            };
            plan.struck += u64::from(fault.is_some());
            fault
        })
    }

    fn with<T>(&self, what: impl FnOnce(&mut Plan) -> T) -> T {
        what(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Faults")
    }
}

/// SplitMix64: enough randomness for choosing faults, and no dependency.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A store whose calls fail, or wait, as [`Faults`] say.
#[derive(Debug)]
pub struct FaultyStore<S: ?Sized> {
    inner: Arc<S>,
    pub faults: Faults,
}

impl<S: Store> FaultyStore<S> {
    pub fn new(inner: S) -> Self {
        Self::over(Arc::new(inner))
    }
}

impl<S: Store + ?Sized> FaultyStore<S> {
    pub fn over(inner: Arc<S>) -> Self {
        Self { inner, faults: Faults::new() }
    }

    /// The store itself, which does not fail.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    fn call<T: Send + Unpin + 'static>(
        &self,
        operation: Operation<'_>,
        run: impl FnOnce(&S) -> Reply<T> + Send + 'static,
    ) -> Reply<T> {
        match self.faults.next(operation) {
            None => run(&self.inner),
            Some(Fault::BeforeCommit) => {
                Reply::ready(Err(StoreError::Unavailable("a fault before the commit".into())))
            }
            Some(Fault::Lost) => {
                Reply::ready(Err(StoreError::Unknown("a fault on the way to the store".into())))
            }
            Some(Fault::AfterCommit) => {
                let reply = run(&self.inner);
                Reply::later(async move {
                    reply.await?;
                    Err(StoreError::Unknown("a fault after the commit".into()))
                })
            }
            Some(Fault::HoldBefore(gate)) => {
                let inner = Arc::clone(&self.inner);
                // A task of its own: the command happens even if nobody waits for it any more.
                let task = tokio::spawn(async move {
                    gate.pass().await;
                    run(&inner).await
                });
                Reply::later(async move {
                    task.await.unwrap_or_else(|error| Err(StoreError::Unknown(error.to_string())))
                })
            }
            Some(Fault::HoldAndFail(gate)) => Reply::later(async move {
                gate.pass().await;
                Err(StoreError::Unavailable("a fault after a while".into()))
            }),
            Some(Fault::HoldAfter(gate)) => {
                let reply = run(&self.inner);
                Reply::later(async move {
                    let outcome = reply.await;
                    gate.pass().await;
                    outcome
                })
            }
        }
    }
}

impl<S: Store + ?Sized> Store for FaultyStore<S> {
    fn rules(&self) -> &Rules {
        self.inner.rules()
    }

    fn open(&self, facts: Facts) -> Reply<Opened> {
        let named = facts.clone();
        self.call(Operation::Open(&named), move |store| store.open(facts))
    }

    fn no_room_for(&self, principal: &Principal) -> Reply<Option<Limit>> {
        let principal = principal.clone();
        self.call(Operation::Room, move |store| store.no_room_for(&principal))
    }

    fn apply(&self, session: SessionId, command: Command, now: Time) -> Reply<Outcome> {
        let named = command.clone();
        self.call(Operation::Apply(session, &named), move |store| store.apply(session, command, now))
    }

    fn read(&self, session: SessionId, stream: StreamNo, after: u64, budget: u64) -> Reply<Read> {
        self.call(Operation::Read(session, stream), move |store| store.read(session, stream, after, budget))
    }

    fn facts(&self, session: SessionId) -> Reply<Option<Arc<Facts>>> {
        self.call(Operation::Facts(session), move |store| store.facts(session))
    }

    fn held(&self, session: SessionId, node: NodeId) -> Reply<Holdings> {
        self.call(Operation::Held(session), move |store| store.held(session, node))
    }

    fn sweep(&self, now: Time, batch: usize) -> Reply<usize> {
        self.call(Operation::Sweep, move |store| store.sweep(now, batch))
    }

    fn join(&self, node: NodeId, now: Time) -> Reply<()> {
        self.call(Operation::Nodes, move |store| store.join(node, now))
    }

    fn is_alive(&self, node: NodeId) -> Reply<bool> {
        self.call(Operation::Nodes, move |store| store.is_alive(node))
    }

    fn bury_dead_nodes(&self, now: Time) -> Reply<usize> {
        self.call(Operation::Nodes, move |store| store.bury_dead_nodes(now))
    }

    fn leave(&self, node: NodeId, now: Time) -> Reply<()> {
        self.call(Operation::Nodes, move |store| store.leave(node, now))
    }

    fn poll_interval(&self) -> Option<std::time::Duration> {
        self.inner.poll_interval()
    }

    fn changes_elsewhere(&self) -> Reply<Option<u64>> {
        self.call(Operation::Elsewhere, Store::changes_elsewhere)
    }

    fn subscribe(&self, subscriber: Arc<dyn Subscriber>) {
        self.inner.subscribe(subscriber);
    }

    fn answers(&self) -> Reply<()> {
        self.call(Operation::Answers, Store::answers)
    }

    fn usage(&self) -> Reply<Usage> {
        self.call(Operation::Usage, Store::usage)
    }
}
